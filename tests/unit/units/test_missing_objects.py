"""Objects that a request names and that do not exist, beside jobs that may create them."""

import asyncio
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError, RpcUnknown
from ganeti.config.snapshot import Snapshot
from ganeti.model.fields import RefersTo
from ganeti.model.job import Submitter
from ganeti.model.objects import DetachedDisk, Disk, Instance
from ganeti.model.opcode_table import parse_opcode
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.model.opcodes.group import OpGroupAdd, OpGroupRename
from ganeti.model.opcodes.instance import OpInstanceRemove
from ganeti.model.opcodes.instance_system import OpInstanceReinstall
from ganeti.model.opcodes.network import OpNetworkAdd, OpNetworkRename
from ganeti.model.opcodes.node import OpNodeAdd, OpNodeRename
from ganeti.model.opcodes.placing import OpInstanceMultiAlloc
from ganeti.model.opcodes.test import OpTestDelay
from ganeti.model.reach import Reference
from ganeti.units.missing_objects import NodePrograms, check_objects
from tests.support.units_cluster import Master, World, succeeded
from tests.unit.query.cluster import INSTANCE_UUIDS, NODE_UUIDS, snapshot
from tests.unit.units.opcodes import create, migrate, modify

UNKNOWN_UUID = "00000000-0000-4000-8000-00000000dead"


class EveryProgram:
    async def lacks(self, snapshot: Snapshot, one: Reference) -> str:
        del snapshot, one
        return ""


async def refusal(
    op: OpCode | Sequence[OpCode], unended: Iterable[OpCode] = (), cluster: Snapshot | None = None
) -> str:
    """The text that refuses opcodes; '' if a job is made of them."""
    ops = [op] if isinstance(op, OpCode) else list(op)
    try:
        await check_objects(cluster or snapshot(), ops, lambda: unended, EveryProgram())
    except PrereqError as err:
        return err.message if err.code is ErrorCode.WRONG_INPUT else f"another code: {err.code}"
    return ""


def on_new(what: str) -> OpCode:
    """A request that needs an object that does not exist yet."""
    return {
        "node": create("web9", pnode="node9"),
        "whole node": create("web9", pnode="node9.example.com"),
        "group": parse_opcode({"OP_ID": "OP_INSTANCE_CHANGE_GROUP", "instance_name": "web1", "target_groups": ["new"]}),
        "network": create("web9", pnode="node1", nics=[NicRequest(network="new")]),
        "instance": migrate("web1", instance_uuid="web9"),
        "disk": modify("web1", disks=[["attach", {"name": "data"}]]),
    }[what]  # fmt: skip


CREATORS: list[tuple[str, OpCode]] = [
    ("node", OpNodeAdd(node_name="node9.example.com")),
    ("whole node", OpNodeAdd(node_name="node9")),
    ("node", OpNodeRename(node_name="node1", new_name="NODE9.example.com")),
    ("group", OpGroupAdd(group_name="new")),
    ("group", OpGroupRename(group_name="default", new_name="new")),
    ("network", OpNetworkAdd(network_name="new", network="192.0.2.0/24")),
    ("network", OpNetworkRename(network_name="old", new_name="new")),
    ("instance", create("web9.example.com", pnode="node1")),
    ("instance", OpInstanceMultiAlloc(instances=[create("web9.example.com", pnode=None)])),
    ("disk", create("web8", pnode="node1", disks=[DiskRequest(size=1, name="data")])),
    ("disk", modify("web2", disks=[["add", {"size": 1, "name": "data"}]])),
    ("disk", modify("web2", disks=[["modify", 0, {"name": "data"}]])),
]


@pytest.mark.parametrize(("what", "creator"), CREATORS)
async def test_object_of_a_job_that_has_not_ended_counts_as_existing(
    what: str, creator: OpCode
) -> None:
    assert await refusal(on_new(what)) != ""
    assert await refusal(on_new(what), [OpTestDelay(duration=1)]) != ""
    assert await refusal(on_new(what), [OpTestDelay(duration=1), creator]) == ""
    assert await refusal([creator, on_new(what)]) == ""


async def test_creation_of_another_object_does_not_help() -> None:
    others = [
        OpNodeAdd(node_name="node99.example.com"),
        OpGroupAdd(group_name="newer"),
        OpGroupAdd(group_name="node9"),
        OpInstanceRemove(instance_name="web9"),
    ]
    for what in ("node", "group", "network", "instance", "disk"):
        assert await refusal(on_new(what), others) != ""


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (create("new", pnode="node7"), "pnode: there is no node node7; did you mean"),
        (create("new", pnode=None, pnode_uuid=UNKNOWN_UUID), f"pnode_uuid: there is no node {UNKNOWN_UUID}"),
        (create("new", pnode="two words"), "pnode: node name"),
        (create("new", pnode="node1", nics=[NicRequest(), NicRequest(network="lan")]), "nics[1].network: there is no network lan"),
        (modify("web1", nics=[["modify", 0, {"network": "lan"}]]), "nics[0].network: there is no network lan"),
        (modify("web1", disks=[["attach", {"uuid": UNKNOWN_UUID}]]), "disks[0]: there is no disk"),
    ],
)  # fmt: skip
async def test_refusal_names_field_and_value(op: OpCode, text: str) -> None:
    assert text in await refusal(op)


