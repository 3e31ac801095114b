"""The steps of a merge against nodes as data: each fails or is cut short in turn, and is taken back or goes on."""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, GanetiError, InputError, PrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import CONFD, MASTERD, NODED
from ganeti.bootstrap.merge import journal as journals
from ganeti.bootstrap.merge import states
from ganeti.bootstrap.merge.journal import ClusterRecord, Journal, MergeChoices, NodeRecord
from ganeti.bootstrap.merge.left_out import leave_out, said_of_left_out
from ganeti.bootstrap.merge.messages import Action, HostFacts, NodeFacts, Reply, Request
from ganeti.bootstrap.merge.states import merged_backup, opened
from ganeti.bootstrap.merge.steps import (
    FORCE,
    STEPS,
    AddedNodes,
    Merge,
    MergingNode,
    go_on,
    is_past_return,
    roll_back,
)
from ganeti.config.merging.merge import merge
from ganeti.config.merging.plan import MergeOptions, MergePlan
from ganeti.config.snapshot import Snapshot
from ganeti.simulation.virtual_time import LoopClock
from ganeti.store.backup import write_backup
from ganeti.store.interface import Position, Row
from ganeti.upstream.choices import Choices
from tests.unit.config.merging_clusters import cluster

pytestmark = pytest.mark.virtual_time

UNDOABLE = [step for step in STEPS if step.can_undo]


class Cut(Exception):
    """The program is killed."""


@dataclass
class World:
    """Two clusters as they are; everything that a merge may change is in `state`."""

    ours: Snapshot
    theirs: Snapshot
    state: dict[str, Any] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    fails_at: int = -1
    """The call that fails, counted from 0; `kind` says how."""
    kind: type[Exception] = PrereqError
    late: bool = False
    """Whether it does its work all the same."""
    is_killed: bool = False

    def __post_init__(self) -> None:
        for node in self.theirs.nodes.values():
            daemons = {NODED, MASTERD} if node.uuid == self.theirs.cluster.master_node else {NODED}
            self.state[node.name] = {"keys": [], "pause": None, "daemons": daemons, "joined": False}
        running = sorted(one.name for one in self.theirs.instances.values())[:-1]
        self.state["running"] = set(running)
        self.state["own"] = {"pause": "77\n", "daemons": {MASTERD, CONFD}, "config": "ours"}

    def call(self, what: str) -> bool:
        """Note a call; whether its work is to be done. After a kill nobody calls any more."""
        if self.is_killed:
            raise Cut
        self.calls.append(what)
        return len(self.calls) - 1 != self.fails_at or self.late

    def end(self, number: int) -> None:
        if number == self.fails_at:
            if issubclass(self.kind, GanetiError):
                raise ExecError("told to fail")
            self.is_killed = True
            raise self.kind

    async def backup_of(self, snapshot: Snapshot) -> bytes:
        class Sink:
            data = b""

            async def write(self, data: bytes) -> None:
                self.data += data

        async def items() -> AsyncIterator[Position | Row]:
            yield Position(1, 1)
            rows = [Row(row.kind, row.key, row.value) for row in MergePlan(snapshot).rows()]
            for row in sorted(rows, key=lambda row: (row.kind, row.key)):
                yield row

        sink = Sink()
        await write_backup(items(), sink, snapshot.cluster.uuid)
        return sink.data


