"""Hooks around operations: where they run, what they are told, and what becomes of what they say."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ganeti.base.errors import GanetiError, HooksAbort, HostError
from ganeti.cli.errors import format_error
from ganeti.config.snapshot import Snapshot
from ganeti.model.hooks import HOOKS, Phase
from ganeti.model.names import AdminState, JobStatus
from ganeti.model.objects import Disk, Instance, InstanceUuid, NodeUuid
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.cluster import (
    OpClusterDestroy,
    OpClusterPostInit,
    OpClusterSetParams,
    OpClusterVerifyGroup,
)
from ganeti.model.opcodes.group import (
    OpGroupAdd,
    OpGroupEvacuate,
    OpGroupRemove,
    OpGroupRename,
    OpGroupSetParams,
)
from ganeti.model.opcodes.instance import (
    OpInstanceReboot,
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.model.opcodes.instance_changes import OpInstanceGrowDisk
from ganeti.model.opcodes.instance_system import OpInstanceReinstall, OpInstanceRename
from ganeti.model.opcodes.moving import OpInstanceFailover, OpNodeMigrate
from ganeti.model.opcodes.network import (
    OpNetworkAdd,
    OpNetworkConnect,
    OpNetworkDisconnect,
    OpNetworkRemove,
    OpNetworkRename,
    OpNetworkSetParams,
)
from ganeti.model.opcodes.node import OpNodeRemove, OpNodeSetParams
from ganeti.model.opcodes.tags import OpTagsSet
from ganeti.model.opcodes.test import OpTestDelay
from ganeti.protocols.luxi import error_from_wire
from ganeti.rpc.hook_reports import HookReports
from ganeti.rpc.procedures.hooks import HookDirectory, HookResult, HooksArgs
from ganeti.units.hooks.environment import disk_location, instance_variables
from ganeti.units.hooks.listing import HookListing
from ganeti.units.hooks.results import SHOWN_LINES, shown
from ganeti.units.instance import access
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, migrate, modify
from tests.unit.units.test_node_units import add

pytestmark = pytest.mark.virtual_time

PRE, POST = Phase.PRE, Phase.POST
OTHER = "web2.example.com"
START = OpInstanceStartup(instance_name=NAME)
FAILS = [HookResult(script="10-check", problem="exit status 1", output="not on Fridays")]


def give_every_hook(world: World) -> None:
    for node in world.nodes.values():
        node.hooks = {(hook, phase): [] for hook in HOOKS for phase in Phase}


def ran(world: World) -> dict[str, list[str]]:
    """`instance-start-pre` -> the numbers of the nodes on which it ran; what ran is forgotten."""
    found: dict[str, list[str]] = {}
    for number in range(1, 5):
        for args in world.node(number).hooks_ran:
            found.setdefault(f"{args.hook}-{args.phase}", []).append(str(number))
        world.node(number).hooks_ran.clear()
    return found


def environments(world: World, number: int, hook: str) -> list[dict[str, str]]:
    return [args.environment for args in world.node(number).hooks_ran if args.hook == hook]


async def down(master: Master) -> None:
    succeeded(await master.run(create(start=False)))


async def test_a_pre_hook_that_fails_refuses_the_operation(master: Master, world: World) -> None:
    await down(master)
    master.rpc.reset()
    world.node(1).hooks = {("instance-start", PRE): FAILS, ("instance-start", POST): []}
    view = await master.run(START)
    assert failed(view) == (
        "HooksAbort",
        [[["node1.example.com", "10-check", "not on Fridays"]]],
    )
    assert master.rpc.acts() == ["hooks_run"]
    assert master.instance(NAME).admin_state is AdminState.DOWN
    err = error_from_wire(view.ops[-1].result)
    assert isinstance(err, HooksAbort)
    assert format_error(err) == (
        "Failure: hooks execution failed:\n"
        "  node: node1.example.com, script: 10-check, output: not on Fridays"
    )
    master.check()


async def test_a_node_that_cannot_be_reached_does_not_refuse(master: Master, world: World) -> None:
    await down(master)
    succeeded(await master.run(migrate(allow_failover=True)))
    give_every_hook(world)
    del master.rpc.nodes["node1.example.com"]  # the master's own: the guest's is node2
    view = await master.run(START)
    succeeded(view)
    assert "hooks were not run on node1.example.com: cannot be reached" in said(view)
    assert said(view).count("hooks were not run") == 1
    assert ran(world)["instance-start-post"] == ["2"]


async def test_a_node_that_does_not_trust_its_hooks_refuses(master: Master, world: World) -> None:
    await down(master)

    def untrusted(_args: HooksArgs) -> list[HookResult]:
        raise HostError("/etc/ganeti/hooks/instance-start-pre.d cannot be trusted")

    world.node(1).hooks = {("instance-start", PRE): untrusted}
    name, [[[node, _script, why]]] = failed(await master.run(START))
    assert (name, node) == ("HooksAbort", "node1.example.com")
    assert "cannot be trusted" in why


async def test_post_hooks_see_what_has_become_of_the_operation(
    master: Master, world: World
) -> None:
    await down(master)
    seen: list[str] = []

    def look(_args: HooksArgs) -> list[HookResult]:
        seen.append(str(master.instance(NAME).admin_state))
        return []

    world.node(1).hooks = {("instance-start", PRE): look, ("instance-start", POST): look}
    succeeded(await master.run(START))
    assert seen == ["down", "up"]
    before, after = environments(world, 1, "instance-start")
    assert before["GANETI_INSTANCE_STATUS"] == "down"
    assert (after["GANETI_INSTANCE_STATUS"], after["GANETI_POST_INSTANCE_STATUS"]) == ("down", "up")
    assert not any(name.startswith("GANETI_POST_") for name in before)


async def test_what_an_environment_holds(master: Master, world: World) -> None:
    await down(master)
    succeeded(await master.run(OpTagsSet(kind="instance", name=NAME, tags=["a:b*", "c"])))
    give_every_hook(world)
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME, force=True)))
    [environment, _] = environments(world, 1, "instance-start")
    instance = master.instance(NAME)
    expected = {
        "HOOKS_VERSION": "2",
        "HOOKS_PHASE": "pre",
        "HOOKS_PATH": "instance-start",
        "CLUSTER": master.snapshot.cluster.name,
        "MASTER": "node1.example.com",
        "OP_CODE": "OP_INSTANCE_STARTUP",
        "OBJECT_TYPE": "INSTANCE",
        "OP_TARGET": NAME,
        "FORCE": "True",
        "INSTANCE_NAME": NAME,
        "INSTANCE_PRIMARY": "node1.example.com",
        "INSTANCE_SECONDARIES": "",
        "INSTANCE_OS_TYPE": "tiny",
        "INSTANCE_MEMORY": "512",
        "INSTANCE_MINMEM": "512",
        "INSTANCE_VCPUS": "1",
        "INSTANCE_DISK_TEMPLATE": "sharedfile",
        "INSTANCE_DISK_COUNT": "2",
        "INSTANCE_DISK_SIZES": "512,256",
        "INSTANCE_DISK0_SIZE": "512",
        "INSTANCE_DISK1_MODE": "rw",
        "INSTANCE_NIC_COUNT": "1",
        "INSTANCE_NIC0_MAC": instance.nics[0].mac,
        "INSTANCE_NIC0_IP": "",
        "INSTANCE_NIC0_MODE": "bridged",
        "INSTANCE_BE_vcpus": "1",
        "INSTANCE_HYPERVISOR": instance.hypervisor,
    }
    assert {name: environment["GANETI_" + name] for name in expected} == expected
    assert sorted(environment["GANETI_INSTANCE_TAGS"].split()) == ["a:b*", "c"]
    assert environment["GANETI_INSTANCE_NIC0_BRIDGE"] == environment["GANETI_INSTANCE_NIC0_LINK"]


async def test_the_job_logs_output_of_post_hooks_and_continues(
    master: Master, world: World
) -> None:
    await down(master)
    world.node(1).hooks = {
        ("instance-start", POST): [
            HookResult(script="10-tell", output="told the monitoring"),
            HookResult(script="20-log", problem="exit status 2", output="disk full"),
            HookResult(script="30-silent"),
        ]
    }
    view = await master.run(START)
    succeeded(view)
    text = said(view)
    assert " - INFO: hook 10-tell on node1.example.com: told the monitoring" in text
    assert " - WARNING: hook 20-log on node1.example.com failed (exit status 2): disk full" in text
    assert "30-silent" not in text
    master.check()


def test_of_much_output_the_job_keeps_the_beginning() -> None:
    text = shown("\n".join("x" * 1000 for _ in range(100)))
    assert text.endswith("[80 more lines]")
    assert len(text) < SHOWN_LINES * 210 + 20


async def test_a_dry_run_runs_no_hooks(master: Master, world: World) -> None:
    give_every_hook(world)
    succeeded(await master.run(create(dry_run=True)))
    assert ran(world) == {}


async def test_job_that_calls_its_nodes_asks_none_of_them_for_hooks(
    master: Master, world: World
) -> None:
    """Yet it runs a hook that was installed after the job before it."""
    await down(master)
    master.rpc.reset()
    succeeded(await master.run(START))
    procedures = [call.procedure for call in master.rpc.calls]
    assert not {"hooks_list", "hooks_run"} & set(procedures)
    world.node(1).hooks = {("instance-stop", PRE): [HookResult(script="10-check")]}
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    assert ran(world) == {"instance-stop-pre": ["1"]}


async def test_what_changes_nothing_calls_no_node(master: Master) -> None:
    succeeded(await master.run(OpTestDelay(duration=0.0)))
    assert master.rpc.calls == []


async def test_those_who_ask_at_the_same_time_share_a_question(master: Master) -> None:
    listing = HookListing(master.services.shared)
    first = asyncio.create_task(listing.of_all([master.node(1)], master.node(1).uuid, 0))
    await asyncio.sleep(0)
    rest = [
        asyncio.create_task(listing.of_all([master.node(1)], master.node(1).uuid, 0))
        for _ in range(100)
    ]
    await asyncio.gather(first, *rest)
    assert len([call for call in master.rpc.calls if call.procedure == "hooks_list"]) <= 2


async def test_the_master_reads_its_own_node_without_a_call(master: Master) -> None:
    node = master.node(1)

    def blind() -> list[HookDirectory]:
        raise HostError("closed")

    has = [HookDirectory(hook="node-add", phase=PRE)]
    listing = HookListing(master.services.shared, lambda: has)
    master.rpc.reset()
    assert await listing.of_all([node], node.uuid, 0) == {node.uuid: frozenset({("node-add", PRE)})}
    assert master.rpc.calls == []
    listing = HookListing(master.services.shared, blind)
    assert await listing.of_all([node], node.uuid, 0) == {node.uuid: frozenset()}
    assert [call.procedure for call in master.rpc.calls] == ["hooks_list"]


async def test_report_of_later_call_replaces_question(master: Master) -> None:
    node = master.node(1)
    reports = HookReports()
    listing = HookListing(master.services.shared, reports=reports)
    master.rpc.reset()
    reports.add(node.uuid, 10, "node-add-pre instance-stop-post")
    listed = await listing.of_all([node], NodeUuid(""), begun=10)
    assert listed == {node.uuid: frozenset({("node-add", PRE), ("instance-stop", POST)})}
    assert master.rpc.calls == []


@pytest.mark.parametrize("called_at", [9, None])
async def test_node_without_report_since_the_beginning_is_asked(
    master: Master, called_at: int | None
) -> None:
    """A program that was installed before the operation began may be missing in an earlier report."""
    node, reports = master.node(1), HookReports()
    listing = HookListing(master.services.shared, reports=reports)
    if called_at is not None:
        reports.add(node.uuid, called_at, "node-add-pre")
    master.rpc.reset()
    assert await listing.of_all([node], NodeUuid(""), begun=10) == {node.uuid: frozenset()}
    assert [call.procedure for call in master.rpc.calls] == ["hooks_list"]


async def test_older_report_does_not_replace_a_newer_one(master: Master) -> None:
    """The answer to a long call arrives after that to a later call."""
    node, reports = master.node(1), HookReports()
    reports.add(node.uuid, 10, "node-add-pre")
    reports.add(node.uuid, 5, "")
    assert reports.since(node.uuid, 7) == [HookDirectory(hook="node-add", phase=PRE)]


async def test_the_master_is_notified_of_every_change(master: Master, world: World) -> None:
    give_every_hook(world)
    succeeded(await master.run(OpTagsSet(kind="cluster", name="", tags=["new"])))
    assert ran(world) == {"config-update-post": ["1"]}
    succeeded(await master.run(OpTestDelay(duration=0.0)))
    assert ran(world) == {}


async def test_a_change_that_was_made_for_post_hooks_stays_when_the_master_dies(
    master: Master, world: World
) -> None:
    await down(master)
    succeeded(await master.run(START))
    world.node(1).hooks = {("instance-stop", POST): []}
    master.rpc.reset()
    master.die_at_act(2, is_done=False)  # the first is the shutdown, the second the hook
    job_id = await master.submit(OpInstanceShutdown(instance_name=NAME))
    assert await master.is_dead_after_a_while()
    following = await master.restart()
    try:
        assert (await following.final(job_id)).status is JobStatus.ERROR
        assert following.instance(NAME).admin_state is AdminState.DOWN
        following.check()
    finally:
        await following.end()


async def test_hooks_on_a_node_that_goes_run_before_it_goes(master: Master, world: World) -> None:
    world.node(3).hooks = {("node-remove", POST): [HookResult(script="bye", output="bye")]}
    view = await master.run(OpNodeRemove(node_name="node3"))
    succeeded(view)
    assert "hook bye on node3.example.com: bye" in said(view)
    procedures = [one.procedure for one in master.rpc.calls if one.node_name == "node3.example.com"]
    assert procedures.index("hooks_run") < procedures.index("leave_cluster")


@pytest.mark.parametrize("ignored", [False, True])
async def test_verify_has_the_findings_of_its_hooks(
    master: Master, world: World, ignored: bool
) -> None:
    await master.run(OpTagsSet(kind="node", name="node2", tags=["rack:1"]))
    op = OpClusterVerifyGroup(
        group_name="default",
        error_codes=True,
        skip_checks=["nplusone_mem"],
        ignore_errors=["ENODEHOOKS"] if ignored else [],
    )
    before = succeeded(await master.run(op))
    world.node(2).hooks = {("cluster-verify", POST): FAILS}
    view = await master.run(op)
    assert succeeded(view) is (before and ignored)
    assert "* Hooks Results" in said(view)
    level = "WARNING" if ignored else "ERROR"
    text = "hook 10-check on node2.example.com failed (exit status 1): not on Fridays"
    assert f"  - {level}:ENODEHOOKS:node:node2.example.com:{text}" in said(view)
    [environment] = environments(world, 2, "cluster-verify")
    assert environment["GANETI_NODE_TAGS_node2.example.com"] == "rack:1"


EVERYWHERE = ["1", "2", "3"]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("op", "hook", "pre", "post"),
    [
        (START, "instance-start", ["1"], ["1"]),
        (OpInstanceShutdown(instance_name=NAME), "instance-stop", ["1"], ["1"]),
        (OpInstanceReboot(instance_name=NAME), "instance-reboot", ["1"], ["1"]),
        (OpInstanceRemove(instance_name=NAME), "instance-remove", ["1"], ["1"]),
        (create("web2.example.com", pnode="node2"), "instance-add", ["1", "2"], ["1", "2"]),
        (modify(beparams={"vcpus": 2}), "instance-modify", ["1"], ["1"]),
        (
            OpInstanceRename(instance_name=NAME, new_name="new.example.com"),
            "instance-rename",
            ["1"],
            ["1"],
        ),
        (OpInstanceReinstall(instance_name=NAME), "instance-reinstall", ["1"], ["1"]),
        (OpInstanceGrowDisk(instance_name=NAME, disk=0, amount=64), "disk-grow", ["1"], ["1"]),
        (
            OpInstanceFailover(instance_name=NAME, target_node="node2"),
            "instance-failover",
            ["1", "2"],
            ["1", "2"],
        ),
        (migrate(allow_failover=True), "instance-migrate", ["1", "2"], ["1", "2"]),
        (OpNodeMigrate(node_name="node1", target_node="node2"), "node-migrate", ["1"], ["1"]),
        (add(), "node-add", EVERYWHERE, [*EVERYWHERE, "4"]),
        (OpNodeRemove(node_name="node3"), "node-remove", ["1", "2"], EVERYWHERE),
        (
            OpNodeSetParams(node_name="node3", drained=True),
            "node-modify",
            ["1", "3"],
            ["1", "3"],
        ),
        (OpGroupAdd(group_name="other"), "group-add", ["1"], ["1"]),
        (
            OpGroupSetParams(group_name="empty", alloc_policy="last_resort"),
            "group-modify",
            ["1"],
            ["1"],
        ),
        (OpGroupRemove(group_name="empty"), "group-remove", ["1"], ["1"]),
        (
            OpGroupRename(group_name="default", new_name="first"),
            "group-rename",
            EVERYWHERE,
            EVERYWHERE,
        ),
        (
            OpGroupEvacuate(group_name="empty", target_groups=["default"]),
            "group-evacuate",
            ["1"],
            ["1"],
        ),
        (OpNetworkAdd(network_name="lan", network="192.0.2.0/24"), "network-add", ["1"], ["1"]),
        (
            OpNetworkSetParams(network_name="net", gateway="198.51.100.1"),
            "network-modify",
            ["1"],
            ["1"],
        ),
        (OpNetworkRename(network_name="net", new_name="new"), "network-rename", ["1"], ["1"]),
        (OpNetworkRemove(network_name="net"), "network-remove", ["1"], ["1"]),
        (
            OpNetworkConnect(
                network_name="net",
                group_name="default",
                network_mode="bridged",
                network_link="br0",
            ),
            "network-connect",
            EVERYWHERE,
            EVERYWHERE,
        ),
        (
            OpNetworkDisconnect(network_name="net", group_name="default"),
            "network-disconnect",
            EVERYWHERE,
            EVERYWHERE,
        ),
        (OpClusterPostInit(), "cluster-init", [], ["1"]),
        (OpClusterSetParams(candidate_pool_size=1), "cluster-modify", ["1"], ["1"]),
        (OpClusterVerifyGroup(group_name="default"), "cluster-verify", [], EVERYWHERE),
    ],
    ids=lambda value: value.op_id() if isinstance(value, OpCode) else None,
)
async def test_where_hooks_run(
    master: Master, world: World, op: OpCode, hook: str, pre: list[str], post: list[str]
) -> None:
    await down(master)
    succeeded(await master.run(OpGroupAdd(group_name="empty")))
    succeeded(await master.run(OpNetworkAdd(network_name="net", network="198.51.100.0/24")))
    give_every_hook(world)
    succeeded(await master.run(op))
    found = ran(world)
    assert (found.get(f"{hook}-pre", []), found.get(f"{hook}-post", [])) == (pre, post)


async def test_hooks_run_when_a_cluster_is_destroyed(master: Master, world: World) -> None:
    for number in (2, 3):
        succeeded(await master.run(OpNodeRemove(node_name=f"node{number}")))
    give_every_hook(world)
    succeeded(await master.run(OpClusterDestroy()))
    assert ran(world) == {"cluster-destroy-post": ["1"]}


def test_errors_of_hooks_that_are_none_are_shown_all_the_same() -> None:
    for broken in (["HooksAbort", ["text"]], ["HooksAbort", [[["a"]]]], ["HooksAbort", []]):
        err: Any = error_from_wire(broken)
        assert isinstance(err, GanetiError)
        assert not isinstance(err, HooksAbort)


def test_every_hook_of_the_interface_is_known() -> None:
    count: Callable[[str], int] = lambda kind: sum(one == kind for one in HOOKS.values())  # noqa: E731
    assert {kind: count(kind) for kind in ("NODE", "GROUP", "NETWORK", "INSTANCE", "CLUSTER")} == {
        "NODE": 4,
        "GROUP": 5,
        "NETWORK": 6,
        "INSTANCE": 18,
        "CLUSTER": 8,
    }
    assert NODES


@pytest.mark.parametrize(
    ("op", "hook"),
    [
        (OpInstanceFailover(instance_name=OTHER, target_node="node3"), "instance-failover"),
        (OpInstanceRemove(instance_name=OTHER), "instance-remove"),
    ],
)
async def test_a_primary_node_that_may_be_dead_runs_no_pre_hooks(
    master: Master, world: World, op: OpCode, hook: str
) -> None:
    succeeded(await master.run(create(OTHER, pnode="node2", start=False)))
    give_every_hook(world)
    succeeded(await master.run(op))
    found = ran(world)
    assert "2" not in found[f"{hook}-pre"]
    assert "2" in found[f"{hook}-post"]


async def test_pre_hooks_of_a_change_see_what_is_requested(master: Master, world: World) -> None:
    await down(master)
    give_every_hook(world)
    change = modify(
        beparams={"maxmem": 640, "minmem": 600, "vcpus": 3},
        nics=[["add", {}], ["modify", 0, {"name": "lan"}]],
    )
    succeeded(await master.run(change))
    pre, post = environments(world, 1, "instance-modify")
    requested = {
        "INSTANCE_MAXMEM": "640",
        "INSTANCE_MEMORY": "640",
        "INSTANCE_MINMEM": "600",
        "INSTANCE_VCPUS": "3",
        "INSTANCE_NIC_COUNT": "2",
        "INSTANCE_NIC0_NAME": "lan",
    }
    for prefix, environment in (("", pre), ("", post), ("POST_", post)):
        assert {name: environment[f"GANETI_{prefix}{name}"] for name in requested} == requested
    # As upstream has it, these are what they were.
    assert (pre["GANETI_INSTANCE_BE_vcpus"], post["GANETI_POST_INSTANCE_BE_vcpus"]) == ("1", "3")


async def test_hooks_see_another_template_and_memory_that_a_change_asks_for(
    master: Master, world: World
) -> None:
    await down(master)
    give_every_hook(world)
    succeeded(await master.run(modify(disk_template="file")))
    [pre, _] = environments(world, 1, "instance-modify")
    assert pre["GANETI_NEW_DISK_TEMPLATE"] == "file"
    assert "GANETI_RUNTIME_MEMORY" not in pre


def test_hooks_see_where_a_disk_is_by_the_names_of_upstream() -> None:
    node, other = NodeUuid("n1"), NodeUuid("n2")
    children = tuple(
        Disk(uuid=f"c{number}", size=1, template="plain", parts={node: ("vg", f"lv{number}")})
        for number in (0, 1)
    )
    disks = {
        ("VG", "vg0"): Disk(uuid="d", size=1, template="plain", logical_id=("vg0", "x")),
        ("DRIVER", "loop"): Disk(uuid="d", size=1, template="file", logical_id=("loop", "x")),
        ("PROVIDER", "san"): Disk(uuid="d", size=1, template="ext", logical_id=("san", "x")),
    }
    instance = Instance(uuid=InstanceUuid("i"), name=NAME, primary_node=node, hypervisor="fake")
    for (name, value), disk in disks.items():
        found = disk_location(instance, disk)
        assert found == {name: value, "ID": "x"}
    mirror = Disk(
        uuid="d", size=1, template="drbd", logical_id=(11000,), children=children,
        parts={other: (4,), node: (3,)},
    )  # fmt: skip
    assert disk_location(instance, mirror) == {
        "PNODE": "n1",
        "SNODE": "n2",
        "PORT": "11000",
        "PMINOR": "3",
        "SMINOR": "4",
        "DATA_VG": "vg",
        "DATA_ID": "lv0",
        "META_VG": "vg",
        "META_ID": "lv1",
    }


async def test_roles_of_a_node_are_as_they_are_requested(master: Master, world: World) -> None:
    give_every_hook(world)
    succeeded(await master.run(OpNodeSetParams(node_name="node3", drained=True)))
    [pre, _] = environments(world, 1, "node-modify")
    roles = ("MASTER_CANDIDATE", "OFFLINE", "DRAINED", "MASTER_CAPABLE", "VM_CAPABLE")
    assert [pre[f"GANETI_{name}"] for name in roles] == ["None", "None", "True", "None", "None"]


async def test_the_hook_of_every_change_sees_what_was_changed(master: Master, world: World) -> None:
    await down(master)
    give_every_hook(world)
    succeeded(await master.run(START))
    [seen] = environments(world, 1, "config-update")
    assert seen["GANETI_INSTANCE_NAME"] == NAME
    assert seen["GANETI_OBJECT_TYPE"] == "INSTANCE"
    assert seen["GANETI_HOOKS_PATH"] == "config-update"
    assert not [name for name in seen if name.startswith("GANETI_POST_")]


async def test_a_connection_is_shown_to_hooks_as_it_is_requested(
    master: Master, world: World
) -> None:
    succeeded(await master.run(OpNetworkAdd(network_name="net", network="198.51.100.0/24")))
    give_every_hook(world)
    connect = OpNetworkConnect(
        network_name="net", group_name="default", network_mode="routed", network_link="100"
    )
    succeeded(await master.run(connect))
    [pre, _] = environments(world, 1, "network-connect")
    assert (pre["GANETI_GROUP_NETWORK_MODE"], pre["GANETI_GROUP_NETWORK_LINK"]) == ("routed", "100")


async def test_variables_of_an_instance_are_made_only_for_nodes_with_hooks(
    master: Master, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def counted(snapshot: Snapshot, one: Instance, requested: Instance | None) -> dict[str, str]:
        made.append(one.name)
        return instance_variables(snapshot, one, requested)

    monkeypatch.setattr(access, "instance_variables", counted)
    succeeded(await master.run(create()))
    made.clear()
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    assert made == []
    give_every_hook(world)
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    assert made
