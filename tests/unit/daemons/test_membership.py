"""What the store's members should be after the configuration, one step at a time (R3)."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganeti.base.errors import RpcError
from ganeti.base.paths import Paths
from ganeti.confd.keys import KEY_NAME, keep_key
from ganeti.config.config import Config
from ganeti.config.transaction import Draft
from ganeti.daemons.candidate_resources import CandidateResources
from ganeti.daemons.candidates import NodeDirectory
from ganeti.daemons.membership import (
    LOOK_S,
    NAMED_S,
    SETTLE_S,
    MembershipKeeper,
    next_change,
    wanted_members,
)
from ganeti.model.objects import Cluster, GroupUuid, Node, NodeUuid
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.mastership import CANDIDATE_START, CANDIDATE_STOP
from ganeti.simulation.counting_ids import CountingIds
from ganeti.simulation.faulty_store import FaultyStore, MemoryDisk
from ganeti.simulation.virtual_time import LoopClock
from ganeti.store.backends import CandidateState, StateServers
from ganeti.store.interface import Identity, MemberChange, Membership
from tests.support.fake_rpc import FakeRpc, Fault
from tests.unit.config.sample import NODES, sample_cluster, sample_group, sample_node, store_with

A, B, C = (NodeUuid(name) for name in "abc")


class Shown:
    """As much of a snapshot as is looked at."""

    def __init__(self, **nodes: tuple[bool, bool]) -> None:
        self.cluster = Cluster(uuid="cluster", name="c", master_node=A)
        self.nodes = {
            name: Node(
                uuid=NodeUuid(name),
                name=name,
                primary_ip="192.0.2.1",
                secondary_ip="192.0.2.1",
                group=GroupUuid("g"),
                certificate="",
                master_candidate=candidate,
                offline=offline,
            )
            for name, (candidate, offline) in nodes.items()
        }


def members(voters: set[NodeUuid], candidates: set[NodeUuid]) -> Membership:
    return Membership(A, 1, frozenset(voters), frozenset(candidates), frozenset((A,)), False, 0)


def test_offline_nodes_neither_vote_nor_hold_the_state() -> None:
    shown = Shown(a=(True, False), b=(True, True), c=(True, False), d=(True, False))
    wanted = wanted_members(shown)  # type: ignore[arg-type] # as much as is looked at
    assert wanted == (frozenset((A, C, "d")), frozenset((A, C, "d")))


@pytest.mark.requirement("A26", "G17")
@pytest.mark.parametrize(
    ("nodes", "voters"),
    [
        ({"a": True, "b": True, "c": True, "d": False, "e": False}, {"a", "b", "c"}),
        ({"a": True, "b": True, "c": False, "d": False}, {"a", "b", "d"}),
        ({"a": True, "b": True}, {"a", "b"}),
        ({"a": True, "b": False, "c": False, "d": False}, {"a"}),
    ],
)
def test_candidates_vote_and_a_third_node_where_there_are_two(
    nodes: dict[str, bool], voters: set[str]
) -> None:
    shown = Shown(**{name: (is_candidate, False) for name, is_candidate in nodes.items()})
    if "d" in nodes:  # no guests run there: the witness
        shown.nodes["d"] = msgspec.structs.replace(shown.nodes["d"], vm_capable=False)
    found, _ = wanted_members(shown)  # type: ignore[arg-type] # as much as is looked at
    assert found == voters


def test_steps_lead_to_what_is_wanted_and_end() -> None:
    shown = Shown(a=(True, False), b=(True, False))
    now = members({A, C}, {A, C})
    steps = []
    while (step := next_change(shown, now)) is not None:  # type: ignore[arg-type] # as much as is looked at
        steps.append(step)
        node = frozenset((step.node_uuid,))
        now = replace(
            now,
            voters=now.voters | node if step.is_voter else now.voters - node,
            candidates=now.candidates | node if step.is_candidate else now.candidates - node,
        )
    assert steps == [
        MemberChange(B, is_voter=True, is_candidate=True),
        MemberChange(C, is_voter=False, is_candidate=False),
    ]


Settle = Callable[[float], Awaitable[list[str]]]


class Kept:
    """A cluster of three nodes, of which the second becomes a candidate."""

    def __init__(
        self, config: Config, store: FaultyStore, keeper: MembershipKeeper, rpc: FakeRpc
    ) -> None:
        self.config, self.store, self.keeper, self.rpc = config, store, keeper, rpc

    async def becomes(self, **fields: Any) -> None:
        def change(draft: Draft) -> None:
            draft.put(sample_node(2, **fields))

        await self.config.change(change)

    async def candidates(self) -> frozenset[NodeUuid]:
        return (await self.store.members()).candidates & frozenset(NODES)


class Servers(StateServers):
    """Of which the first may have lost what it had."""

    looks = 0
    has_lost = False

    async def lost(self, nodes: Iterable[Node]) -> frozenset[NodeUuid]:
        self.looks += 1
        assert [node.uuid for node in nodes] == [NODES[0]]
        has_lost, self.has_lost = self.has_lost, False
        return frozenset((NODES[0],)) if has_lost else frozenset()


async def begin(tmp_path: Path, settle: Settle, servers: type[StateServers] = StateServers) -> Kept:
    nodes = [sample_node(number, master_candidate=number == 1) for number in (1, 2, 3)]
    disk = MemoryDisk(Identity("cluster", NODES[0]))
    store, lease = await store_with(sample_cluster(), sample_group(), *nodes, disk=disk)
    config = await Config.load(store, lease, LoopClock(), CountingIds())

    async def done(_args: Any, _call: Call) -> Nothing:
        return Nothing()

    paths = Paths(tmp_path)
    paths.data.mkdir(parents=True)
    paths.authority_key.write_text("-----BEGIN")
    handlers: Handlers = {CANDIDATE_START.name: done, CANDIDATE_STOP.name: done}
    rpc = FakeRpc({node.name: handlers for node in nodes})
    keeper = MembershipKeeper(
        store,
        lease,
        config,
        rpc,
        resources=CandidateResources(paths, servers()),
        directory=NodeDirectory(),
        settle=settle,
    )
    keeper.start()
    await asyncio.sleep(1)
    return Kept(config, store, keeper, rpc)


@pytest.mark.virtual_time
@pytest.mark.requirement("F8")
@pytest.mark.parametrize("late", [[], ["node3.example.com"]])
async def test_the_state_is_kept_at_a_candidate_that_all_nodes_know(
    tmp_path: Path, late: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[float] = []

    async def settle(limit_s: float) -> list[str]:
        await asyncio.sleep(limit_s)
        assert await kept.candidates() == {NODES[0]}
        asked.append(limit_s)
        return late

    kept = await begin(tmp_path, settle)
    await kept.becomes(master_candidate=True)
    await asyncio.sleep(2 * SETTLE_S)
    assert asked == [SETTLE_S]
    assert await kept.candidates() == set(NODES[:2])
    assert ("do not know it yet: node3.example.com" in caplog.text) == bool(late)
    await kept.becomes(master_candidate=False)
    await asyncio.sleep(1)
    assert await kept.candidates() == {NODES[0]}
    assert asked == [SETTLE_S]  # nobody waits for one that leaves
    await kept.keeper.close()


@pytest.mark.virtual_time
async def test_a_candidate_that_is_none_any_more_when_all_know_it_stays_none(
    tmp_path: Path,
) -> None:
    async def settle(limit_s: float) -> list[str]:
        await asyncio.sleep(limit_s)
        return []

    kept = await begin(tmp_path, settle)
    await kept.becomes(master_candidate=True)
    await asyncio.sleep(SETTLE_S / 2)
    await kept.becomes(offline=True, master_candidate=False)
    await asyncio.sleep(2 * SETTLE_S)
    members = await kept.store.members()
    assert NODES[1] not in members.voters | members.candidates
    await kept.keeper.close()


@pytest.mark.virtual_time
async def test_returning_candidate_is_no_longer_stopped(
    tmp_path: Path,
) -> None:
    async def settle(_limit_s: float) -> list[str]:
        return []

    kept = await begin(tmp_path, settle)
    await kept.becomes(master_candidate=True)
    await asyncio.sleep(1)
    kept.rpc.fail(1, Fault.REFUSED)
    kept.rpc.fail(2, Fault.REFUSED)
    await kept.becomes(master_candidate=False)
    await asyncio.sleep(1)
    await kept.becomes(master_candidate=True)
    await asyncio.sleep(3 * LOOK_S)
    told = [call.procedure for call in kept.rpc.changing_calls if call.node_name[4] == "2"]
    assert told == [CANDIDATE_START.name, *[CANDIDATE_STOP.name] * 2, CANDIDATE_START.name]
    assert await kept.candidates() == set(NODES[:2])
    await kept.keeper.close()


@pytest.mark.virtual_time
@pytest.mark.requirement("G23")
async def test_enforcing_gives_candidates_their_keys_and_takes_them_from_others(
    tmp_path: Path,
) -> None:
    async def settle(_limit_s: float) -> list[str]:
        return []

    kept = await begin(tmp_path, settle)
    await kept.becomes(master_candidate=True)
    await asyncio.sleep(1)
    kept.rpc.changing_calls.clear()
    nodes = kept.config.snapshot.nodes
    for uuid in NODES[:3]:
        await kept.keeper.enforce(nodes[uuid])
    calls = [(call.node_name[4], call.procedure) for call in kept.rpc.changing_calls]
    assert calls == [("2", CANDIDATE_START.name), ("3", CANDIDATE_STOP.name)]
    await kept.keeper.promote(nodes[NODES[2]])
    kept.rpc.changing_calls.clear()
    await kept.keeper.enforce(nodes[NODES[2]])  # its job has yet to call it a candidate
    assert kept.rpc.changing_calls == []
    await kept.keeper.close()


@pytest.mark.virtual_time
@pytest.mark.requirement("G22")
async def test_server_that_lost_its_data_is_replaced(
    tmp_path: Path,
) -> None:
    async def settle(limit_s: float) -> list[str]:
        del limit_s
        return []

    kept = await begin(tmp_path, settle, Servers)
    servers = kept.keeper._servers
    assert isinstance(servers, Servers)
    assert kept.rpc.changing_calls == []
    servers.has_lost = True
    await kept.becomes(master_candidate=False, name="node2.example.net")
    await asyncio.sleep(LOOK_S / 2)
    assert servers.looks == 1  # whatever happens to the configuration
    await asyncio.sleep(LOOK_S)
    assert servers.looks == 2
    (call,) = kept.rpc.changing_calls
    assert (call.procedure, call.node_name) == (CANDIDATE_START.name, "node1.example.com")
    await kept.keeper.close()


@pytest.mark.virtual_time
@pytest.mark.requirement("F39")
async def test_outdated_key_of_confd_is_never_distributed(
    tmp_path: Path,
) -> None:
    async def settle(_limit_s: float) -> list[str]:
        return []

    kept = await begin(tmp_path, settle)
    paths, node = Paths(tmp_path), kept.config.snapshot.nodes[NODES[1]]
    assert await kept.keeper.renew_confd_key() == {}
    new = kept.rpc.changing_calls[-1].args.confd_key
    digest = hashlib.sha256(new).hexdigest()
    assert kept.config.snapshot.cluster.renewed_files == {KEY_NAME: digest}
    for key, given in ((new, new), (b"an earlier key of confd", b"")):
        keep_key(paths, key)
        await kept.keeper.promote(node)
        assert kept.rpc.changing_calls[-1].args.confd_key == given
    changed = msgspec.structs.replace(kept.config.snapshot.cluster, renewed_files={})
    await kept.config.change(lambda draft: draft.put(changed))
    await kept.keeper.promote(node)
    assert kept.rpc.changing_calls[-1].args.confd_key == b"an earlier key of confd"
    await kept.keeper.close()


class WithServers(StateServers):
    """Whose members have names as soon as they are admitted."""

    def __init__(self) -> None:
        super().__init__()
        self.members = {NODES[0]}
        self.settle_s = 0.0

    async def admit(self, node: Node) -> CandidateState:
        self.members.add(node.uuid)
        return await super().admit(node)

    async def settle(self, node: Node) -> None:
        del node
        await asyncio.sleep(self.settle_s)

    async def dismiss_others(self, candidates: frozenset[NodeUuid], nodes: list[Node]) -> None:
        del nodes
        self.members &= candidates


@pytest.mark.virtual_time
@pytest.mark.requirement("G22")
async def test_the_server_of_a_candidate_to_be_stays_until_the_configuration_calls_it_one(
    tmp_path: Path,
) -> None:
    async def settle(_limit_s: float) -> list[str]:
        return []

    kept = await begin(tmp_path, settle, WithServers)
    servers, node = kept.keeper._servers, kept.config.snapshot.nodes[NODES[1]]
    assert isinstance(servers, WithServers)
    servers.settle_s = 3 * LOOK_S
    await kept.keeper.promote(node)  # the master looks at the servers meanwhile
    assert servers.members == set(NODES[:2])
    await asyncio.sleep(3 * LOOK_S)  # so late is the job
    await kept.becomes(master_candidate=True)
    await asyncio.sleep(2 * NAMED_S)
    assert servers.members == set(NODES[:2])
    await kept.becomes(master_candidate=False)
    await asyncio.sleep(1)
    assert servers.members == {NODES[0]}
    # A job that has failed leaves no server, and the next one makes the node fit again.
    await kept.keeper.promote(node)
    await asyncio.sleep(NAMED_S + 2 * LOOK_S)
    assert servers.members == {NODES[0]}
    servers.settle_s = 0.0
    await kept.becomes(master_candidate=True)
    await asyncio.sleep(1)
    assert servers.members == set(NODES[:2])
    await kept.keeper.close()


@pytest.mark.virtual_time
async def test_a_candidate_that_cannot_be_made_fit_leaves_no_server(tmp_path: Path) -> None:
    async def settle(_limit_s: float) -> list[str]:
        return []

    kept = await begin(tmp_path, settle, WithServers)
    servers, node = kept.keeper._servers, kept.config.snapshot.nodes[NODES[1]]
    assert isinstance(servers, WithServers)
    kept.rpc.fail(1, Fault.REFUSED)
    with pytest.raises(RpcError):
        await kept.keeper.promote(node)
    await asyncio.sleep(2 * LOOK_S)
    assert servers.members == {NODES[0]}
    await kept.keeper.close()