class FakeNode:
    """A node of the other cluster."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.is_lost = False

    async def call(self, request: Request) -> Reply:
        number = len(self.world.calls)
        answer = Reply()
        if self.world.call(f"{self.name} {request.action}"):
            answer = await self._done(request)
        self.world.end(number)
        return answer

    async def _done(self, request: Request) -> Reply:
        state, node = self.world.state, self.world.state[self.name]
        if request.action is Action.DROP_ADDRESS:
            assert request.address is not None
            state["dropped"] = request.address.address
            return Reply()
        match request.action:
            case Action.TRUST:
                node["keys"] = sorted({*node["keys"], request.line})
            case Action.DISTRUST:
                node["keys"] = [one for one in node["keys"] if one != request.line]
            case Action.PAUSED:
                return Reply(pause=node["pause"])
            case Action.PAUSE:
                node["pause"] = request.pause
            case Action.FACTS:
                assert MASTERD in node["daemons"]
                return Reply(facts=self._facts())
            case Action.STATE:
                assert not node["daemons"]
                return Reply(data=await self.world.backup_of(self.world.theirs))
            case Action.DAEMONS:
                return Reply(names=sorted(node["daemons"]))
            case _:
                self._changed(request, state, node)
        return Reply()

    def _changed(self, request: Request, state: dict[str, Any], node: dict[str, Any]) -> None:
        match request.action:
            case Action.STOP_INSTANCES:
                state["running"] -= set(request.names)
            case Action.START_INSTANCES:
                assert MASTERD in node["daemons"]
                state["running"] |= set(request.names)
            case Action.STOP_DAEMONS:
                assert not state["running"], "guests are stopped before daemons"
                assert node["pause"], "the watcher would start them again"
                node["daemons"] = set()
            case Action.START_DAEMONS:
                node["daemons"] |= set(request.names)
            case Action.MASTER_ANSWERS:
                others = [one for key, one in state.items() if key.startswith("n")]
                assert all(NODED in one["daemons"] for one in others), "it needs their votes"
            case _:
                raise AssertionError(request.action)

    def _facts(self) -> HostFacts:
        return facts_of(self.world.theirs, self.world.state["running"])

    @contextlib.asynccontextmanager
    async def joining(self) -> AsyncIterator[str]:
        number = len(self.world.calls)
        if self.world.call(f"{self.name} join"):
            self.world.state[self.name]["joined"] = True
        self.world.end(number)
        yield "token"

    async def close(self) -> None:
        pass


def facts_of(snapshot: Snapshot, running: set[str]) -> HostFacts:
    return HostFacts(
        cluster=snapshot.cluster.name,
        uuid=snapshot.cluster.uuid,
        version="1",
        state="embedded",
        nodes=[
            NodeFacts(name=one.name, address=one.primary_ip) for one in snapshot.nodes_by_name()
        ],
        instances=sorted(one.name for one in snapshot.instances.values()),
        running=sorted(running),
        jobs=[],
    )


class FakeOwn:
    """Our own master."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def _did(self, what: str, work: dict[str, Any]) -> None:
        number = len(self.world.calls)
        if self.world.call(f"own {what}"):
            self.world.state["own"].update(work)
        self.world.end(number)

    async def answer(self, request: Request) -> Reply:
        own = self.world.state["own"]
        before, running = own["pause"], self.world.state["running"]
        if request.action is Action.START_INSTANCES:
            running |= set(request.names)
        work = {"pause": request.pause} if request.action is Action.PAUSE else {}
        await self._did(str(request.action), work)
        merged = merge(self.world.ours, [self.world.theirs]).snapshot
        return Reply(pause=before, facts=facts_of(merged, running))

    async def start(self, options: Sequence[str] = ()) -> None:
        how = " ".join(options)
        await self._did(f"start {how}".strip(), {"daemons": {MASTERD, CONFD}})

    async def stop(self) -> None:
        await self._did("stop", {"daemons": {CONFD}})

    async def state(self) -> bytes:
        assert MASTERD not in self.world.state["own"]["daemons"]
        await self._did("state", {})
        return await self.world.backup_of(self.world.ours)

    async def put(self, backup: Path, *, is_undo: bool = False) -> None:
        assert MASTERD not in self.world.state["own"]["daemons"]
        count = len(opened(backup.read_bytes()).snapshot.nodes)
        is_ours = count == len(self.world.ours.nodes)
        await self._did("put", {"config": "ours" if is_ours else "merged"})


def a_world(**fields: Any) -> World:
    return World(cluster(1, nodes=2, instances=2), cluster(2, nodes=2, instances=3), **fields)


