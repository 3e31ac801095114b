"""Node groups: made, changed, filled with nodes, emptied; every wrong wish refused."""

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.fill import filled_beparams
from ganeti.config.transaction import Draft
from ganeti.model.objects import NodeGroup
from ganeti.model.opcodes.group import (
    OpGroupAdd,
    OpGroupAssignNodes,
    OpGroupEvacuate,
    OpGroupRemove,
    OpGroupRename,
    OpGroupSetParams,
    OpInstanceChangeGroup,
)
from ganeti.model.opcodes.instance_changes import OpInstanceSetParams
from ganeti.model.opcodes.moving import OpInstanceFailover, OpInstanceMove
from tests.support.units_cluster import (
    GROUP,
    NODES,
    Master,
    failed,
    node_name,
    said,
    succeeded,
)
from tests.unit.units.opcodes import NAME, create, migrate

pytestmark = pytest.mark.virtual_time

SMALL = {
    "minmax": [
        {
            "min": dict.fromkeys(
                ("memory-size", "cpu-count", "disk-count", "disk-size", "nic-count", "spindle-use"),
                0,
            ),
            "max": {
                "memory-size": 256,
                "cpu-count": 1,
                "disk-count": 1,
                "disk-size": 1024,
                "nic-count": 1,
                "spindle-use": 1,
            },
        }
    ],
    "std": {
        "memory-size": 128,
        "cpu-count": 1,
        "disk-count": 1,
        "disk-size": 1024,
        "nic-count": 1,
        "spindle-use": 1,
    },
}


def failover(**fields: Any) -> OpInstanceFailover:
    return OpInstanceFailover(instance_name=NAME, **fields)


def move(**fields: Any) -> OpInstanceMove:
    return OpInstanceMove(instance_name=NAME, **fields)


def group(master: Master, name: str) -> NodeGroup:
    found = master.snapshot.group_by_name(name)
    assert found is not None
    return found


async def two_groups(master: Master) -> None:
    """Node 3 is in a group of its own."""
    succeeded(await master.run(OpGroupAdd(group_name="other")))
    succeeded(await master.run(OpGroupAssignNodes(group_name="other", nodes=["node3"])))


async def test_a_group_is_made_filled_renamed_emptied_and_removed(master: Master) -> None:
    op = OpGroupAdd(group_name="rack2", alloc_policy="last_resort", ndparams={"spindle_count": "3"})
    succeeded(await master.run(op))
    made = group(master, "rack2")
    assert (made.alloc_policy, made.ndparams) == ("last_resort", {"spindle_count": 3})
    succeeded(await master.run(OpGroupAssignNodes(group_name="rack2", nodes=["node2", "node3"])))
    assert {master.snapshot.nodes[uuid].group for uuid in NODES[1:]} == {made.uuid}
    _, (text, code) = failed(await master.run(OpGroupRemove(group_name="rack2")))
    assert (code, "still has 2 nodes" in text) == ("wrong_state", True)
    assert succeeded(await master.run(OpGroupRename(group_name="rack2", new_name="r2"))) == "r2"
    succeeded(await master.run(OpGroupAssignNodes(group_name="default", nodes=["node2", "node3"])))
    succeeded(await master.run(OpGroupRemove(group_name="r2")))
    assert list(master.snapshot.groups) == [GROUP]


@pytest.mark.requirement("S235")
async def test_a_groups_policy_counts_before_the_clusters(master: Master) -> None:
    succeeded(await master.run(create()))
    view = await master.run(OpGroupSetParams(group_name="default", ipolicy=SMALL))
    assert succeeded(view)[0][0] == "ipolicy"
    assert f"after this change {NAME} will violate the policy" in said(view)
    _, (text, code) = failed(await master.run(create("web2.example.com")))
    assert code == "wrong_input"
    assert "violates the policy of group default: " in text
    succeeded(await master.run(create("web2.example.com", ignore_ipolicy=True)))
    again = {"minmax": None, "std": None}
    succeeded(await master.run(OpGroupSetParams(group_name="default", ipolicy=again)))
    assert group(master, "default").ipolicy == {}
    succeeded(await master.run(create("web3.example.com")))


@pytest.mark.requirement("S235")
async def test_a_group_without_a_standard_instance_of_its_own_may_exclude_the_clusters(
    master: Master,
) -> None:
    large = dict.fromkeys(SMALL["std"], 4096)
    bounds = {"minmax": [{"min": large, "max": large}]}
    succeeded(await master.run(OpGroupAdd(group_name="large", ipolicy=bounds)))
    _, (text, _) = failed(
        await master.run(OpGroupSetParams(group_name="large", ipolicy={"std": SMALL["std"]}))
    )
    assert "ipolicy.std: is outside all bounds" in text


