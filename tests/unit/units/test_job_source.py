"""What remote users may not set: parameters that reach the host."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.jobs.view import JobView
from ganeti.model import wire
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.job import LOCAL_SOURCE, StoredJob, Submitter, is_remote, remote_source
from ganeti.model.opcode_table import OPCODES
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.model.opcodes.instance import OpInstanceCreate, OpInstanceStartup
from ganeti.model.opcodes.instance_changes import OpInstanceSetParams
from ganeti.model.opcodes.test import OpTestAllocator
from tests.support.units_cluster import Master, World, failed, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    """With kvm in place of the fake hypervisor."""
    one = await Master.begin(world)
    await one.change(lambda draft: draft.put(replace(draft.cluster, enabled_hypervisors=("kvm",))))
    yield one
    await one.end()


REMOTE = remote_source("web")
OF_HOST = [param for param in HYPERVISOR_PARAMS["kvm"].values() if param.touches_host]


async def run_as(master: Master, source: str, op: OpCode) -> JobView:
    return await master.final(await master.queue.submit([op], submitter=Submitter(source)))


def refused(view: JobView, field: str) -> None:
    name, (text, code) = failed(view)
    assert (name, code) == ("OpPrereqError", "wrong_input")
    assert text.startswith(f"{field}: ")
    assert "gnt-cluster modify --remote-hvparams=" in text


@pytest.mark.requirement("A44", "A45")
@pytest.mark.parametrize("param", OF_HOST, ids=lambda param: param.name)
async def test_a_remote_user_sets_no_parameter_that_reaches_the_host(
    master: Master, param: Any
) -> None:
    hvparams = {param.name: param.default}
    if not param.is_global:
        view = await run_as(master, REMOTE, replace(create(), hvparams=hvparams))
        refused(view, f"hvparams.{param.name}")
    of_cluster = OpClusterSetParams(hvparams={"kvm": hvparams})
    refused(await run_as(master, REMOTE, of_cluster), f"hvparams.kvm.{param.name}")
    of_os = OpClusterSetParams(os_hvp={"tiny": {"kvm": hvparams}})
    refused(await run_as(master, REMOTE, of_os), f"os_hvp.tiny.kvm.{param.name}")
    assert not master.snapshot.instances
    assert master.rpc.acts() == []


KERNEL = {"kernel_path": "/etc/shadow"}
WAYS: dict[type[OpCode], list[tuple[OpCode, str]]] = {
    OpInstanceCreate: [
        (
            replace(create(), instance_name="web2.example.com", hvparams=KERNEL),
            "hvparams.kernel_path",
        )
    ],
    OpInstanceStartup: [
        (OpInstanceStartup(instance_name=NAME, hvparams=KERNEL), "hvparams.kernel_path")
    ],
    OpInstanceSetParams: [
        (OpInstanceSetParams(instance_name=NAME, hvparams=KERNEL), "hvparams.kernel_path"),
        (
            OpInstanceSetParams(instance_name=NAME, hvparams={"security_model": None}),
            "hvparams.security_model",
        ),
    ],
    OpClusterSetParams: [
        (OpClusterSetParams(hvparams={"kvm": KERNEL}), "hvparams.kvm.kernel_path"),
        (
            OpClusterSetParams(os_hvp={"tiny": {"kvm": KERNEL}}),
            "os_hvp.tiny.kvm.kernel_path",
        ),
    ],
}
"""Every opcode through which a parameter of a hypervisor can be set, and a wish with each of its fields."""
SETS_NOTHING = {OpTestAllocator}


def test_every_opcode_with_hypervisor_parameters_is_in_the_table() -> None:
    names = {"hvparams", "os_hvp"}
    have = {one for one in OPCODES.values() if names & set(one.__struct_fields__)}
    assert have == set(WAYS) | SETS_NOTHING
    for kind, wishes in WAYS.items():
        used = {field.partition(".")[0] for _, field in wishes}
        assert used == names & set(kind.__struct_fields__), kind


@pytest.mark.requirement("A44", "A45")
@pytest.mark.parametrize(
    ("op", "field"),
    [pytest.param(*one, id=f"{kind.__name__}-{one[1]}") for kind, of in WAYS.items() for one in of],
)
async def test_no_opcode_lets_a_remote_user_reach_the_host(
    master: Master, op: OpCode, field: str
) -> None:
    succeeded(await master.run(create(start=False)))
    before, acts = master.snapshot, list(master.rpc.acts())
    refused(await run_as(master, REMOTE, op), field)
    assert master.snapshot.instances == before.instances
    assert master.snapshot.cluster == before.cluster
    assert list(master.rpc.acts()) == acts


@pytest.mark.requirement("A44", "A45")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("file_storage_dir", "/etc"),
        ("shared_file_storage_dir", "/root"),
        ("uid_pool", [(0, 10)]),
        ("add_uids", [(0, 10)]),
        ("remove_uids", [(1000, 1001)]),
        ("remote_hvparams", []),
    ],
)
async def test_directories_and_users_of_the_nodes_are_chosen_on_the_master_only(
    master: Master, field: str, value: Any
) -> None:
    before = master.snapshot.cluster
    view = await run_as(master, REMOTE, OpClusterSetParams(**{field: value}))
    name, (text, _) = failed(view)
    assert name == "OpPrereqError"
    assert text.startswith(f"{field} can be changed only on the master")
    assert master.snapshot.cluster == before


async def test_a_remote_user_sets_the_others_and_an_administrator_sets_all(master: Master) -> None:
    harmless = {"acpi": False, "kernel_args": "quiet", "vga": "std"}
    succeeded(await run_as(master, REMOTE, replace(create(), hvparams=harmless)))
    op = replace(create(), instance_name="web2.example.com", hvparams={"kvm_extra": "-S"})
    succeeded(await run_as(master, LOCAL_SOURCE, op))


@pytest.mark.requirement("A44")
async def test_a_remote_user_does_not_start_an_instance_with_a_parameter_of_the_host(
    master: Master,
) -> None:
    succeeded(await master.run(create(start=False)))
    op = OpInstanceStartup(instance_name=NAME, hvparams={"initrd_path": "/etc/shadow"})
    refused(await run_as(master, REMOTE, op), "hvparams.initrd_path")


@pytest.mark.requirement("A44")
async def test_a_policy_of_the_cluster_allows_single_parameters_and_only_the_master_changes_it(
    master: Master,
) -> None:
    policy = OpClusterSetParams(remote_hvparams=["kernel_path"])
    name, (text, _) = failed(await run_as(master, REMOTE, policy))
    assert name == "OpPrereqError"
    assert "not through the REST interface" in text
    succeeded(await run_as(master, LOCAL_SOURCE, policy))
    assert master.snapshot.cluster.remote_hvparams == ("kernel_path",)
    given = {"kernel_path": "/boot/vmlinuz"}
    succeeded(await run_as(master, REMOTE, replace(create(), hvparams=given)))
    other = replace(
        create(), instance_name="web2.example.com", hvparams={"initrd_path": "/boot/initrd"}
    )
    refused(await run_as(master, REMOTE, other), "hvparams.initrd_path")


async def test_a_policy_names_only_what_touches_the_host(master: Master) -> None:
    name, (text, _) = failed(await master.run(OpClusterSetParams(remote_hvparams=["acpi"])))
    assert name == "OpPrereqError"
    assert "is not a parameter that reaches the host" in text


async def test_a_job_shows_and_keeps_its_source(master: Master) -> None:
    view = await run_as(master, REMOTE, create(start=False))
    assert view.source == "rest:web"
    assert (await master.run(OpInstanceStartup(instance_name=NAME))).source == LOCAL_SOURCE


def test_a_job_stored_by_an_older_version_was_local_and_the_unknown_is_remote() -> None:
    old = b'{"id":1,"ops":[],"received":1.0}'
    assert not is_remote(wire.decode(old, StoredJob, what="job").source)
    assert is_remote("")
    assert is_remote(REMOTE)