def a_merge(world: World, directory: Path) -> Merge:
    """A run of the program."""
    world.is_killed = False
    paths = Paths(directory)
    paths.merge.mkdir(parents=True, exist_ok=True)
    journal = journals.load(paths.merge)
    if journal is None:
        master = world.theirs.cluster.master_node
        nodes = [
            NodeRecord(name=one.name, address=one.primary_ip, is_master=one.uuid == master)
            for one in world.theirs.nodes_by_name()
        ]
        theirs = world.theirs.cluster
        record = ClusterRecord(contact="c2", name=theirs.name, uuid=theirs.uuid, nodes=nodes)
        journal = Journal(
            id="1",
            choices=MergeChoices(),
            clusters=[record],
            public_key="ssh-ed25519 AAAA",
            path=str(paths.merge / journals.FILE),
        )

    async def run(words: Sequence[str], _stdin: str | None) -> int:
        number = len(world.calls)
        world.call(" ".join(words))
        world.end(number)
        return 0

    return Merge(
        paths=paths,
        own=FakeOwn(world),
        clock=LoopClock(),
        journal=journal,
        options=MergeOptions(),
        choices=Choices(),
        reach=_reach(world),
        run=run,
        say=lambda _text: None,
    )


async def count_of_calls(directory: Path) -> tuple[int, int]:
    """How many calls a merge makes, and how many before a node leaves its cluster."""
    world = a_world()
    await go_on(a_merge(world, directory))
    first = next(number for number, call in enumerate(world.calls) if call.endswith("join"))
    return len(world.calls), first


@pytest.mark.requirement("S35", "S36", "S37", "S38", "S42", "S43", "S44", "S45")
async def test_the_steps_are_done_in_the_order_of_the_design(tmp_path: Path) -> None:
    world = a_world()
    running = set(world.state["running"])
    await go_on(a_merge(world, tmp_path))
    order = [
        " trust", " pause", " facts", " stop-instances", " stop-daemons", " state", "own stop",
        "own state", "own put", f"own start {' '.join(FORCE)}", " join", "gnt-node add --readd",
        "gnt-cluster redist-conf", "own stop", "own start", " pause", "own start-instances",
        "own facts", "gnt-cluster verify", " distrust",
    ]  # fmt: skip
    at = -1
    for what in order:
        at = next(
            (number for number, call in enumerate(world.calls) if number > at and what in call), -1
        )
        assert at >= 0, (what, world.calls)
    assert world.state["running"] == running
    assert world.state["own"] == {"pause": "77\n", "daemons": {MASTERD, CONFD}, "config": "merged"}
    for node in world.theirs.nodes.values():
        assert world.state[node.name]["joined"]
        assert world.state[node.name]["keys"] == []
        assert world.state[node.name]["pause"] is None


@pytest.mark.sampled(1)
@pytest.mark.requirement("S46", "S47")
@pytest.mark.parametrize("late", [False, True])
async def test_whatever_fails_before_a_node_leaves_everything_is_taken_back_at_once(
    tmp_path: Path,
    late: bool,
) -> None:
    _, first = await count_of_calls(tmp_path / "count")
    for number in range(first):
        world = a_world(fails_at=number, late=late)
        before = copy.deepcopy(world.state)
        with pytest.raises(ExecError, match="all clusters are unchanged"):
            await go_on(a_merge(world, tmp_path / str(number)))
        assert world.state == before, world.calls[number]


@pytest.mark.sampled(1)
@pytest.mark.requirement("S46", "S47")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("back", [False, True])
async def test_wherever_it_is_killed_before_a_node_leaves_it_goes_back_or_on(
    tmp_path: Path,
    late: bool,
    back: bool,
) -> None:
    _, first = await count_of_calls(tmp_path / "count")
    for number in range(first):
        world = a_world(fails_at=number, late=late, kind=Cut)
        before = copy.deepcopy(world.state)
        directory = tmp_path / str(number)
        with pytest.raises(Cut):
            await go_on(a_merge(world, directory))
        if back:
            await roll_back(a_merge(world, directory))
            assert world.state == before, world.calls[number]
        else:
            await go_on(a_merge(world, directory))
            assert world.state["running"] == before["running"], world.calls[number]
            assert world.state["own"] == {**before["own"], "config": "merged"}
            assert all(world.state[one.name]["keys"] == [] for one in world.theirs.nodes.values())