async def test_a_change_keeps_what_it_does_not_name(master: Master) -> None:
    op = OpGroupSetParams(group_name="default", ndparams={"spindle_count": 4})
    succeeded(await master.run(op))
    op = OpGroupSetParams(group_name="default", alloc_policy="unallocable")
    assert succeeded(await master.run(op)) == [["alloc_policy", "unallocable"]]
    assert group(master, "default").ndparams == {"spindle_count": 4}
    op = OpGroupSetParams(group_name="default", ndparams={"spindle_count": "default"})
    succeeded(await master.run(op))
    assert group(master, "default").ndparams == {}


@pytest.mark.requirement("D13")
async def test_recovery_policy_of_a_group_holds_for_its_instances_only(master: Master) -> None:
    await two_groups(master)
    succeeded(await master.run(create()))
    succeeded(await master.run(create("web2.example.com", pnode=node_name(3))))
    own = {"recovery": "failover", "recovery_priority": "80"}
    view = await master.run(OpGroupSetParams(group_name="other", beparams=own))
    assert succeeded(view) == [["beparams", {"recovery": "failover", "recovery_priority": 80}]]

    def filled() -> dict[str, tuple[str, int]]:
        params = {
            one.name: filled_beparams(master.snapshot, one)
            for one in master.snapshot.instances.values()
        }
        return {name: (one["recovery"], one["recovery_priority"]) for name, one in params.items()}

    assert filled() == {NAME: ("none", 50), "web2.example.com": ("failover", 80)}
    op = OpInstanceSetParams(instance_name="web2.example.com", beparams={"recovery_priority": 90})
    succeeded(await master.run(op))
    assert filled()["web2.example.com"] == ("failover", 90)
    again = {"recovery": "default", "recovery_priority": None}
    succeeded(await master.run(OpGroupSetParams(group_name="other", beparams=again)))
    assert group(master, "other").beparams == {}
    assert filled()["web2.example.com"] == ("none", 90)


@pytest.mark.parametrize(
    ("op", "code", "text"),
    [
        (OpGroupAdd(group_name="a/b"), "wrong_input", "group_name"),
        (OpGroupAdd(group_name="default"), "already_exists", "group default exists already"),
        (OpGroupAdd(group_name="x", alloc_policy="never"), "wrong_input", "alloc_policy: must be"),
        (OpGroupAdd(group_name="x", ndparams={"y": 1}), "wrong_input", "ndparams.y"),
        (OpGroupAdd(group_name="x", beparams={"y": 1}), "wrong_input", "beparams.y"),
        (
            OpGroupAdd(group_name="x", beparams={"memory": 1}),
            "wrong_input",
            "beparams.memory: cannot be set for",
        ),
        (
            OpGroupAdd(group_name="x", beparams={"vcpus": 2}),
            "wrong_input",
            "beparams.vcpus: cannot be set for",
        ),
        (
            OpGroupAdd(group_name="x", beparams={"recovery": "x"}),
            "wrong_input",
            "beparams.recovery",
        ),
        (OpGroupAdd(group_name="x", ipolicy={"y": 1}), "wrong_input", "ipolicy.y"),
        (OpGroupAdd(group_name="x", hv_state={"y": 1}), "wrong_input", "hv_state"),
        (OpGroupRemove(group_name="default"), "wrong_state", "is the only group"),
        (OpGroupRemove(group_name="x"), "unknown_entity", "there is no group x"),
        (OpGroupRename(group_name="default", new_name="../x"), "wrong_input", "new_name"),
        (OpGroupRename(group_name="default", new_name="default"), "already_exists", "default"),
        (
            OpGroupSetParams(group_name="default"),
            "wrong_input",
            "nothing to change: pass at least one option",
        ),
        (OpGroupAssignNodes(group_name="default", nodes=[]), "wrong_input", "nodes: name at least"),
        (OpGroupAssignNodes(group_name="default", nodes=["x"]), "unknown_entity", "no node x"),
        (OpGroupEvacuate(group_name="default", iallocator="../x"), "wrong_input", "iallocator"),
        (OpGroupEvacuate(group_name="default"), "wrong_state", "no other node group exists"),
        (
            OpGroupEvacuate(group_name="default", target_groups=["default"]),
            "wrong_input",
            "evacuate",
        ),
    ],
    ids=str,
)
async def test_a_wrong_value_has_one_clear_error(
    master: Master, op: Any, code: str, text: str
) -> None:
    before = master.snapshot.groups
    name, (message, got) = failed(await master.run(op))
    assert (name, got) == ("OpPrereqError", code)
    assert text in message
    assert master.snapshot.groups == before


