"""The state store, and masters that carry out what `RecoveryCore` wants."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ganeti.model.objects import Grant, NodeRow, NodeUuid
from ganeti.model.recovery import GuestFault, InstanceRow, NodeState, Recovery, Token
from ganeti.recovery.facts import InstanceFacts, NodeFacts, Watched
from ganeti.recovery.grants import GrantRefused, Returned
from ganeti.recovery.messages import (
    Alarm,
    BeatAnswered,
    Commit,
    CommitFailed,
    Committed,
    Configured,
    Event,
    Fence,
    FenceEnded,
    Instruction,
    JobEnded,
    JobKind,
    MajorityConfirmed,
    Outcome,
    RoomAppeared,
    Row,
    SendBeat,
    Submit,
    TimePassed,
)
from tests.unit.recovery.simulation.machine import Answer, Machine, Observer
from tests.unit.recovery.simulation.rules import Rules
from tests.unit.store.simulation.engine import Gate, Process, World

CALL_S = 3.0


@dataclass
class State:
    """What is committed: one order for all, as the store gives it (R7)."""

    late_starts: float = 0.05
    """How often a master is busy between a grant and the start."""
    late_beats: float = 0.03
    deposed_s: float = 40.0
    """How long it can take until a deposed master knows."""
    epoch: int = 0
    master: NodeUuid | None = None
    clock_off_s: float = 0.0
    """Wall clocks differ from true time by this much."""
    nodes: dict[NodeUuid, NodeFacts] = field(default_factory=dict)
    offline: set[NodeUuid] = field(default_factory=set)
    instances: dict[str, InstanceFacts] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    node_rows: dict[NodeUuid, NodeRow] = field(default_factory=dict)
    instance_rows: dict[str, InstanceRow] = field(default_factory=dict)

    def watched(self) -> Watched:
        return Watched(dict(self.nodes), dict(self.instances), master=self.master)

    def is_fenced(self, node: NodeUuid, instance: str) -> bool:
        """Whether the guest that a node had certainly runs no more (D6)."""
        row = self.node_rows.get(node)
        is_fenced = row is not None and row.state is NodeState.FENCED
        is_under_lease = self.instances[instance].is_under_lease
        return row is not None and is_fenced and (row.is_off or is_under_lease)

    def is_listed(self, instance: str) -> bool:
        """Whether nodes are told that it is protected: until the state says that they may forget it."""
        facts = self.instances[instance]
        return facts.is_under_lease or facts.recovery is Recovery.FAILOVER


class Refused(Exception):
    """A transaction that would break a rule."""


VOTERS = 3


def reaches_majority(world: World, machine: Machine) -> bool:
    """Whether a machine runs and reaches most of the voters, which are the first machines."""
    if not machine.power.is_up or machine.is_frozen:
        return False
    me = machine.uuid
    reached = [
        one
        for one in list(machine.others.values())[:VOTERS]
        if one.power.is_up
        and not one.is_frozen
        and (one.uuid == me or not {(me, one.uuid), (one.uuid, me)} & world.cut)
    ]
    return 2 * len(reached) > VOTERS


class Master:
    """One epoch of mastership on a machine."""

    def __init__(
        self,
        world: World,
        machine: Machine,
        state: State,
        rules: Rules,
        power: "Callable[[Master, NodeUuid], Gate[bool]]",
        observer: Observer,
    ) -> None:
        self.world, self.machine, self.state, self.rules = world, machine, state, rules
        self._power, self._observer = power, observer
        state.epoch += 1
        self.epoch = state.epoch
        state.master = machine.uuid
        self.process = Process(machine.uuid)
        self.alarms: list[Alarm] = []
        self.heard: dict[NodeUuid, float] = {}
        """When each node has answered last."""
        rows: tuple[Row, ...] = (*state.node_rows.values(), *state.instance_rows.values())
        self.core = rules.core(self.epoch, world.now, rows, state.watched())
        self._seen = self.core.watched
        self._usable: frozenset[NodeUuid] = frozenset()
        self._copies: frozenset[tuple[str, NodeUuid]] = frozenset()
        self._told: frozenset[str] = frozenset()
        self._delisted: dict[str, float] = {}
        self._resumed: Gate[None] | None = None
        self._boot = machine.boots
        self._carry_out(self.core.begin(world.now, self._wall()))
        self._tick()
        self.world.spawn(self.process, self._confirm())

    def end(self) -> None:
        self.process.is_up = False
        self.process.life += 1

    def pause(self, seconds: float) -> None:
        """The process is stopped (SIGSTOP); its machine goes on."""
        if self._resumed is None:
            gate = self._resumed = Gate()

            def resume() -> None:
                self._resumed = None
                gate.open()

            self.world.at(seconds, resume)

    def _wall(self) -> float:
        return self.world.now + self.state.clock_off_s

    def _is_lost(self) -> bool:
        """Whether its machine has lost power, even if it was on again at once."""
        return not self.machine.power.is_up or self.machine.boots != self._boot

    def reaches_majority(self) -> bool:
        """Whether its writes are accepted."""
        return reaches_majority(self.world, self.machine)

    # Events

    def report(self, event: Event) -> None:
        if not self.process.is_up:
            return
        if self._is_lost():
            self.end()
        elif self.machine.is_frozen:
            self.machine.thaw.when_open(lambda: self.report(event))
        elif self._resumed is not None:
            self._resumed.when_open(lambda: self.report(event))
        else:
            self._carry_out(self.core.handle(event, self.world.now, self._wall()))

    def _tick(self) -> None:
        if self._is_lost():
            self.end()
        if not self.process.is_up:
            return
        if self.state.epoch == self.epoch and self.state.watched() != self._seen:
            self._seen = self.state.watched()
            self.report(Configured(self._seen))
        self._look_for_room()
        self.report(TimePassed())
        self.world.at(max(min(self.core.next_due() - self.world.now, 1.0), 0.1), self._tick)

    def _look_for_room(self) -> None:
        """A node that is online again, or another current copy, may take what had no target."""
        usable = frozenset(self.machine.others.keys() - self.state.offline)
        copies = frozenset(
            (name, node) for name, grant in self.state.grants.items() for node in grant.current
        )
        if self.state.epoch == self.epoch and (usable - self._usable or copies - self._copies):
            self.report(RoomAppeared())
        self._usable, self._copies = usable, copies

    async def _confirm(self) -> None:
        while True:
            asked_at = self.world.now
            await self.world.sleep(0.01 + self.world.random.random() * 0.2)
            if self.reaches_majority():
                if self.state.epoch != self.epoch:
                    # It learns that it was deposed, but not at once.
                    await self.world.sleep(self.world.random.random() * self.state.deposed_s)
                    self.end()
                    return
                self.report(MajorityConfirmed(asked_at))
            await self.world.sleep(1.0)

    async def commit(self, change: Callable[[State], None]) -> bool | None:
        """True if it is durable, None if that is not known; Refused."""
        dice = self.world.random
        await self.world.sleep(dice.random() * 0.05)
        if self._resumed is not None:
            await self._resumed
        if self.state.epoch != self.epoch or not self.reaches_majority():
            return None
        change(self.state)
        await self.world.sleep(dice.random() * 0.05)
        return None if dice.random() < 0.02 else True

    # Instructions

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for one in instructions:
            match one:
                case SendBeat(node, token, via):
                    self.world.spawn(self.process, self._beat(node, token, via))
                case Fence(node):
                    self.world.spawn(self.process, self._fence(node))
                case Commit(row):
                    self.world.spawn(self.process, self._commit_row(row))
                case Submit(number, kind, about):
                    self.world.spawn(self.process, self._job(number, kind, about))
                case Alarm():
                    self.alarms.append(one)

    def _call(self, node: NodeUuid, work: Callable[[Machine], Any]) -> Gate[Any]:
        target = self.machine.others[node]
        return self.world.call(self.process, target.process, lambda: work(target), CALL_S)

    async def _beat(self, node: NodeUuid, token: Token | None, via: NodeUuid | None) -> None:
        if self.world.random.random() < self.state.late_beats:  # a busy master
            await self.world.sleep(self.world.random.random() * 60)
        protected, sent_at = self._listed(), self.world.now
        listed = protected if token is not None else frozenset()
        if via is None:
            answer = await self._call(node, lambda one: one.beat(token, listed))
        else:
            answer = await self._call(via, lambda peer: self._relay(peer, node, token, listed))
        if isinstance(answer, Answer):
            self.heard[node] = self.world.now
            await self._confirmed(node, listed, sent_at)
            faults = {
                name: GuestFault.CRASHED
                for name, facts in self.core.watched.instances.items()
                if facts.node == node and facts.is_wanted and name not in answer.running
            }
            is_direct = via is None
            self.report(BeatAnswered(node, answer.token, answer.is_armed, faults, is_direct))
            await self._serve(node, answer)

    async def _relay(
        self, peer: Machine, node: NodeUuid, token: Token | None, listed: frozenset[str]
    ) -> Answer | None:
        target = peer.others[node]
        return await self.world.call(
            peer.process, target.process, lambda: target.beat(token, listed), CALL_S / 2
        )

    # Which guests end with the lease

    def _listed(self) -> frozenset[str]:
        """What every node is told; who is left out is remembered."""
        listed = frozenset(filter(self.state.is_listed, self.state.instances))
        for name in self._told - listed:
            self._delisted[name] = self.world.now
        self._told = listed
        return listed

    async def _confirmed(self, node: NodeUuid, listed: frozenset[str], sent_at: float) -> None:
        """A node has taken in its list: what is protected on it from now on, and what is no longer."""

        def is_confirmed(name: str) -> bool:
            facts = self.state.instances[name]
            is_listed = name in listed and self._delisted.get(name, -1.0) < sent_at
            is_told = is_listed and facts.node == node
            is_protected = facts.recovery is Recovery.FAILOVER
            return is_protected and (is_told or not self.rules.waits_for_the_list)

        def put(state: State) -> None:
            for name, facts in state.instances.items():
                if facts.is_under_lease and facts.recovery is not Recovery.FAILOVER:
                    state.instances[name] = replace(facts, is_under_lease=False)
                elif not facts.is_under_lease and is_confirmed(name):
                    state.instances[name] = replace(facts, is_under_lease=True)

        if any(
            is_confirmed(name)
            if not facts.is_under_lease
            else facts.recovery is not Recovery.FAILOVER
            for name, facts in self.state.instances.items()
        ):
            await self.commit(put)

    async def _fence(self, node: NodeUuid) -> None:
        is_off = await self._power(self, node)
        self.report(FenceEnded(node, bool(is_off), "as simulated"))

    async def _commit_row(self, row: NodeRow | InstanceRow) -> None:
        def put(state: State) -> None:
            if isinstance(row, NodeRow):
                state.node_rows[row.node] = row
            else:
                state.instance_rows[row.instance] = row
                if row == InstanceRow(row.instance):
                    self._observer.reset(row.instance)

        done = await self.commit(put)
        self.report(Committed(row) if done else CommitFailed(row))

    # Disks

    async def _serve(self, node: NodeUuid, answer: Answer) -> None:
        """What the writers on a node ask of the master (D3, D5)."""
        for instance, generation in answer.drop_requests.items():
            await self._regrant(
                instance,
                node,
                partial(self.rules.drop_peer, node=node, generation=generation, epoch=self.epoch),
            )
        for instance, (peer, record) in answer.synchronised.items():
            if self.state.grants[instance].writer == node:
                await self._regrant(
                    instance,
                    node,
                    partial(self.rules.join_current, node=peer, source=record, epoch=self.epoch),
                )

    async def _regrant(
        self, instance: str, node: NodeUuid, change: Callable[[Grant], Grant]
    ) -> None:
        def put(state: State) -> None:
            state.grants[instance] = change(state.grants[instance])

        try:
            done = await self.commit(put)
        except GrantRefused:
            # Perhaps an earlier commit counted although its answer was lost.
            grant = self.state.grants[instance]
            if grant.writer == node and self.state.epoch == self.epoch:
                await self._call(node, lambda one: one.granted(instance, grant))
            return
        if done:
            grant = self.state.grants[instance]
            await self._call(node, lambda one: one.granted(instance, grant))

    # Jobs

    async def _job(self, number: int, kind: JobKind, about: str) -> None:
        since = self.world.now
        await self.world.sleep(self.world.random.random() * 0.5)
        try:
            outcome = await self._run(kind, about)
        except (GrantRefused, Refused):
            outcome = Outcome.FAILED
        if kind in (JobKind.FAIL_OVER, JobKind.RESTART) and outcome is not Outcome.NO_ROOM:
            self._observer.attempted(about, since, self.state.instances[about].attempts)
        self.report(JobEnded(number, outcome, "as simulated"))

    async def _run(self, kind: JobKind, about: str) -> Outcome:
        match kind:
            case JobKind.MARK_OFFLINE:
                done = await self.commit(lambda state: state.offline.add(NodeUuid(about)))
                return Outcome.DONE if done else Outcome.FAILED
            case JobKind.REJOIN:
                return await self._rejoin(NodeUuid(about))
            case JobKind.RESTART:
                return await self._start(about, self.state.instances[about].node)
            case JobKind.FAIL_OVER:
                return await self._fail_over(about)

    async def _rejoin(self, node: NodeUuid) -> Outcome:
        grants = dict(self.state.grants)
        if not await self._call(node, lambda one: one.rejoin(grants)):
            return Outcome.FAILED
        done = await self.commit(lambda state: state.offline.discard(node))
        return Outcome.DONE if done else Outcome.FAILED

    async def _fail_over(self, instance: str) -> Outcome:
        source = self.state.instances[instance].node
        targets = [
            one
            for one in self.machine.others.values()
            if instance in one.copies
            and one.uuid != source
            and self._is_current(instance, one)
            and one.uuid not in self.state.offline
        ]
        if not targets:
            return Outcome.NO_ROOM
        return await self._start(instance, targets[0].uuid, lost=source)

    def _is_current(self, instance: str, machine: Machine) -> bool:
        grant, record = self.state.grants[instance], machine.copies[instance].record
        return self.rules.judge_return(grant, machine.uuid, record) is Returned.CURRENT

    async def start_by_hand(self, instance: str) -> None:
        """What an administrator does about an instance that was given up."""
        with contextlib.suppress(GrantRefused, Refused):
            await self._start(instance, self.state.instances[instance].node)

    async def stop_by_hand(self, instance: str) -> None:
        """What an administrator's shutdown does; the release may be lost with the master."""
        node, grant = self.state.instances[instance].node, self.state.grants[instance]
        if not await self._call(node, lambda one: one.stop(instance, grant)):
            return

        def put(state: State) -> None:
            if state.grants[instance] == grant:
                state.grants[instance] = self.rules.release(grant, node, self.epoch)

        with contextlib.suppress(GrantRefused):
            await self.commit(put)

    async def _start(self, instance: str, node: NodeUuid, lost: NodeUuid | None = None) -> Outcome:
        """Grant and start: the commit decides, whatever happened since the job was submitted (D8)."""

        def put(state: State) -> None:
            facts, grant = state.instances[instance], state.grants[instance]
            if lost is None and facts.node != node:
                raise Refused("it has moved")
            if lost is not None and (facts.node != lost or not state.is_fenced(lost, instance)):
                raise Refused("its node is back")
            is_fenced = grant.writer is not None and state.is_fenced(grant.writer, instance)
            state.grants[instance] = self.rules.grant_writer(
                grant, node, self.epoch, is_fenced=is_fenced
            )
            state.instances[instance] = replace(facts, node=node)

        done = await self.commit(put)
        if not done and self.rules.commit_decides:
            return Outcome.FAILED
        grant = self.state.grants[instance]
        if not self.rules.commit_decides:
            grant = Grant(grant.generation + 1, frozenset({node}), node, self.epoch)
        is_protected = self.state.is_listed(instance)
        if self.world.random.random() < self.state.late_starts:  # a busy master
            await self.world.sleep(self.world.random.random() * 150)
        started = await self._call(
            node, lambda one: one.open_and_start(instance, grant, is_protected=is_protected)
        )
        return Outcome.DONE if started else Outcome.FAILED