@pytest.mark.sampled(1)
@pytest.mark.requirement("S46")
@pytest.mark.parametrize("kind", [PrereqError, Cut])
async def test_merge_cannot_roll_back_after_the_first_node_left(
    tmp_path: Path, kind: type[Exception]
) -> None:
    total, first = await count_of_calls(tmp_path / "count")
    for number in range(first, total):
        world = a_world(fails_at=number, late=True, kind=kind)
        running = set(world.state["running"])
        directory = tmp_path / str(number)
        with pytest.raises((ExecError, Cut)):
            await go_on(a_merge(world, directory))
        again = a_merge(world, directory)
        assert is_past_return(again.journal)
        with pytest.raises(PrereqError, match="cannot be rolled back"):
            await roll_back(again)
        await go_on(again)
        assert world.state["running"] == running
        assert world.state["own"]["config"] == "merged"


@pytest.mark.requirement("S46", "S47")
async def test_wherever_the_masters_disk_becomes_full_everything_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, states_of_begun = Journal.save, list[bool]()

    def counted(journal: Journal) -> None:
        states_of_begun.append(is_past_return(journal))
        save(journal)

    monkeypatch.setattr(Journal, "save", counted)
    await go_on(a_merge(a_world(), tmp_path / "count"))
    for number in range(states_of_begun.index(True) + 1):
        saved = 0

        def full(journal: Journal, number: int = number) -> None:
            nonlocal saved
            saved += 1
            if saved > number:
                raise OSError(28, "No space left on device")
            save(journal)

        monkeypatch.setattr(Journal, "save", full)
        world = a_world()
        before = copy.deepcopy(world.state)
        m = a_merge(world, tmp_path / str(number))
        with pytest.raises(ExecError, match=r"No space left on device.*all clusters are unchanged"):
            await go_on(m)
        assert world.state == before
        assert m.journal.begun == []


async def test_all_nodes_are_called_at_once_and_each_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, stopping = a_world(), list[str]()
    nodes = sorted(node.name for node in world.theirs.nodes.values())
    at_once = asyncio.Barrier(len(nodes))

    async def fails(node: FakeNode, request: Request) -> Reply:
        if request.action is not Action.STOP_DAEMONS:
            return await answers(node, request)
        stopping.append(node.name)
        await at_once.wait()
        raise PrereqError(f"{node.name}: no such luck", ErrorCode.ENVIRONMENT)

    answers = FakeNode.call
    monkeypatch.setattr(FakeNode, "call", fails)
    with pytest.raises(ExecError) as raised:
        await go_on(a_merge(world, tmp_path))
    assert sorted(stopping) == nodes
    assert all(f"{name}: no such luck" in raised.value.message for name in nodes)


@pytest.mark.requirement("S46", "S47")
@pytest.mark.parametrize("dies_at", [Action.PAUSE, Action.STOP_DAEMONS])
async def test_dead_node_does_not_block_the_rollback_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: Action
) -> None:
    world = World(cluster(1), cluster(2))
    before = copy.deepcopy(world.state)
    (dead, *_) = (
        node.name for node in world.theirs.nodes_by_name()
        if node.uuid != world.theirs.cluster.master_node
    )  # fmt: skip
    is_dead, answers = False, FakeNode.call

    async def call(node: FakeNode, request: Request) -> Reply:
        nonlocal is_dead
        is_dead = is_dead or (node.name == dead and request.action is dies_at)
        if is_dead and node.name == dead:
            raise PrereqError(f"{dead} does not answer", ErrorCode.ENVIRONMENT)
        return await answers(node, request)

    monkeypatch.setattr(FakeNode, "call", call)
    with pytest.raises(ExecError, match=f"the rollback is incomplete.*{dead} does not answer"):
        await go_on(a_merge(world, tmp_path))
    left, were = dict(world.state), dict(before)
    del left[dead], were[dead]
    assert left == were
    # It goes on as well as back when the node is there again.
    again = a_merge(world, tmp_path)
    assert set(again.journal.done).isdisjoint(step.name for step in STEPS if not step.waits)
    monkeypatch.setattr(FakeNode, "call", answers)
    await roll_back(again)
    assert world.state == before


