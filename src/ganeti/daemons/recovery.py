"""Carries out what the core of automatic recovery decides (`docs/design/recovery.md`).

Nothing runs while no instance is protected and no node is being recovered.
"""

import asyncio
import logging
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Any, assert_never

import msgspec

from ganeti.base.clock import Timer, TimerClock
from ganeti.base.errors import (
    ErrorCode,
    ExecError,
    GanetiError,
    NotMaster,
    PrereqError,
    RpcError,
    RpcFailed,
    RpcOffline,
)
from ganeti.config.config import Config
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.config.view import View
from ganeti.daemons.disk_grants import DiskGrants
from ganeti.daemons.recovery_jobs import Queue, RecoveryJobs, opcode_for
from ganeti.daemons.room import gains_room
from ganeti.daemons.storage_fencing import StorageFencing
from ganeti.daemons.watched import (
    Guests,
    Watching,
    is_listed_anew,
    is_listed_still,
    is_needed,
    uses_watchdog,
)
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeRow, NodeUuid
from ganeti.model.recovery import DiskRequestKind, FenceMethod, GuestFault, NodeState, Token
from ganeti.recovery.core import RecoveryCore
from ganeti.recovery.facts import Watched
from ganeti.recovery.messages import (
    Alarm,
    BeatAnswered,
    Commit,
    CommitFailed,
    Committed,
    Configured,
    Event,
    Fence,
    FenceConfirmed,
    FenceEnded,
    Instruction,
    JobEnded,
    JobKind,
    MajorityConfirmed,
    Outcome,
    Release,
    ReleaseEnded,
    RoomAppeared,
    Row,
    SendBeat,
    Submit,
    TimePassed,
)
from ganeti.recovery.node import NodeWatch
from ganeti.recovery.power import Power
from ganeti.recovery.status import NodeStatus, RecoveryStatus
from ganeti.recovery.times import BEAT_S, LEASE_S
from ganeti.rpc.headers import UNKNOWN_PROCEDURE
from ganeti.rpc.procedures.recovery import (
    BEAT_DEADLINE_S,
    HEARTBEAT,
    RELAY_HEARTBEAT,
    HeartbeatArgs,
    HeartbeatResult,
    RelayArgs,
)
from ganeti.units.calls import Rpc
from ganeti.units.instance.grants import why_alone
from ganeti.units.services import NOT_LOST

LOOK_S = 0.2
"""Minimum interval between two looks at the configuration."""
RESTART_S = 10.0
CONFIRM_S = 30.0
"""How long an administrator's confirmation may take to become durable."""
FAREWELL_S = LEASE_S + 2 * BEAT_S
"""How long nodes get heartbeats after the last instance was protected: they kill listed guests without a lease."""
KINDS = tuple(DiskRequestKind)
"""The requests about disks that this master knows."""
LEAST_WAIT_S = 0.05
"""What waits for a free place is due all the time."""
_NO_TOKEN = Token("", 0.0)
"""Renews no lease."""
_TOO_OLD = (
    "its node daemon is of an earlier version that does not know heartbeats: upgrade the node, and start its node"
    " daemon again"
)
_LOST = (NodeState.SUSPECT, NodeState.FENCING, NodeState.STUCK)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Mastership:
    """The present epoch of this master."""

    epoch: int
    majority_at: Callable[[], float | None]
    """`Fence.majority_at` of the epoch."""


@dataclass(eq=False)
class _Term:
    """One life of the core, from the first protected instance until nothing is left to do."""

    core: RecoveryCore
    jobs: RecoveryJobs