async def test_a_mirrored_instance_is_not_torn_apart_without_force(master: Master) -> None:
    succeeded(await master.run(create()))
    succeeded(await master.run(OpGroupAdd(group_name="other")))

    def mirror(draft: Draft) -> None:
        draft.put(replace(draft.instances[master.instance(NAME).uuid], secondary_nodes=(NODES[1],)))

    await master.change(mirror)
    op = OpGroupAssignNodes(group_name="other", nodes=["node2"])
    _, (text, code) = failed(await master.run(op))
    assert (code, NAME in text) == ("wrong_state", True)
    view = await master.run(replace(op, force=True))
    succeeded(view)
    assert "are now in different groups" in said(view)


@pytest.mark.requirement("S174", "S178", "S234")
async def test_an_instance_changes_its_group(master: Master) -> None:
    await two_groups(master)
    succeeded(await master.run(create()))
    op = OpInstanceChangeGroup(instance_name=NAME, iallocator="hail", target_groups=["other"])
    [[is_accepted, job_id]] = succeeded(await master.run(op))["jobs"]
    assert is_accepted
    succeeded(await master.final(job_id))
    assert master.instance(NAME).primary_node == NODES[2]
    master.check()


@pytest.mark.requirement("S234")
async def test_a_relocation_stays_in_its_group(master: Master) -> None:
    await two_groups(master)
    succeeded(await master.run(create()))
    master.world.node(2).memory = 100
    view = await master.run(migrate(target_node=None, iallocator="hail"))
    _, (text, code) = failed(view)
    assert code == "insufficient_resources", text
    assert master.instance(NAME).primary_node == NODES[0]


async def test_a_group_is_emptied_without_live_migration_if_that_is_asked_for(
    master: Master,
) -> None:
    await two_groups(master)
    succeeded(await master.run(create()))
    op = OpGroupEvacuate(group_name="default", iallocator="hail", force_failover=True)
    planned = succeeded(await master.run(replace(op, dry_run=True)))
    assert planned == [[f"INSTANCE_FAILOVER({NAME})"]]
    [[_accepted, job_id]] = succeeded(await master.run(op))["jobs"]
    succeeded(await master.final(job_id))
    assert master.instance(NAME).primary_node == NODES[2]
    master.check()


@pytest.mark.requirement("S174")
@pytest.mark.parametrize("sequential", [False, True])
async def test_a_group_is_emptied(master: Master, sequential: bool) -> None:
    await two_groups(master)
    names = ["web1.example.com", "web2.example.com"]
    for name in names:
        succeeded(await master.run(create(name)))
    op = OpGroupEvacuate(group_name="default", iallocator="hail", sequential=sequential)
    planned = succeeded(await master.run(replace(op, dry_run=True)))
    assert planned == [[f"INSTANCE_MIGRATE({name})"] for name in names]
    for _accepted, job_id in succeeded(await master.run(op))["jobs"]:
        succeeded(await master.final(job_id))
    assert {master.instance(name).primary_node for name in names} == {NODES[2]}
    assert succeeded(await master.run(op))["jobs"] == []
    master.check()


@pytest.mark.requirement("S235")
@pytest.mark.parametrize(
    ("kind", "template"), [(migrate, "sharedfile"), (failover, "sharedfile"), (move, "file")]
)
async def test_no_instance_goes_to_a_group_whose_policy_forbids_it(
    master: Master, kind: Any, template: str
) -> None:
    await two_groups(master)
    succeeded(await master.run(OpGroupSetParams(group_name="other", ipolicy=SMALL)))
    succeeded(await master.run(create(disk_template=template)))
    _, (text, code) = failed(await master.run(kind(target_node="node3")))
    assert code == "wrong_input"
    assert "violates the policy of group other: memory-size 512" in text
    view = await master.run(kind(target_node="node3", ignore_ipolicy=True))
    succeeded(view)
    assert "violates the policy of group other" in said(view)
    assert master.instance(NAME).primary_node == NODES[2]
    master.check()