@pytest.mark.requirement("S46")
@pytest.mark.parametrize("back", [False, True])
async def test_a_node_that_is_lost_can_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    world = World(cluster(1), cluster(2, instances=12))
    running = set(world.state["running"])
    theirs = world.theirs
    dead = next(one for one in theirs.nodes_by_name() if one.uuid != theirs.cluster.master_node)
    answers, joining = FakeNode.call, FakeNode.joining

    async def call(node: FakeNode, request: Request) -> Reply:
        is_dead = world.state["own"]["config"] == "merged" or back
        if node.name == dead.name and is_dead and request.action is not Action.TRUST:
            raise PrereqError(f"{dead.name} does not answer", ErrorCode.ENVIRONMENT)
        return await answers(node, request)

    @contextlib.asynccontextmanager
    async def no_join(node: FakeNode) -> AsyncIterator[str]:
        if node.name == dead.name:
            raise PrereqError(f"{dead.name} does not answer", ErrorCode.ENVIRONMENT)
        async with joining(node) as token:
            yield token

    monkeypatch.setattr(FakeNode, "call", call)
    monkeypatch.setattr(FakeNode, "joining", no_join)
    with pytest.raises(ExecError, match="--without=NODE"):
        await go_on(a_merge(world, tmp_path))
    m = a_merge(world, tmp_path)
    with pytest.raises(InputError, match="is not a node of a merging cluster"):
        leave_out(m.journal, "nobody.example.com")
    if back:
        (master,) = (node.name for node in m.journal.clusters[0].nodes if node.is_master)
        with pytest.raises(PrereqError, match="is the master of"):
            leave_out(m.journal, master)
    leave_out(m.journal, dead.name)
    m = a_merge(world, tmp_path)
    await (roll_back(m) if back else go_on(m))
    (said,) = said_of_left_out(m, back=back)
    assert said.startswith(f"{dead.name} was left out")
    assert ("--readd" in said) is not back
    lost = {one.name for one in theirs.instances.values() if one.primary_node == dead.uuid}
    assert lost
    assert world.state["running"] == (running if back else running - lost)


async def test_a_rollback_that_fails_is_repeated(tmp_path: Path) -> None:
    _, first = await count_of_calls(tmp_path / "count")
    world = a_world(fails_at=first - 1, kind=Cut, late=True)
    before = copy.deepcopy(world.state)
    with pytest.raises(Cut):
        await go_on(a_merge(world, tmp_path / "x"))
    for more in range(1, 100):
        world.fails_at = len(world.calls) + more
        try:
            await roll_back(a_merge(world, tmp_path / "x"))
        except (ExecError, Cut):
            continue
        break
    assert world.state == before


async def test_a_node_that_was_drained_is_added_drained(tmp_path: Path) -> None:
    world = a_world()
    one, two = world.theirs.nodes_by_name()
    assert two.uuid != world.theirs.cluster.master_node
    drained = replace(two, drained=True, master_candidate=False)
    world.theirs = Snapshot.of(
        0,
        world.theirs.cluster,
        others=[drained if thing == two else thing for thing in world.theirs.objects()][1:],
    )
    await go_on(a_merge(world, tmp_path))
    added = [call for call in world.calls if call.startswith("gnt-node add")]
    assert added == [
        f"gnt-node add --readd --token-file=- {one.name}",
        f"gnt-node add --readd --drained --token-file=- {two.name}",
    ]


@pytest.mark.requirement("S48")
@pytest.mark.parametrize("lost", ["node", "instance", "running"])
async def test_what_is_missing_at_the_end_is_an_error(tmp_path: Path, lost: str) -> None:
    world = a_world()
    stopped = max(one.name for one in world.theirs.instances.values())
    m = a_merge(world, tmp_path)
    await go_on(m)
    m.journal.done.remove("verify")
    if lost == "node":
        m.journal.nodes.append("lost.example.com")
    elif lost == "instance":
        m.journal.instances.append("lost.example.com")
    else:
        m.journal.clusters[0].running = [stopped]
    with pytest.raises(
        ExecError, match=rf"missing after the merge.*(lost\.example\.com|{stopped})"
    ):
        await go_on(m)