@pytest.mark.parametrize(
    "op",
    [
        create("new", pnode="node1"),
        create("new", pnode=NODE_UUIDS[1].upper()),
        migrate("nosuch", target_node="node2"),  # named by the path
        OpInstanceRemove(instance_name="nosuch"),
        migrate("web1", instance_uuid=INSTANCE_UUIDS[0]),
        modify("web1", nics=[["add", {"network": "none"}]]),
        OpTestDelay(duration=1),
    ],
)
async def test_existing_objects_and_that_of_the_path_are_accepted(op: OpCode) -> None:
    assert await refusal(op) == ""


async def test_disk_that_is_detached_or_may_be_is_accepted() -> None:
    cluster = snapshot()
    disk = Disk(uuid="d", name="used", size=1, template="sharedfile")
    web2 = replace(cluster.instances[INSTANCE_UUIDS[1]], disks=(disk,))
    tables = dict(cluster.tables)
    tables[Instance] = {**cluster.instances, web2.uuid: web2}
    tables[DetachedDisk] = {"d1": DetachedDisk(uuid="d1", name="free", disk=disk)}
    cluster = dataclasses.replace(cluster, tables=tables)
    for key, text in (("name", "free"), ("uuid", "d1"), ("name", "used"), ("uuid", "d")):
        op = modify("web1", disks=[["attach", {key: text}]])
        assert await refusal(op, cluster=cluster) == "", text
    gone = modify("web1", disks=[["attach", {"name": "gone"}]])
    assert "no disk 'gone'" in await refusal(gone, cluster=cluster)


# --- OS definitions and allocators ---


def reference(kind: RefersTo, text: str) -> Reference:
    return Reference("field", kind, text)


async def lacks(master: Master, kind: RefersTo, text: str, *, has_built_in: bool = False) -> str:
    programs = NodePrograms(master.rpc, has_built_in=has_built_in)
    return await programs.lacks(master.snapshot, reference(kind, text))


async def test_os_of_the_masters_node_needs_no_other_node(master: Master) -> None:
    assert await lacks(master, RefersTo.OS, "tiny+small") == ""
    assert [node for _, node in asked(master)] == ["node1.example.com"]


def asked(master: Master) -> list[tuple[str, str]]:
    return [(one.procedure, one.node_name) for one in master.rpc.calls]


async def test_os_of_another_node_is_found(world: World, master: Master) -> None:
    world.node(3).oses["rare"] = "1"
    assert await lacks(master, RefersTo.OS, "rare") == ""
    assert "no node has an OS definition nosuch" in await lacks(master, RefersTo.OS, "nosuch")


async def test_os_is_left_to_the_job_while_a_node_is_silent(
    world: World, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = master.rpc.call_all

    async def silent(nodes: Iterable[Any], procedure: Any, args: Any) -> Any:
        found = await real(nodes, procedure, args)
        return {
            uuid: RpcUnknown("node3", "no answer") if uuid.endswith("b3") else answer
            for uuid, answer in found.items()
        }

    monkeypatch.setattr(master.rpc, "call_all", silent)
    assert await lacks(master, RefersTo.OS, "nosuch") == ""


@pytest.mark.virtual_time
async def test_os_is_left_to_the_job_if_nodes_are_slow(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(*_args: Any) -> Any:
        await asyncio.sleep(60)

    monkeypatch.setattr(master.rpc, "call_all", slow)
    assert await lacks(master, RefersTo.OS, "nosuch") == ""


async def test_os_that_is_only_recorded_is_not_looked_for() -> None:
    class NoProgram(EveryProgram):
        async def lacks(self, snapshot: Snapshot, one: Reference) -> str:
            return f"no {one.value}"

    async def is_refused(op: OpCode) -> bool:
        try:
            await check_objects(snapshot(), [op], list, NoProgram())
        except PrereqError:
            return True
        return False

    new = create("new", pnode="node1")
    assert await is_refused(new)
    assert not await is_refused(replace(new, no_install=True))
    assert await is_refused(OpInstanceReinstall(instance_name="web1", os_type="x"))
    assert await is_refused(modify("web1", os_name="x"))
    assert not await is_refused(modify("web1", os_name="x", force=True))
    placed = OpInstanceMultiAlloc(instances=[replace(new, pnode=None, no_install=True)])
    assert not await is_refused(placed)


async def test_allocator_of_the_masters_node(world: World, master: Master) -> None:
    world.node(1).allocators["mine"] = world.node(1).allocators.pop("hail")
    for text in ("mine", "nosuch,mine", ".", ""):
        assert await lacks(master, RefersTo.ALLOCATOR, text) == "", text
    assert "has no allocator nosuch" in await lacks(master, RefersTo.ALLOCATOR, "nosuch")
    assert "has no allocator hail" in await lacks(master, RefersTo.ALLOCATOR, "hail")
    assert await lacks(master, RefersTo.ALLOCATOR, "hail", has_built_in=True) == ""


# --- the queue ---


@pytest.mark.virtual_time
async def test_queue_lists_the_opcodes_of_unended_jobs_only(master: Master) -> None:
    succeeded(await master.run(OpTestDelay(duration=0.1)))
    first = await master.queue.submit([OpTestDelay(duration=60)])
    add = OpGroupAdd(group_name="new", depends=[(first, ["success"])])
    await master.queue.submit([add])
    await master.queue.submit([OpTestDelay(duration=60)], submitter=Submitter("eve"))
    assert kinds(master.queue.unended_ops()) == [OpGroupAdd, OpTestDelay, OpTestDelay]
    assert kinds(master.queue.unended_ops("eve")) == [OpTestDelay]
    assert kinds(master.queue.unended_ops("adam")) == []


def kinds(ops: Iterable[OpCode]) -> list[type[OpCode]]:
    return sorted(map(type, ops), key=str)
