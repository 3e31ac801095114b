"""Decides which nodes are fenced and which instances are started again (D6, D7, D11-D13).

A pure core: `RecoveryCore.handle` takes an event and returns instructions. It reads no clock, starts no task and does
no input or output. One exists while this node is the master; it begins with the rows that older masters committed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from ganeti.model.objects import NodeRow, NodeUuid
from ganeti.model.recovery import GuestFault, InstanceRow, NodeState, Recovery
from ganeti.recovery.facts import InstanceFacts, Watched
from ganeti.recovery.instance import InstanceState, InstanceWatch
from ganeti.recovery.messages import (
    BeatAnswered,
    CommitFailed,
    Committed,
    Configured,
    Event,
    FenceConfirmed,
    FenceEnded,
    Instruction,
    JobEnded,
    JobKind,
    MajorityConfirmed,
    Outcome,
    ReleaseEnded,
    RoomAppeared,
    Row,
    Submit,
    TimePassed,
)
from ganeti.recovery.node import NodeWatch, Surroundings
from ganeti.recovery.status import NodeStatus, RecoveryStatus, instance_status, node_status
from ganeti.recovery.times import MAJORITY_S

OFFLINE_RETRY_S = 10.0
STOOD_STILL_S = 5.0
"""A master without an event for so long was paused: the silence of nodes meanwhile says nothing about them."""

_COUNTED = (
    NodeState.HEALTHY,
    NodeState.SUSPECT,
    NodeState.FENCING,
    NodeState.STUCK,
    NodeState.RETURNING,
)
"""Nodes of which a majority must answer before one is fenced; no set, because the hash of a state is slow."""
_WAITING = frozenset({InstanceState.QUEUED, InstanceState.BEGINNING, InstanceState.RUNNING})


class RecoveryCore:
    """All nodes and protected instances of a cluster, under one master's epoch."""

    def __init__(
        self, epoch: int, elected_at: float, rows: Iterable[Row], watched: Watched
    ) -> None:
        self._epoch, self._elected_at = epoch, elected_at
        self._majority_at = float("-inf")
        self._handled_at = elected_at
        self._wall = 0.0
        """Wall time of the last event."""
        self._most_answer = False
        self._healthy: tuple[NodeUuid, ...] = ()
        self._given_up: tuple[str, ...] = ()
        self._is_at_rest = False
        """No instance waits for anything, so time alone changes none."""
        self._due = self._nodes_due = float("inf")
        """When `TimePassed` is due, and when a node has something to do."""
        self.watched = watched
        self.nodes: dict[NodeUuid, NodeWatch] = {}
        self.instances: dict[str, InstanceWatch] = {}
        self._open: dict[str, InstanceWatch] = {}
        """The instances that something has happened to: all that are not PROTECTED, and all with a doubt."""
        self._on: dict[NodeUuid, dict[str, InstanceWatch]] = {}
        """The instances of each node."""
        # Of older masters; those of nodes and instances that are gone are ignored.
        rows = tuple(rows)
        self._node_rows = {row.node: row for row in rows if isinstance(row, NodeRow)}
        self._instance_rows = {row.instance: row for row in rows if isinstance(row, InstanceRow)}
        self._numbers = 0
        self._jobs: dict[int, tuple[JobKind, str]] = {}
        self._offline: set[NodeUuid] = set()
        """Fenced nodes that this master has marked offline."""
        self._offline_due: dict[NodeUuid, float] = {}
        """Nodes whose job, to mark them offline or to let them return, has failed: when the next one may come."""

    def begin(self, now: float, wall: float) -> list[Instruction]:
        """Return what to do first: older masters' work is continued."""
        self._handled_at = now
        out = self._configure(self.watched, now)
        return [*out, *self._follow(now, wall)]

    def handle(self, event: Event, now: float, wall: float) -> list[Instruction]:
        """Return what must be done, in this order. Most events are answers to heartbeats, which concern one node."""
        if now - self._handled_at > STOOD_STILL_S:
            for one in self.nodes.values():
                one.listen_again(now)
        self._handled_at, nodes = now, self.watched.nodes
        out = self._take(event, now)
        if isinstance(event, MajorityConfirmed):
            return out
        if isinstance(event, BeatAnswered) and not event.faults:
            if (watch := self.nodes.get(event.node)) is not None:
                self._node_is_due(watch.next_due())
            return out
        is_time_only = isinstance(event, TimePassed)
        is_about_nodes = not isinstance(event, Configured) or self.watched.nodes is not nodes
        return [
            *out,
            *self._follow(now, wall, is_time_only=is_time_only, is_about_nodes=is_about_nodes),
        ]

    def next_due(self) -> float:
        """Return the time of the next `TimePassed`."""
        return self._due

    def _next_due(self) -> float:
        instances = () if self._is_at_rest else self._open.values()
        return min(
            [
                self._nodes_due,
                *(one.due.at for one in instances if one.due and _is_queued(one)),
                *self._offline_due.values(),
            ]
        )

    def _node_is_due(self, at: float) -> None:
        self._nodes_due, self._due = min(self._nodes_due, at), min(self._due, at)

    @property
    def is_settled(self) -> bool:
        """Return whether no instance waits for anything, and none may still run on a fenced node."""
        return not any(
            one.state in _WAITING or (one.state is InstanceState.PROTECTED and one.doubt)
            for one in self._open.values()
        )

    @property
    def needs_room(self) -> bool:
        """Return whether it matters that room appears."""
        return any(one.is_for_room for one in self._open.values())

    def node_statuses(self, now: float) -> tuple[NodeStatus, ...]:
        """Return what people are shown about nodes."""
        return tuple(node_status(one, now) for one in self.nodes.values())

    def status(self, now: float) -> RecoveryStatus:
        """Return what people are shown; the driver adds what only nodes know."""
        instances = self.instances.values()
        return RecoveryStatus(
            nodes=self.node_statuses(now),
            instances=tuple(
                instance_status(one, self._name(one.facts.node), now, self._wall)
                for one in instances
            ),
            alarms=(
                *(one.alarm for one in self.nodes.values() if one.alarm),
                *(one.alarm for one in instances if one.alarm),
            ),
        )

    def _name(self, node: NodeUuid) -> str:
        facts = self.watched.nodes.get(node)
        return facts.name if facts is not None else node

    # Events

    def _take(self, event: Event, now: float) -> list[Instruction]:
        match event:
            case Configured(watched):
                return self._configure(watched, now)
            case RoomAppeared():
                for one in self._open.values():
                    one.room_appeared(now)
                return []
            case MajorityConfirmed(asked_at):
                self._majority_at = max(self._majority_at, asked_at)
                return []
            case Committed(row):
                return self._committed(row, now)
            case CommitFailed(row):
                self._commit_failed(row, now)
                return []
            case JobEnded(number, outcome, detail):
                return self._job_ended(number, outcome, detail, now)
            case TimePassed():
                return []  # what is due is looked up after every event
            case _:
                return self._take_node_event(event, now)

    def _take_node_event(
        self, event: BeatAnswered | FenceEnded | ReleaseEnded | FenceConfirmed, now: float
    ) -> list[Instruction]:
        watch = self.nodes.get(event.node)
        if watch is None:
            return []
        around = self._around(now)
        match event:
            case BeatAnswered(_, token, is_armed, faults, is_direct):
                for instance, fault in faults.items():
                    self._guest_failed(watch, instance, fault, now)
                out = self._guests_run(watch, faults) if watch.has_lease else []
                return out + watch.answered(
                    token, now, around, is_armed=is_armed, is_direct=is_direct
                )
            case FenceEnded():
                return watch.fence_ended(event, now, around)
            case ReleaseEnded(_, problem):
                return watch.release_ended(problem, now, around)
            case FenceConfirmed(_, by):
                return watch.confirmed(by, now, around)

    def _commit_failed(self, row: Row, now: float) -> None:
        if isinstance(row, NodeRow) and row.node in self.nodes:
            self.nodes[row.node].commit_failed(row)
        elif isinstance(row, InstanceRow) and row.instance in self.instances:
            self.instances[row.instance].commit_failed(row, now)

    def _configure(self, watched: Watched, now: float) -> list[Instruction]:
        """Take in nodes, instances and what was configured of them."""
        former, self.watched = self.watched, watched
        out: list[Instruction] = []
        changed = self._changed(former, watched)
        if watched.nodes is former.nodes and self.nodes:
            return self._configure_instances(changed, now)
        for node in self.nodes.keys() - watched.nodes.keys():
            self._node_rows[node] = self.nodes.pop(node).row
            self._offline.discard(node)
        for node, facts in watched.nodes.items():
            if node in self.nodes:
                self.nodes[node].configure(facts, now)
            else:
                watch = self.nodes[node] = NodeWatch(node, facts, max(now, self._elected_at))
                if node in self._node_rows:
                    out += watch.adopt(self._node_rows[node], self._epoch)
        return out + self._configure_instances(changed, now)

    def _changed(self, former: Watched, watched: Watched) -> Collection[str]:
        """Return the instances that are new, other or gone: a cluster has thousands in which nothing happens."""
        known, now, difference = former.instances, watched.instances, watched.difference
        if not self.instances:
            return now
        if difference is not None and difference.former is known:
            return difference.changed
        others = [uuid for uuid, facts in now.items() if known.get(uuid) is not facts]
        return [*others, *(uuid for uuid in known if uuid not in now)]

    def _configure_instances(self, uuids: Iterable[str], now: float) -> list[Instruction]:
        """Look at those that have changed, and at the open ones."""
        instances, changed = self.watched.instances, dict.fromkeys(uuids)
        out: list[Instruction] = []
        for instance in {**changed, **self._open}:
            facts, watch = instances.get(instance), self.instances.get(instance)
            if facts is None:
                if watch is not None:
                    self._drop(instance)
                continue
            if instance in changed:
                self._confirm_soon(facts, now)
            if watch is None:
                watch = self.instances[instance] = InstanceWatch(instance, facts)
                watch.look(now)
                self._on.setdefault(facts.node, {})[instance] = watch
                if instance in self._instance_rows:
                    watch.adopt(self._instance_rows[instance])
                    self._open[instance] = watch
                continue
            last, watch.facts = watch.facts, facts
            if last.node != facts.node:
                del self._on[last.node][instance]
                self._on.setdefault(facts.node, {})[instance] = watch
            if last.node != facts.node or not (last.is_wanted and facts.is_wanted):
                out += watch.reset()
        return out

    def _confirm_soon(self, facts: InstanceFacts, now: float) -> None:
        """A newly protected instance is recovered only after its node has answered a heartbeat that lists it."""
        node = self.nodes.get(facts.node)
        is_new = facts.recovery is Recovery.FAILOVER and not facts.is_under_lease
        if is_new and node is not None:
            node.beat_at_once(now)
            self._node_is_due(now)

    def _drop(self, instance: str) -> None:
        """Recovery looks after it no longer; a job that runs is waited for, so that no second one begins."""
        watch = self.instances[instance]
        if watch.state is not InstanceState.RUNNING:
            self._instance_rows[instance] = watch.row
            del self.instances[instance], self._on[watch.facts.node][instance]
            self._open.pop(instance, None)

    def _need(self, watch: InstanceWatch, kind: JobKind, now: float, why: str) -> None:
        watch.need(kind, now, why)
        self._open[watch.uuid] = watch

    def _guest_failed(self, one: NodeWatch, instance: str, fault: GuestFault, now: float) -> None:
        """Queue its start. A node without a lease would refuse it, and one in maintenance is ignored."""
        watch = self.instances.get(instance)
        if watch is None or watch.facts.node != one.node or not watch.facts.is_wanted:
            return
        if one.has_lease and not one.facts.in_maintenance:
            self._need(watch, JobKind.RESTART, now, f"its guest has {_SAID[fault]}")

    def _guests_run(self, one: NodeWatch, faults: Mapping[str, GuestFault]) -> list[Instruction]:
        """An instance that was given up runs again: an administrator has started it."""
        out: list[Instruction] = []
        for instance in self._given_up:
            watch = self.instances.get(instance)
            if watch is not None and watch.facts.node == one.node and instance not in faults:
                out += watch.reset()
        return out

    def _committed(self, row: Row, now: float) -> list[Instruction]:
        if isinstance(row, NodeRow):
            node = self.nodes.get(row.node)
            return node.committed(row, now, self._around(now)) if node is not None else []
        watch = self.instances.get(row.instance)
        if watch is None:
            return []
        kind, out = watch.committed(row)
        return [*out, *([self._submit(kind, row.instance)] if kind else [])]

    def _job_ended(
        self, number: int, outcome: Outcome, detail: str, now: float
    ) -> list[Instruction]:
        kind, about = self._jobs.pop(number)
        if kind in (JobKind.FAIL_OVER, JobKind.RESTART):
            watch = self.instances.get(about)
            out = watch.ended(outcome, now, detail) if watch else []
            if watch and about not in self.watched.instances:
                self._drop(about)
            return out
        node = NodeUuid(about)
        if outcome is not Outcome.DONE:
            self._offline_due[node] = now + OFFLINE_RETRY_S
            return []
        if kind is JobKind.MARK_OFFLINE:
            self._offline.add(node)
            return []
        self._offline.discard(node)
        watch_of_node = self.nodes.get(node)
        return watch_of_node.rejoined(self._around(now)) if watch_of_node is not None else []

    # What follows from the state of all

    def _follow(
        self, now: float, wall: float, *, is_time_only: bool = False, is_about_nodes: bool = True
    ) -> list[Instruction]:
        """`is_time_only`: nothing has happened since the last time; not `is_about_nodes`: only to instances."""
        out: list[Instruction] = []
        if is_about_nodes or now >= min((self._nodes_due, *self._offline_due.values())):
            self._look_around(now)
            around = self._around(now)
            for one in self.nodes.values():
                out += one.tick(now, around)
            out += self._follow_nodes(now)
            self._offline_due = {one: at for one, at in self._offline_due.items() if at > now}
            self._nodes_due = min(
                (one.next_due() for one in self.nodes.values()), default=float("inf")
            )
        if not (is_time_only and self._is_at_rest):
            out += self._follow_instances(now, wall)
        self._wall = wall
        self._due = self._next_due()
        return out

    def _follow_instances(self, now: float, wall: float) -> list[Instruction]:
        out: list[Instruction] = []
        self._find_lost(now)
        for watch in self._next(now):
            out += watch.begin(wall)
        for watch in self._open.values():
            watch.look(now)
        self._open = {
            uuid: one
            for uuid, one in self._open.items()
            if one.doubt or one.state is not InstanceState.PROTECTED
        }
        self._is_at_rest = not any(one.state in _WAITING for one in self._open.values())
        self._given_up = tuple(
            uuid for uuid, one in self._open.items() if one.state is InstanceState.GIVEN_UP
        )
        return out

    def _follow_nodes(self, now: float) -> Iterator[Instruction]:
        """Mark fenced nodes offline, and clean up those that return."""
        waiting = {about for _, about in self._jobs.values()}
        for node, one in self.nodes.items():
            state = one.state
            if state is NodeState.HEALTHY:
                continue
            if state is NodeState.FENCED and node not in self._offline:
                kind = JobKind.MARK_OFFLINE
            elif state is NodeState.RETURNING and not one.facts.stays_offline:
                kind = JobKind.REJOIN
            else:
                continue
            is_due = self._offline_due.get(node, now) <= now
            if is_due and not one.is_changing and node not in waiting:
                yield self._submit(kind, node)

    def _find_lost(self, now: float) -> None:
        """Queue the instances of fenced nodes; those of a node that has returned are started there."""
        for watch in self._open.values():
            watch.doubt = ""
            is_for_move = watch.due is not None and watch.due.kind is JobKind.FAIL_OVER
            if is_for_move and not self._must_move(watch.facts):
                watch.cancel()
        for node in sorted(self._offline):
            for watch in self._on.get(node, {}).values():
                if not self._must_move(watch.facts):
                    continue
                if self.nodes[node].has_ended(watch.uuid, watch.facts):
                    self._need(watch, JobKind.FAIL_OVER, now, "its node is lost")
                else:
                    watch.doubt = _may_run(self._name(node))
                    self._open[watch.uuid] = watch

    def _must_move(self, facts: InstanceFacts) -> bool:
        """Return whether it is to be started elsewhere."""
        if facts.recovery is not Recovery.FAILOVER or not facts.is_wanted:
            return False
        one = self.nodes.get(facts.node)
        is_lost = one is not None and one.state is NodeState.FENCED
        return is_lost and one is not None and not one.facts.in_maintenance

    def _next(self, now: float) -> list[InstanceWatch]:
        """Return the instances whose recovery begins now, the most important ones first."""
        busy = sum(
            one.state in (InstanceState.BEGINNING, InstanceState.RUNNING)
            for one in self._open.values()
        )
        due = [
            one
            for one in self._open.values()
            if _is_queued(one) and one.due is not None and one.due.at <= now
        ]
        due.sort(key=lambda one: (-one.facts.priority, one.facts.name))
        return due[: max(self.watched.most_jobs - busy, 0)]

    def _around(self, now: float) -> Surroundings:
        return Surroundings(
            epoch=self._epoch,
            elected_at=self._elected_at,
            has_majority=now < self._majority_at + MAJORITY_S,
            most_answer=self._most_answer,
            healthy=self._healthy,
            master=self.watched.master,
        )

    def _look_around(self, now: float) -> None:
        counted = answering = 0
        healthy = []
        for uuid, one in self.nodes.items():
            state = one.state
            if state in _COUNTED:
                counted += 1
                answering += one.answers(now)
                if state is NodeState.HEALTHY and one.facts.can_relay:
                    healthy.append(uuid)
        self._most_answer = 2 * answering > counted
        self._healthy = tuple(healthy)

    def _submit(self, kind: JobKind, about: str) -> Submit:
        self._numbers += 1
        self._jobs[self._numbers] = kind, about
        return Submit(self._numbers, kind, about)


_SAID = {
    GuestFault.CRASHED: "crashed",
    GuestFault.HUNG: "stopped responding",
    GuestFault.PANICKED: "panicked",
}


def _may_run(node: str) -> str:
    return (
        f"it is not started elsewhere: the watchdog of {node} may not have ended its guest, because the node had not"
        " confirmed the protection yet; once that node is certainly off, run:"
        f" gnt-node fenced --confirm {node}"
    )


def _is_queued(one: InstanceWatch) -> bool:
    return one.state is InstanceState.QUEUED