async def test_the_address_of_a_cluster_that_is_no_more_leaves_its_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, said = a_world(), list[str]()
    old = world.theirs.cluster
    new = replace(old, master_ip="192.0.2.9", master_netdev="eth0")
    world.theirs = Snapshot.of(0, new, others=[*world.theirs.objects()][1:])
    await go_on(a_merge(world, tmp_path / "one"))
    assert world.state["dropped"] == "192.0.2.9"
    drops = [call for call in world.calls if "drop-address" in call]
    assert len(drops) == 1
    assert world.calls.index(drops[0]) < min(
        number for number, call in enumerate(world.calls) if call.endswith(" join")
    )
    # Where that fails the merge goes on, and says so.
    world = a_world()
    world.theirs = Snapshot.of(0, new, others=[*world.theirs.objects()][1:])
    answers = FakeNode.call

    async def call(node: FakeNode, request: Request) -> Reply:
        if request.action is Action.DROP_ADDRESS:
            raise PrereqError("no script", ErrorCode.ENVIRONMENT)
        return await answers(node, request)

    monkeypatch.setattr(FakeNode, "call", call)
    m = a_merge(world, tmp_path / "two")
    m.say = said.append
    await go_on(m)
    assert any("192.0.2.9 of" in line and "no script" in line for line in said)


async def test_what_the_original_called_otherwise_is_added_and_started_by_its_name_here(
    tmp_path: Path,
) -> None:
    world = a_world()
    m = a_merge(world, tmp_path)
    (record,) = m.journal.clusters
    record.original, (first, *_) = "3.0", record.nodes
    started, left = sorted(world.state["running"])
    m.choices = Choices(names={("node", "OLD"): first.name, ("instance", "Web"): started})
    first.name, record.running = "OLD", ["Web", left]
    m.journal.instances = [started, "another.example.com"]
    assert m.ran() == [started]
    assert m.name(record, "node", "OLD") != "OLD"
    record.original = ""
    assert m.name(record, "node", "OLD") == "OLD"


@pytest.mark.requirement("S48")
async def test_what_the_merge_itself_would_lose_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = a_world()
    lost = min(one.name for one in world.theirs.instances.values())

    def without(theirs: Snapshot) -> Snapshot:
        kept = [one for one in theirs.objects() if one.name != lost]
        return Snapshot.of(0, theirs.cluster, others=kept[1:])

    def careless(ours: Snapshot, others: Sequence[Snapshot], options: MergeOptions) -> MergePlan:
        return merge(ours, [without(one) for one in others], options)

    monkeypatch.setattr(states, "merge", careless)
    m = a_merge(world, tmp_path)
    m.own = FakeOwn(World(world.ours, without(world.theirs)))
    with pytest.raises(ExecError, match=f"missing after the merge: instances: {lost}"):
        await go_on(m)


@pytest.mark.requirement("S39")
async def test_both_configurations_are_kept(tmp_path: Path) -> None:
    world = a_world()
    m = a_merge(world, tmp_path)
    await go_on(m)
    kept = [opened(m.backup(name).read_bytes()) for name in ("ours", world.theirs.cluster.uuid)]
    assert [one.snapshot.cluster.name for one in kept] == [
        world.ours.cluster.name,
        world.theirs.cluster.name,
    ]
    assert all(m.backup(name).stat().st_mode & 0o777 == 0o600 for name in ("ours",))


async def test_a_plan_that_is_wrong_by_then_is_taken_back(tmp_path: Path) -> None:
    world = World(cluster(1), cluster(2))
    before = copy.deepcopy(world.state)
    world.theirs = merge(cluster(2), [cluster(1, nodes=1, instances=0)]).snapshot
    m = a_merge(World(cluster(1), cluster(2)), tmp_path)
    m.own = FakeOwn(world)
    m.reach = _reach(world)
    with pytest.raises(ExecError, match="was it merged before"):
        await go_on(m)
    assert world.state == before


def _reach(world: World) -> Any:
    async def reach(place: MergingNode) -> FakeNode:
        return FakeNode(world, place.node.name)

    return reach


async def test_merged_state_keeps_the_rest_of_the_local_state(tmp_path: Path) -> None:
    world = a_world()
    ours = await world.backup_of(world.ours)
    plan = merge(world.ours, [world.theirs])
    state = opened(await merged_backup(ours, plan))
    assert state.snapshot.cluster.uuid == world.ours.cluster.uuid
    assert state.snapshot.tables == plan.snapshot.tables


def test_every_step_has_a_title() -> None:
    assert len({step.name for step in STEPS}) == len(STEPS)
    assert all(step.title[0].isupper() and not step.title.endswith(".") for step in STEPS)
    past = [step.can_undo for step in STEPS]
    assert past == sorted(past, reverse=True)
    assert not AddedNodes.can_undo
    assert UNDOABLE
