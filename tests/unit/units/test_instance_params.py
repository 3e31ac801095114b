"""Changing the parameters of instances."""

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.opcodes.instance import OpInstanceQueryData, OpInstanceStartup
from ganeti.query.fields.job import shown_opcode
from ganeti.rpc.procedures.programs import OS_VALIDATE
from tests.support.units_cluster import Master, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, modify

pytestmark = pytest.mark.virtual_time


async def kvm(master: Master, **fields: Any) -> None:
    succeeded(await master.run(create(**{"start": False, "hypervisor": "kvm", **fields})))
    master.rpc.reset()


async def change(master: Master, **fields: Any) -> list[Any]:
    result = succeeded(await master.run(modify(**fields)))
    assert isinstance(result, list)
    return result


def own_hvparams(master: Master) -> dict[str, Any]:
    """Without the machine, which is pinned when an instance is made."""
    params = dict(master.instance(NAME).hvparams)
    del params["machine_version"]
    return params


async def test_parameters_are_set_in_their_types_and_taken_back(master: Master) -> None:
    await kvm(master)
    done = await change(
        master,
        beparams={"memory": "1g", "vcpus": 2},
        hvparams={"acpi": "false", "migration_downtime": "50"},
    )
    assert done == [
        ["be/memory", 1024], ["be/vcpus", 2], ["hv/acpi", False], ["hv/migration_downtime", 50],
    ]  # fmt: skip
    changed = master.instance(NAME)
    assert changed.beparams == {"minmem": 1024, "maxmem": 1024, "vcpus": 2}
    assert own_hvparams(master) == {"acpi": False, "migration_downtime": 50}
    done = await change(
        master,
        beparams={"memory": None, "vcpus": "default"},
        hvparams={"acpi": "default", "migration_downtime": None},
    )
    assert done == [
        ["be/memory", "default"], ["be/vcpus", "default"],
        ["hv/acpi", "default"], ["hv/migration_downtime", "default"],
    ]  # fmt: skip
    back = master.instance(NAME)
    assert (back.beparams, own_hvparams(master)) == ({}, {})


async def test_what_a_running_guest_gets_later_is_reported(master: Master) -> None:
    await kvm(master)
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    view = await master.run(
        modify(beparams={"vcpus": 2, "auto_balance": False}, hvparams={"disk_cache": "none"})
    )
    succeeded(view)
    later = [line for line in said(view).splitlines() if "at the next start" in line]
    assert [line.split()[2] for line in later] == ["be/vcpus", "hv/disk_cache"]


@pytest.mark.requirement("S83")
@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"beparams": {"nosuch": 1}}, "beparams.nosuch"),
        ({"beparams": {"nosuch": None}}, "beparams.nosuch"),
        ({"beparams": {"vcpus": 0}}, "beparams.vcpus"),
        ({"beparams": {"minmem": 600}}, "beparams"),
        ({"hvparams": {"nosuch": 1}}, "hvparams.nosuch"),
        ({"hvparams": {"nosuch": "default"}}, "hvparams.nosuch"),
        ({"hvparams": {"migration_port": 1}}, "hvparams.migration_port"),
        ({"hvparams": {"migration_port": "default"}}, "hvparams.migration_port"),
        ({"hvparams": {"kernel_path": "x"}}, "hvparams.kernel_path"),
        ({"os_name": "../x"}, "os_name"),
        ({"osparams": {"PATH": "x"}}, "osparams['PATH']"),
        ({"osparams_private": {"a": "b\nc"}}, "osparams_private.a"),
    ],
)
async def test_a_wrong_parameter_is_named(
    master: Master, fields: dict[str, Any], where: str
) -> None:
    await kvm(master)
    before = master.instance(NAME)
    name, (text, code) = failed(await master.run(modify(**fields)))
    assert (name, code) == ("OpPrereqError", "wrong_input")
    assert text.startswith(f"{where}: "), text
    assert master.instance(NAME) == before


async def test_the_node_is_asked_whether_it_could_run_that_unless_it_is_forced(
    master: Master,
) -> None:
    await kvm(master)
    master.world.node(1).wrong_hvparams = ["initrd_path: no such file"]
    op = modify(hvparams={"initrd_path": "/boot/i"})
    _, (text, code) = failed(await master.run(op))
    assert (code, "no such file" in text) == ("wrong_input", True)
    succeeded(await master.run(replace(op, force=True)))
    assert own_hvparams(master) == {"initrd_path": "/boot/i"}


@pytest.mark.requirement("S148", "S150")
async def test_another_os_keeps_the_parameters_and_they_come_and_go(master: Master) -> None:
    await kvm(master, osparams={"size": "big", "kind": "x"})
    master.world.node(1).oses["other"] = "1"
    done = await change(master, os_name="other+v", osparams={"kind": None, "new": "1"})
    assert done == [["os", "other+v"], ["os/kind", "default"], ["os/new", "1"]]
    assert master.instance(NAME).os == "other+v"
    assert master.instance(NAME).osparams == {"size": "big", "new": "1"}
    assert await change(master, remove_osparams=["new"]) == [["os/new", "default"]]
    _, (text, code) = failed(await master.run(modify(remove_osparams=["new"])))
    assert (code, "'new'" in text) == ("unknown_entity", True)
    assert await change(master, clear_osparams=True, osparams={"a": "b"}) == [
        ["os/size", "default"], ["os/a", "b"],
    ]  # fmt: skip
    _, (_, code) = failed(await master.run(modify(os_name="missing")))
    assert code == "wrong_input"
    await change(master, os_name="missing", force=True)
    assert master.instance(NAME).os == "missing"


async def test_removing_an_os_parameter_is_idempotent(master: Master) -> None:
    await kvm(master, osparams={"size": "big"})
    assert await change(master, osparams={"size": None}) == [["os/size", "default"]]
    assert await change(master, osparams={"size": None}) == []


@pytest.mark.requirement("S146", "S243")
async def test_job_shows_what_the_verify_script_prints(master: Master) -> None:
    for number in (1, 2, 3):
        master.world.node(number).verify_says = "the release is old"
    await kvm(master)
    job = await master.run(modify(osparams={"size": "small"}))
    succeeded(job)
    assert "verify script of OS tiny: the release is old" in said(job)


@pytest.mark.requirement("G23")
async def test_private_parameters_are_stored_with_the_instance_and_shown_nowhere(
    master: Master,
) -> None:
    await kvm(master, osparams_private={"key": "first-secret"})
    assert master.instance(NAME).osparams_private == {"key": "first-secret"}
    op = modify(osparams_private={"key": "correcthorse", "pw": "hunter2"})
    view = await master.run(op)
    assert succeeded(view) == [["os_private/key", "<redacted>"], ["os_private/pw", "<redacted>"]]
    assert master.instance(NAME).osparams_private == {"key": "correcthorse", "pw": "hunter2"}
    [asked] = [call for call in master.rpc.calls if call.procedure == OS_VALIDATE.name]
    assert asked.args.osparams == {"key": "correcthorse", "pw": "hunter2"}
    jobs = b"".join(
        row for (kind, _), row in master.world.disk.rows.items() if kind.startswith("job")
    )
    assert b"<redacted>" in jobs
    info = succeeded(await master.run(OpInstanceQueryData()))
    for text in (jobs.decode(), str(view), said(view), str(info), str(shown_opcode(op))):
        assert "correcthorse" not in text
        assert "hunter2" not in text
    await change(master, remove_osparams_private=["pw"])
    assert master.instance(NAME).osparams_private == {"key": "correcthorse"}
    await change(master, clear_osparams_private=True)
    assert master.instance(NAME).osparams_private == {}