class RecoveryDriver:
    """The recovery of one mastership: the core's events, instructions and time."""

    def __init__(
        self,
        config: Config,
        rpc: Rpc,
        clock: TimerClock,
        *,
        power: Power,
        storage: StorageFencing,
        master: Mastership,
        queue: Callable[[], Queue],
        is_locked: Callable[[str], bool],
    ) -> None:
        """`is_locked` returns whether a job holds an instance, by name: what its guest does is the job's business."""
        self._config, self._rpc, self._clock = config, rpc, clock
        self._power, self._master, self._queue = power, master, queue
        self._is_locked = is_locked
        self._storage = storage
        self._grants = DiskGrants(config, rpc, is_locked, clock)
        self._releasing: set[InstanceUuid] = set()
        """Whose writes are being let go on without another copy."""
        self._term: _Term | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: Timer | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        self._is_new = True
        """Nodes may have lists of an older master."""
        self._unsubscribe: Callable[[], None] | None = None
        self._seen: Snapshot | None = None
        """The configuration that was looked at last."""
        self._has_lease = True
        self._watching = Watching()
        self._faults: dict[str, GuestFault] = {}
        self._restarted: dict[str, float] = {}
        """When the last job of an instance ended; what was asked before that is out of date."""
        self._why_unarmed: dict[NodeUuid, str] = {}
        self._delisted: dict[str, float] = {}
        """When heartbeats began to leave out an instance: an answer to an older one confirms nothing."""
        self._settling: set[InstanceUuid] = set()
        """Whose protection is being committed."""
        self._confirming: defaultdict[NodeUuid, set[asyncio.Future[None]]] = defaultdict(set)

    # Beginning and end

    def start(self) -> None:
        """Follow the configuration from now on."""
        self._unsubscribe = self._config.subscribe(self._changed)
        self._look()

    async def close(self) -> None:
        """Stop as after a crash; the next master continues."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._look_timer is not None:
            self._look_timer.cancel()
        self._end()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for waiting in self._confirming.values():
            for one in waiting:
                if not one.done():
                    one.set_exception(NotMaster("this node is no longer the master"))

    # What commands ask

    def status(self) -> RecoveryStatus:
        """Return the state of each watched node and each protected instance."""
        if self._term is None:
            return RecoveryStatus()
        found = self._term.core.status(self._clock.monotonic())
        by_name = {one.name: one.uuid for one in self._config.snapshot.nodes.values()}
        nodes = tuple(
            replace(one, why_unarmed=self._why_unarmed.get(NodeUuid(by_name.get(one.name, "")), ""))
            for one in found.nodes
        )
        snapshot = self._config.snapshot
        alone = {
            one.name: why
            for one in snapshot.instances.values()
            if (why := why_alone(snapshot, one))
        }
        instances = tuple(
            replace(one, why=one.why or alone[one.name]) if one.name in alone else one
            for one in found.instances
        )
        alarms = (*found.alarms, *self._grants.split_alarms())
        return replace(found, nodes=nodes, instances=instances, alarms=alarms)

    def node_statuses(self) -> tuple[NodeStatus, ...]:
        """Return the state of each watched node, without what only nodes know."""
        term = self._term
        return () if term is None else term.core.node_statuses(self._clock.monotonic())

    @property
    def is_settled(self) -> bool:
        """Return whether each instance either has what protects it or cannot be recovered, as `status` reports in words."""
        term, snapshot = self._term, self._config.snapshot
        if term is None:
            return True
        return (
            term.core.is_settled
            and not self._watching.unconfirmed
            and not any(why_alone(snapshot, one) for one in snapshot.instances.values())
        )

    async def confirm_fenced(self, node: NodeUuid, by: str) -> None:
        """Accept an administrator's word that a lost node is off; return once that is durable."""
        term = self._term
        watch = term.core.nodes.get(node) if term is not None else None
        if term is None or watch is None or not _is_lost(watch, self._clock.monotonic()):
            raise PrereqError(NOT_LOST, ErrorCode.WRONG_STATE)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._confirming[node].add(done)
        try:
            self._report(term, FenceConfirmed(node, by))
            async with asyncio.timeout(CONFIRM_S):
                await done
        except TimeoutError:
            raise ExecError(
                f"node {watch.facts.name} is {watch.state.value} and not fenced after {CONFIRM_S:g} s;"
                " look at gnt-cluster ha-status, and confirm again if the node is still lost"
            ) from None
        finally:
            self._confirming[node].discard(done)

    # The configuration

    def letting_join(self, instance: InstanceUuid) -> AbstractContextManager[None]:
        """See `DiskGrants.letting_join`."""
        return self._grants.letting_join(instance)

    def _changed(self, snapshot: Snapshot) -> None:
        """Look soon, at most once per interval: thousands of jobs may change instances."""
        seen = self._seen
        if seen is None or not all(map(operator.is_, _parts(seen), _parts(snapshot))):
            self._look_later(LOOK_S)

    def _look_later(self, delay_s: float) -> None:
        if self._look_timer is None:
            self._look_timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        self._look_timer = None
        snapshot = self._config.snapshot
        former, self._seen = self._seen, snapshot
        self._has_lease = self._master.majority_at() is not None
        found = self._watching.watched(snapshot, has_lease=self._has_lease)
        needed = is_needed(snapshot, found)
        if self._term is not None:
            if found is not self._term.core.watched:
                self._report(self._term, Configured(found))
            self._look_for_room(former, snapshot)
        elif needed or (self._is_new and any(one.recovery for one in snapshot.nodes.values())):
            self._begin(snapshot, found)
        self._is_new = False
        self._end_later(needed=needed)
        self._release(snapshot)
        self._settle(self._watching.ending, self._is_released, under_lease=False)

    def _is_released(self, view: View, instance: Instance) -> bool:
        """Return whether the end of its protection can be committed: its writes wait for no other copy any more."""
        return is_listed_still(view, instance) and not self._grants.must_release(instance)

    def _release(self, snapshot: Snapshot) -> None:
        """Begin to let writes go on whose instances are not protected any more."""
        ending = {InstanceUuid(uuid) for uuid in self._watching.ending}
        self._grants.forget_released(ending)
        for uuid in ending - self._releasing:
            if self._grants.must_release(snapshot.instances[uuid]):
                self._releasing.add(uuid)
                self._spawn(self._let_go_on(uuid), "writes without protection")

    async def _let_go_on(self, uuid: InstanceUuid) -> None:
        # Until then the node may still get a heartbeat that lists the disks.
        await asyncio.sleep(BEAT_DEADLINE_S)
        try:
            await self._grants.release(uuid)
        except GanetiError as err:
            _log.warning("automatic recovery: writes of %s may wait for a copy: %s", uuid, err)
            await asyncio.sleep(RESTART_S)
        self._releasing.discard(uuid)
        self._look_later(0)

    def _look_for_room(self, former: Snapshot | None, snapshot: Snapshot) -> None:
        term = self._term
        if term is None or former is None or not term.core.needs_room:
            return
        if gains_room(former, snapshot):
            self._report(term, RoomAppeared())

    def _end_later(self, *, needed: bool) -> None:
        """End once every node that answers has been told that nothing is protected."""
        if needed and self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None
        elif not needed and self._end_timer is None and self._term is not None:
            self._end_timer = asyncio.get_running_loop().call_later(FAREWELL_S, self._end)

    def _begin(self, snapshot: Snapshot, found: Watched) -> None:
        """Begin with the rows in the state.

        The core counts its waiting times from now: what an earlier core of this mastership returned to nodes is over
        by then, as if an older master had returned it.
        """
        rows: list[Row | None] = [one.recovery for one in snapshot.nodes.values()]
        rows += [one.recovery for one in snapshot.instances.values()]
        now = self._clock.monotonic()
        core = RecoveryCore(self._master.epoch, now, filter(None, rows), found)
        term = self._term = _Term(core, RecoveryJobs(self._queue(), self._clock))
        _log.info("automatic recovery watches %d nodes", len(found.nodes))
        self._carry_out(term, core.begin(now, self._clock.time()))

    def _end(self) -> None:
        self._term = None
        self._faults.clear()
        self._restarted.clear()
        self._why_unarmed.clear()
        self._delisted.clear()
        for timer in (self._timer, self._end_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._end_timer = None

    # Events

    def _report(self, term: _Term, event: Event) -> None:
        """Let the core handle an event, and begin at once what it decides."""
        if term is not self._term:
            return
        now = self._clock.monotonic()
        try:
            out: list[Instruction] = []
            for one in (*self._majority(now), event):
                out += term.core.handle(one, now, self._clock.time())
        except Exception:  # noqa: BLE001 - without recovery the master still serves
            _log.exception("automatic recovery failed; it begins again in %g s", RESTART_S)
            self._end()
            self._look_later(RESTART_S)
            return
        self._carry_out(term, out)

    def _majority(self, now: float) -> list[MajorityConfirmed]:
        """Return the last confirmation; a master of two voters needs none, and no watchdog relies on it."""
        asked_at = self._master.majority_at()
        if (asked_at is not None) != self._has_lease:
            self._look_later(0)
        return [MajorityConfirmed(now if asked_at is None else min(asked_at, now))]

    def _time_passed(self, term: _Term) -> None:
        self._timer = None
        self._report(term, TimePassed())

    # Instructions

    def _carry_out(self, term: _Term, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case SendBeat():
                    self._spawn(self._beat(term, instruction), "heartbeat")
                case Fence(node, FenceMethod.STORAGE):
                    self._spawn(self._fence_by_storage(term, node), "fence by storage")
                case Fence(node):
                    self._spawn(self._fence(term, node), "fence")
                case Release(node, instances):
                    self._spawn(self._unfence(term, node, instances), "release of storage")
                case Commit(row):
                    self._spawn(self._commit(term, row), "recovery row")
                case Submit():
                    self._spawn(self._submit(term, instruction), "recovery job")
                case Alarm(_, text):
                    _log.error("automatic recovery: %s", text)
                case _:
                    assert_never(instruction)
        if self._timer is not None:
            self._timer.cancel()
        due_s = max(term.core.next_due() - self._clock.monotonic(), LEAST_WAIT_S)
        self._timer = (
            self._clock.call_later(due_s, self._time_passed, term) if due_s < float("inf") else None
        )

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run without the context of the caller, which may be a job's."""
        task = asyncio.get_running_loop().create_task(work, name=name, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (err := task.exception()) is not None:
            _log.error("automatic recovery: %s failed", task.get_name(), exc_info=err)

    async def _beat(self, term: _Term, beat: SendBeat) -> None:
        snapshot = self._config.snapshot
        node = snapshot.nodes.get(beat.node)
        if node is None:
            return
        guests = self._guests(term, snapshot)
        may_rely = self._has_lease and uses_watchdog(snapshot, node)
        is_leased = may_rely or self._counts_as_armed(term, beat.node)
        # Guests that are listed on a node without a lease would be killed at once.
        lists = is_leased and beat.token is not None
        args = HeartbeatArgs(
            token=beat.token,
            protected=guests.leased.get(beat.node, ()) if lists else (),
            as_of=snapshot.position,
            wanted=guests.wanted.get(beat.node, ()),
            mirrored=guests.mirrored.get(beat.node, {}),
            kinds=KINDS,
        )
        sent_at = self._clock.monotonic()
        try:
            answer = await self._ask(snapshot, node, args, beat)
        except RpcFailed as err:
            if err.wire_error == UNKNOWN_PROCEDURE and beat.via is None:
                self._why_unarmed[beat.node] = _TOO_OLD
                self._report(term, BeatAnswered(beat.node, _NO_TOKEN, is_armed=False, faults={}))
            return
        except RpcError:
            return
        self._why_unarmed[beat.node] = answer.why_unarmed
        if beat.node in guests.leased and (lists or not is_leased):
            self._confirmed(guests.leased[beat.node], beat.node, sent_at)
        if answer.requests:
            self._spawn(self._grants.serve(beat.node, answer.requests), "grants of disks")
        faults = {
            uuid: fault
            for uuid, fault in answer.faults.items()
            if self._restarted.get(uuid, sent_at) <= sent_at
            and (one := self._config.snapshot.instances.get(uuid))
            and not self._is_locked(one.name)
        }
        self._faults.update(faults)
        # The node counts as armed only once a heartbeat has listed its guests; it keeps its list without a token.
        knows_guests = lists or self._counts_as_armed(term, beat.node)
        is_armed = answer.is_armed and may_rely and self._has_lease and knows_guests
        is_direct = beat.via is None and not beat.is_secondary
        self._report(term, BeatAnswered(beat.node, answer.token, is_armed, faults, is_direct))

    async def _ask(
        self, snapshot: Snapshot, node: Node, args: HeartbeatArgs, beat: SendBeat
    ) -> HeartbeatResult:
        """Return the node's answer, perhaps from its secondary address or through another node."""
        # A fenced node is marked offline, and is still asked whether it is back.
        address = node.secondary_ip if beat.is_secondary else node.primary_ip
        present = node
        if node.offline or address != node.primary_ip:
            present = msgspec.structs.replace(node, offline=False, primary_ip=address)
        if beat.via is None:
            return await self._rpc.call(present, HEARTBEAT, args)
        relay = snapshot.nodes.get(beat.via)
        if relay is None:
            raise RpcOffline(beat.via, "it has left the cluster")
        return await self._rpc.call(relay, RELAY_HEARTBEAT, RelayArgs(node=present, heartbeat=args))

    def _guests(self, term: _Term, snapshot: Snapshot) -> Guests:
        """Return what nodes are told about instances, the same until the configuration changes."""
        guests, dropped = self._watching.guests(snapshot, term.core.watched)
        if dropped:
            self._delisted.update(dict.fromkeys(dropped, self._clock.monotonic()))
        return guests

    def _confirmed(self, listed: Sequence[str], node: NodeUuid, sent_at: float) -> None:
        """A node has answered a heartbeat that listed its protected instances, if its watchdog is used at all."""
        unconfirmed = self._watching.unconfirmed
        if not unconfirmed:
            return

        def is_confirmed(view: View, one: Instance) -> bool:
            return (
                one.primary_node == node
                and one.migrating_to is None  # two nodes may have its guest
                and is_listed_anew(view, one)
                and self._delisted.get(one.uuid, -math.inf) < sent_at
            )

        due = [uuid for uuid in listed if uuid in unconfirmed]
        self._settle(due, is_confirmed, under_lease=True)

    def _settle(
        self,
        uuids: Iterable[str],
        applies: Callable[[View, Instance], bool],
        *,
        under_lease: bool,
    ) -> None:
        """Commit for those instances to which it applies whether they are under the lease of their nodes."""
        now = self._config.snapshot
        due = {
            InstanceUuid(uuid)
            for uuid in uuids
            if uuid not in self._settling
            and (one := now.instances.get(uuid)) is not None
            and applies(now, one)
        }
        if due:
            self._settling |= due
            work = self._commit_lease(due, applies, under_lease=under_lease)
            self._spawn(work, "protection of instances")

    async def _commit_lease(
        self,
        uuids: AbstractSet[InstanceUuid],
        applies: Callable[[View, Instance], bool],
        *,
        under_lease: bool,
    ) -> None:
        def change(draft: Draft) -> None:
            for uuid in uuids:
                one = draft.instances.get(uuid)
                if one is not None and applies(draft, one):
                    draft.put(msgspec.structs.replace(one, under_lease=under_lease))

        try:
            await self._config.change(change)
        except GanetiError as err:
            _log.warning("automatic recovery: a change of protection may not be written: %s", err)
            self._look_later(RESTART_S)
        finally:
            self._settling -= uuids

    def _counts_as_armed(self, term: _Term, node: NodeUuid) -> bool:
        """Return whether a new master may rely on the node's watchdog, so that its guests stay under the lease."""
        watch = term.core.nodes.get(node)
        return watch is not None and watch.row.is_armed

    async def _fence(self, term: _Term, node: NodeUuid) -> None:
        result = await self._power.cut(node)
        self._report(term, FenceEnded(node, result.is_fenced, result.detail))

    async def _fence_by_storage(self, term: _Term, node: NodeUuid) -> None:
        found = await self._storage.fence(node)
        event = FenceEnded(
            node, bool(found.instances), found.detail, FenceMethod.STORAGE, found.instances
        )
        self._report(term, event)

    async def _unfence(self, term: _Term, node: NodeUuid, instances: tuple[str, ...]) -> None:
        self._report(term, ReleaseEnded(node, await self._storage.unfence(node, instances)))

    async def _commit(self, term: _Term, row: Row) -> None:
        try:
            await self._config.change(lambda draft: _put(draft, row))
        except GanetiError as err:
            _log.warning("automatic recovery: a row may not be written: %s", err)
            self._report(term, CommitFailed(row))
            return
        self._report(term, Committed(row))
        if isinstance(row, NodeRow) and row.state is NodeState.FENCED:
            for one in self._confirming[row.node]:
                if not one.done():
                    one.set_result(None)

    async def _submit(self, term: _Term, submit: Submit) -> None:
        fault = self._faults.pop(submit.about, None)
        op = opcode_for(self._config.snapshot, submit.kind, submit.about, fault)
        try:
            outcome, detail = (
                await term.jobs.run(op, _why(term, submit)) if op else (Outcome.DONE, "")
            )
        except NotMaster:
            return  # the next master continues
        except GanetiError as err:
            outcome, detail = Outcome.FAILED, err.message
        self._restarted[submit.about] = self._clock.monotonic()
        self._report(term, JobEnded(submit.number, outcome, detail))


def _is_lost(watch: NodeWatch, now: float) -> bool:
    """Return whether an administrator's word that the node is off may matter."""
    is_fenced_only = watch.state is NodeState.FENCED and not watch.row.is_off
    return (watch.state in _LOST or is_fenced_only) and not watch.answers(now)


def _why(term: _Term, submit: Submit) -> str:
    if submit.kind in (JobKind.MARK_OFFLINE, JobKind.REJOIN):
        return term.core.nodes[NodeUuid(submit.about)].row.why or submit.kind.value
    return term.core.instances[submit.about].why


def _parts(snapshot: Snapshot) -> tuple[object, ...]:
    return snapshot.cluster, snapshot.groups, snapshot.nodes, snapshot.instances


def _put(draft: Draft, row: Row) -> None:
    """Write a row into its node or instance, unless that is gone."""
    thing: Any = (
        draft.nodes.get(row.node)
        if isinstance(row, NodeRow)
        else draft.instances.get(InstanceUuid(row.instance))
    )
    if thing is not None:
        draft.put(msgspec.structs.replace(thing, recovery=row))
