"""Everything is tracked by UUID; names are attributes (seed 000, S86-S93)."""

import msgspec
import pytest

from ganeti.config.resolve import resolve_instance, resolve_node
from ganeti.model import wire
from ganeti.model.opcode_table import OPCODES
from ganeti.model.opcodes.instance import OpInstanceQueryData, OpInstanceShutdown
from ganeti.model.opcodes.node import OpNodeRename, OpNodeSetParams
from ganeti.model.opcodes.tags import OpTagsGet
from ganeti.model.opcodes.test import OpTestDelay
from tests.support.units_cluster import CLUSTER, NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time


def rename(old: str, new: str) -> OpNodeRename:
    return OpNodeRename(node_name=old, new_name=new)


@pytest.mark.requirement("S88")
def test_no_request_changes_a_uuid() -> None:
    """`*_uuid` names an object; only joins and creations say what a new one is to be."""
    allowed = {"node_uuid", "pnode_uuid", "snode_uuid", "src_node_uuid", "target_node_uuid", "remote_node_uuid",
               "on_node_uuids", "instance_uuid", "nodes_uuids", "node_uuids"}  # fmt: skip
    found = {
        field
        for kind in OPCODES.values()
        for field in kind.__struct_fields__
        if "uuid" in field.split("_") or "uuids" in field.split("_")
    }
    assert found <= allowed


@pytest.mark.requirement("S88")
async def test_the_configuration_refuses_another_uuid_for_the_cluster(master: Master) -> None:
    other = msgspec.structs.replace(master.snapshot.cluster, uuid=NODES[0])
    with pytest.raises(Exception, match="its UUID never changes"):
        await master.change(lambda draft: draft.put(other))
    assert master.snapshot.cluster.uuid == CLUSTER


@pytest.mark.requirement("S90", "S93")
async def test_a_rename_touches_one_object_and_one_field(master: Master) -> None:
    succeeded(await master.run(create(pnode="node2")))
    before = {thing.uuid: wire.plain(thing) for thing in master.snapshot.objects()}
    succeeded(await master.run(rename("node2", "other.example.com")))
    after = {thing.uuid: wire.plain(thing) for thing in master.snapshot.objects()}
    assert {uuid for uuid in after if after[uuid] != before[uuid]} == {NODES[1]}
    fields = {name for name, value in after[NODES[1]].items() if value != before[NODES[1]][name]}
    assert fields == {"name", "serial_no", "mtime"}


@pytest.mark.requirement("S91")
async def test_short_new_name_of_a_node_is_completed_by_the_domain_of_the_cluster(
    master: Master,
) -> None:
    assert succeeded(await master.run(rename("node2", "other"))) == "other.example.com"
    assert master.node(2).name == "other.example.com"


@pytest.mark.requirement("S86")
async def test_creation_reports_the_uuid_of_the_instance(master: Master) -> None:
    job = await master.run(create())
    succeeded(job)
    assert f"the instance's UUID is {master.instance(NAME).uuid}" in said(job)


@pytest.mark.requirement("S93")
async def test_a_node_is_renamed_while_a_job_holds_its_instance_and_itself(
    master: Master,
) -> None:
    succeeded(await master.run(create(pnode="node2")))
    handlers = master.rpc.nodes["node2.example.com"]
    answer = handlers["instance_shutdown"]

    async def slow(args: object, call: object) -> object:
        master.rpc.nodes["other.example.com"] = handlers
        succeeded(await master.run(rename("node2", "other.example.com")))
        return await answer(args, call)  # type: ignore[arg-type] # as it was given

    handlers["instance_shutdown"] = slow
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    assert master.node(2).name == "other.example.com"
    found = succeeded(await master.run(OpInstanceQueryData(instances=[NAME], static=True)))
    assert found[NAME]["pnode"] == "other.example.com"


@pytest.mark.requirement("S93")
@pytest.mark.parametrize(
    ("new", "code"),
    [
        ("node3.example.com", "already_exists"),
        ("cluster.example.com", "already_exists"),
        ("node2.example.com", "wrong_input"),
        ("no_host", "wrong_input"),
        ("Upper.example.com", "wrong_input"),
    ],
)
async def test_a_name_that_is_taken_or_none_is_refused(master: Master, new: str, code: str) -> None:
    _, (text, got) = failed(await master.run(rename("node2", new)))
    assert got == code, text
    assert master.node(2).name == "node2.example.com"


@pytest.mark.requirement("S92")
async def test_the_master_stays_the_master_under_another_name(world: World, master: Master) -> None:
    succeeded(await master.run(rename("node1", "boss.example.com")))
    world.nodes["boss.example.com"] = world.nodes.pop("node1.example.com")
    after = await master.restart()
    assert after.snapshot.cluster.master_node == NODES[0]
    assert after.snapshot.nodes[NODES[0]].name == "boss.example.com"
    succeeded(await after.run(create(pnode="boss.example.com")))
    await after.end()


@pytest.mark.requirement("S91")
@pytest.mark.parametrize("text", [NODES[1], NODES[1].upper(), "node2.example.com", "node2"])
async def test_a_node_is_found_by_uuid_name_and_short_name(master: Master, text: str) -> None:
    assert resolve_node(master.snapshot, text).uuid == NODES[1]
    assert succeeded(await master.run(OpTagsGet(kind="node", name=text))) == []
    op = OpNodeSetParams(node_name=text, ndparams={"spindle_count": 2})
    succeeded(await master.run(op))
    assert master.node(2).ndparams == {"spindle_count": 2}
    succeeded(await master.run(OpTestDelay(duration=0, on_nodes=[text])))


@pytest.mark.requirement("S91")
async def test_an_instance_is_found_by_uuid_name_and_short_name(master: Master) -> None:
    succeeded(await master.run(create()))
    uuid = master.instance(NAME).uuid
    for text in (uuid, NAME, "web1"):
        assert resolve_instance(master.snapshot, text).uuid == uuid
        succeeded(await master.run(OpInstanceShutdown(instance_name=text)))


@pytest.mark.requirement("S91")
async def test_stored_names_have_a_dot(master: Master) -> None:
    succeeded(await master.run(create("short")))
    assert master.instance("short.example.com").name == "short.example.com"
    _, (text, code) = failed(await master.run(create("short.example.com")))
    assert (code, "exists already" in text) == ("already_exists", True)
    master.check()


@pytest.mark.requirement("S91")
async def test_a_short_name_needs_a_cluster_with_a_domain(master: Master) -> None:
    await master.change(
        lambda draft: draft.put(msgspec.structs.replace(draft.cluster, name="plain"))
    )
    _, (text, code) = failed(await master.run(create("short")))
    assert (code, "use the full name" in text) == ("resolver_error", True)


@pytest.mark.requirement("S86", "S87")
async def test_a_new_instance_has_a_uuid_of_its_own(master: Master) -> None:
    for name in ("web1.example.com", "web2.example.com"):
        succeeded(await master.run(create(name)))
    uuids = {one.uuid for one in master.snapshot.instances.values()}
    assert len(uuids) == 2
    found = succeeded(await master.run(OpInstanceQueryData(instances=[NAME], static=True)))
    assert found[NAME]["uuid"] in uuids
