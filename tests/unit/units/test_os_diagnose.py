"""OS definitions across nodes."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.fill import cluster_hvparams
from ganeti.model import wire
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.model.opcodes.instance_system import OpInstanceReinstall
from ganeti.model.opcodes.os import OpOsDiagnose
from ganeti.rpc.procedures.programs import OS_VALIDATE, OsValidateArgs
from tests.support.units_cluster import Master, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time


def diagnose(*names: str) -> OpOsDiagnose:
    return OpOsDiagnose(output_fields=["name", "valid", "variants", "node_status"], names=[*names])


async def test_a_definition_is_valid_if_every_node_has_the_same(master: Master) -> None:
    master.world.node(1).oses["half"] = "1"
    master.world.node(2).oses["tiny"] = "2.0"
    rows = succeeded(await master.run(diagnose()))
    assert [row[:2] for row in rows] == [["half", False], ["tiny", False]]
    master.world.node(2).oses["tiny"] = "1.0"
    ((name, valid, _, nodes),) = succeeded(await master.run(diagnose("tiny")))
    assert (name, valid) == ("tiny", True)
    assert sorted(nodes) == [f"node{number}.example.com" for number in (1, 2, 3)]
    # Path, whether it is usable, why not, variants, parameters, API versions, trusted.
    [[path, status, message, variants, parameters, versions, trusted]] = nodes["node1.example.com"]
    assert isinstance(path, str)
    assert (status, message, trusted) == (True, "", True)
    assert all(isinstance(one, list) for one in (variants, parameters, versions))


@pytest.mark.requirement("S141")
async def test_reason_why_a_definition_is_invalid_names_the_nodes(master: Master) -> None:
    master.world.node(2).oses["tiny"] = "2.0"
    del master.world.node(3).oses["tiny"]
    op = OpOsDiagnose(output_fields=["valid", "os_version", "problems"])
    [[valid, version, problems]] = succeeded(await master.run(op))
    assert (valid, version) == (False, "1.0")
    assert problems == [
        "missing on node3.example.com",
        "the versions differ: 1.0 on node1.example.com; 2.0 on node2.example.com",
    ]


async def test_a_silent_node_is_warned_about_and_left_out(master: Master) -> None:
    del master.rpc.nodes["node3.example.com"]
    view = await master.run(diagnose())
    assert [row[:2] for row in succeeded(view)] == [["tiny", True]]
    assert "WARNING: node node3.example.com" in said(view)


async def test_an_unknown_field_is_refused(master: Master) -> None:
    _, (text, code) = failed(await master.run(OpOsDiagnose(output_fields=["colour"])))
    assert code == "wrong_input"
    assert text.startswith("output_fields: unknown fields colour; known: ")


def wish(**fields: Any) -> OpClusterSetParams:
    return OpClusterSetParams(**fields)


async def changed(master: Master, **fields: Any) -> None:
    succeeded(await master.run(wish(**fields)))


@pytest.mark.requirement("S155", "S156")
@pytest.mark.parametrize("field", ["hidden", "blacklisted"])
async def test_what_is_hidden_or_blacklisted_is_listed_if_that_is_asked_for(
    master: Master, field: str
) -> None:
    plain = OpOsDiagnose(output_fields=["name"])
    assert succeeded(await master.run(plain)) == [["tiny"]]
    await changed(master, **{f"{field}_os": [("add", "tiny")]})
    assert succeeded(await master.run(plain)) == []
    asked = OpOsDiagnose(output_fields=["name", field])
    assert succeeded(await master.run(asked)) == [["tiny", True]]
    await changed(master, **{f"{field}_os": [("remove", "tiny")]})
    assert succeeded(await master.run(plain)) == [["tiny"]]


async def test_what_is_broken_somewhere_is_listed_if_that_is_asked_for(master: Master) -> None:
    master.world.node(1).oses["half"] = "1"
    assert succeeded(await master.run(OpOsDiagnose(output_fields=["name"]))) == [["tiny"]]
    asked = OpOsDiagnose(output_fields=["name", "valid"])
    assert succeeded(await master.run(asked)) == [["half", False], ["tiny", True]]


@pytest.mark.requirement("S152")
async def test_parameters_are_stored_by_os_for_the_cluster_and_plainly_for_an_instance(
    master: Master,
) -> None:
    given = {"tiny": {"size": "9"}, "tiny+a": {"size": "1"}}
    await changed(master, osparams=given)
    succeeded(await master.run(create(osparams={"size": "2"})))
    cluster, instance = master.snapshot.cluster, master.instance(NAME)
    assert json.loads(wire.encode(cluster))["osparams"] == given
    assert json.loads(wire.encode(instance))["osparams"] == {"size": "2"}


async def test_the_parameters_of_the_cluster_are_shown_with_those_of_variants(
    master: Master,
) -> None:
    await changed(
        master,
        osparams={"tiny": {"size": "9"}, "tiny+a": {"size": "1"}, "tinyx": {"size": "0"}},
        os_hvp={"tiny+a": {"kvm": {"acpi": False}}},
    )
    asked = OpOsDiagnose(output_fields=["osparams", "os_hvp", "trusted"])
    assert succeeded(await master.run(asked)) == [
        [
            {"tiny": {"size": "9"}, "tiny+a": {"size": "1"}},
            {"tiny+a": {"kvm": {"acpi": False}}},
            True,
        ]
    ]


@pytest.mark.requirement("S154", "S157")
@pytest.mark.parametrize("field", ["hidden_os", "blacklisted_os"])
async def test_an_os_need_not_exist_to_be_hidden_but_a_variant_cannot_be(
    master: Master, field: str
) -> None:
    await changed(master, **{field: [("add", "later"), ("add", "older"), ("remove", "older")]})
    assert getattr(master.snapshot.cluster, field) == ("later",)
    for action, name, text in (
        ("add", "tiny+a", f"{field}: 'tiny+a' names a variant"),
        ("add", "../x", f"{field}: '../x' is not a name"),
        ("turn", "tiny", f"{field}: 'turn' must be add or remove"),
    ):
        _, (message, code) = failed(await master.run(wish(**{field: [(action, name)]})))
        assert (message.startswith(text), code) == (True, "wrong_input")


@pytest.mark.requirement("S156")
async def test_no_new_instance_has_a_blacklisted_os_but_others_keep_it(master: Master) -> None:
    succeeded(await master.run(replace(create(), start=False)))
    await changed(master, blacklisted_os=[("add", "tiny")])
    for os in ("tiny", "tiny+a"):
        again = replace(create(), instance_name="web2.example.com", os_type=os)
        _, (message, code) = failed(await master.run(again))
        assert code == "wrong_state"
        assert f"{os} is blacklisted" in message
        assert "gnt-os modify --blacklisted=no tiny" in message
    succeeded(await master.run(OpInstanceReinstall(instance_name=NAME, os_type="tiny+b")))
    await changed(master, blacklisted_os=[("remove", "tiny")])
    succeeded(await master.run(replace(create(), instance_name="web2.example.com")))


@pytest.mark.requirement("S147", "S149", "S153")
async def test_the_definition_judges_defaults_once_on_one_node(master: Master) -> None:
    for number in (1, 2, 3):
        master.world.node(number).wrong_osparams.add(("size", "x"))
    await changed(master, osparams={"tiny": {"size": "9"}})
    await changed(master, osparams={"tiny+a": {"colour": "red"}})
    assert [call.args for call in master.rpc.calls if call.procedure == OS_VALIDATE.name] == [
        OsValidateArgs(os="tiny", osparams={"size": "9"}, are_defaults=True),
        OsValidateArgs(os="tiny+a", osparams={"size": "9", "colour": "red"}, are_defaults=True),
    ]
    wrong = OpClusterSetParams(osparams={"tiny": {"size": "x"}})
    _, (message, code) = failed(await master.run(wrong))
    assert code == "wrong_input"
    assert message.startswith("osparams.tiny: node node1.example.com: the script verify refuses")
    succeeded(await master.run(replace(wrong, force=True)))
    assert master.snapshot.cluster.osparams["tiny"] == {"size": "x"}


async def test_parameters_that_cannot_be_judged_need_force(master: Master) -> None:
    op = wish(osparams={"tiny": {"size": "9"}})
    del master.rpc.nodes["node1.example.com"]
    _, (message, code) = failed(await master.run(op))
    assert code == "environment_error"
    assert "--force stores them nevertheless" in message
    succeeded(await master.run(replace(op, force=True)))


async def test_hypervisor_parameters_of_an_os_reach_its_variants(master: Master) -> None:
    await changed(master, os_hvp={"tiny": {"kvm": {"acpi": False, "kernel_args": "a"}}})
    await changed(master, os_hvp={"tiny+b": {"kvm": {"kernel_args": "b"}}})
    cluster = master.snapshot.cluster
    found = {
        os: [cluster_hvparams(cluster, "kvm", os)[name] for name in ("acpi", "kernel_args")]
        for os in ("tiny", "tiny+a", "tiny+b", "tinyx")
    }
    assert found["tiny"] == found["tiny+a"] == [False, "a"]
    assert found["tiny+b"] == [False, "b"]
    assert found["tinyx"][0] is True
