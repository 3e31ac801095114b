"""Runs a scenario: its events happen to a simulated cluster, and what follows becomes a history."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, GanetiError, NotMaster
from ganeti.config.resolve import resolve_node
from ganeti.jobs.view import JobView
from ganeti.model.names import AdminState, JobStatus
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.opcodes.instance_changes import OpInstanceActivateDisks
from ganeti.model.opcodes.maintenance import OpNodeMaintenanceBegin, OpNodeMaintenanceEnd
from ganeti.model.opcodes.moving import OpNodeEvacuate
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.model.stored import Stored
from ganeti.simulation.cluster import Capacity, SimulatedCluster
from ganeti.simulation.durations import Durations
from ganeti.simulation.master import SimulatedMaster
from ganeti.simulation.trace import Event as Traced
from ganeti.simulation.trace import Kind
from ganeti.simulation.virtual_time import WALL_START
from ganeti.whatif.history import (
    GuestChange,
    GuestState,
    History,
    JobRecord,
    NodeChange,
    OpRecord,
)
from ganeti.whatif.scenario import (
    AddNodes,
    Change,
    Create,
    Drain,
    Evacuate,
    Event,
    NodesCutOff,
    NodesFail,
    NodesReturn,
    SetPolicy,
)
from ganeti.whatif.source import NodeSize, Source, derived_uuid, stand_in_certificate
from ganeti.whatif.watching import Watcher

BEGIN_S = 60.0
"""The events of a scenario begin after this time, when leases and heartbeats are there."""
QUIET_S, SETTLE_LIMIT_S = 300.0, 7200.0
"""Without a given time, the cluster is observed until nothing has happened for so long, at most the second time."""
LOOK_S = 30.0
OS = "simulated"
"""The OS definition of new instances."""
MASTER_LIMIT_S = 1800.0


def simulate(
    source: Source,
    events: Sequence[Event],
    durations: Durations,
    *,
    seed: int,
    watch_s: float | None,
) -> History:
    """Return what happens to the cluster of `source`; `watch_s` is the time after the last event."""
    spare = _spare_nodes(source, events)
    sizes = sizes_with(source, events)
    cluster = SimulatedCluster(
        (*source.objects, *spare),
        durations=durations,
        capacities={
            one.name: Capacity(size.memory - size.own_memory, size.disk, size.cpus)
            for one in (*source.nodes, *spare)
            for size in [sizes[one.uuid]]
        },
        seed=seed,
    )
    return cluster.run(lambda one: _Course(one, source, watch_s).run(events))


def sizes_with(source: Source, events: Iterable[Event]) -> Mapping[NodeUuid, NodeSize]:
    """Return the sizes of the source's nodes and of those that the events add."""
    by_name = {one.name: source.sizes[one.uuid] for one in source.nodes}
    likes = [
        like
        for event in events
        if isinstance(event.action, AddNodes)
        for like in [event.action.like] * event.action.count
    ]
    spare = zip(_spare_nodes(source, events), likes, strict=True)
    return {**source.sizes, **{node.uuid: by_name[like] for node, like in spare}}


def _spare_nodes(source: Source, events: Iterable[Event]) -> list[Node]:
    """Return the nodes that the events add; until then they are offline and without power."""
    like = {one.name: one for one in source.nodes}
    found: list[Node] = []
    for event in events:
        if isinstance(event.action, AddNodes):
            for _ in range(event.action.count):
                name = f"added{len(found) + 1}.{like[event.action.like].name.partition('.')[2]}"
                address = f"198.19.{len(found) // 250}.{len(found) % 250 + 1}"
                found.append(
                    replace(
                        like[event.action.like],
                        uuid=NodeUuid(derived_uuid("added", str(len(found)))),
                        name=name.removesuffix("."),
                        primary_ip=address,
                        secondary_ip=address,
                        certificate=stand_in_certificate(name),
                        offline=True,
                        master_candidate=False,
                        tags=(),
                    )
                )
    return found


class _Course:
    """One simulation in progress."""

    def __init__(self, cluster: SimulatedCluster, source: Source, watch_s: float | None) -> None:
        self._cluster, self._source, self._watch_s = cluster, source, watch_s
        self._began = cluster.now
        self._tasks: list[asyncio.Task[None]] = []
        self._changes: list[NodeChange] = []
        self._cut: set[str] = set()
        self._added = 0
        self._watcher = Watcher(cluster)
        for node in cluster.nodes.values():
            node.oses.setdefault(OS, "1.0")
        self._last_master = cluster.master

    @property
    def _now(self) -> float:
        """Seconds after the beginning of the scenario; negative before it."""
        return self._cluster.now - self._began - BEGIN_S

    def _master(self) -> SimulatedMaster:
        """Return the master, or the last one while there is none."""
        self._last_master = self._cluster.master or self._last_master
        assert self._last_master is not None  # noqa: S101 - a simulation begins with a master
        return self._last_master

    async def run(self, events: Sequence[Event]) -> History:
        """Let all events happen, and return the history."""
        watching = asyncio.create_task(self._watcher.run())
        try:
            for event in events:
                await self._cluster.run_for(max(0.0, event.at - self._now))
                self._begin(event.action)
            await asyncio.gather(*self._tasks)
            await self._observe()
        finally:
            watching.cancel()
            await asyncio.wait([watching])
        return self._history()

    def _begin(self, action: Any) -> None:
        self._master()
        if isinstance(action, NodesFail):
            for name in action.nodes:
                self._cluster.fail_node(name)
        elif isinstance(action, NodesCutOff):
            self._cut_off(action.nodes)
        elif isinstance(action, NodesReturn):
            self._return(action.nodes)
        elif isinstance(action, Drain):
            self._later(self._drain(action))
        elif isinstance(action, Evacuate):
            self._later(self._evacuate(action))
        elif isinstance(action, AddNodes):
            self._later(self._add(action.count))
        elif isinstance(action, Create):
            self._later(self._submitted(_creation(action)))
        elif isinstance(action, SetPolicy):
            self._later(self._submitted(_policy(action.change)))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _submitted(self, op: OpCode) -> None:
        await self._job(op)

    async def _job(self, op: OpCode) -> JobView | None:
        """Run a job to its end; None if the cluster has no master for too long, or refuses the job."""
        ends_at = self._now + MASTER_LIMIT_S
        while True:
            try:
                return await self._cluster.finished(await self._cluster.submit(op))
            except NotMaster:
                if self._now >= ends_at:
                    return None
                await self._cluster.run_for(1.0)
            except GanetiError:
                return None

    # Nodes

    def _cut_off(self, names: Sequence[str]) -> None:
        """Cut the nodes from all others, and from each other."""
        self._cut.update(names)
        for name in names:
            self._changes.append(NodeChange(self._now, name, "cut off"))
        self._cluster.cut(names, self._cluster.nodes)

    def _return(self, names: Sequence[str]) -> None:
        cut = [name for name in names if name in self._cut]
        if cut:
            self._cut.difference_update(cut)
            others = [name for name in self._cluster.nodes if name not in self._cut]
            self._cluster.heal(cut, others)
            for name in cut:
                self._changes.append(NodeChange(self._now, name, "up"))
        for name in names:
            if self._cluster.nodes[name].is_off:
                self._cluster.return_node(name)

    async def _drain(self, drain: Drain) -> None:
        """Reboot one node after the other as `gnt-cluster rolling-reboot` does: it stops at the first problem.

        The master's node is the last one; another candidate becomes the master before.
        """
        snapshot = self._master().config.snapshot
        last = snapshot.nodes[snapshot.cluster.master_node].name
        allocator = self._allocator()
        for name in sorted(drain.nodes, key=lambda one: one == last):
            if name == last:
                await self._move_master(name)
            begin = OpNodeMaintenanceBegin(
                node_name=name, allow_failover=True, shutdown=True, iallocator=allocator
            )
            if not await self._completed(begin):
                return
            self._cluster.nodes[name].lose_power("it is rebooted")
            await self._cluster.run_for(drain.away_s)
            self._cluster.nodes[name].get_power()
            await self._reopen_copies(name)
            if not await self._completed(OpNodeMaintenanceEnd(node_name=name, failback=True)):
                return

    async def _reopen_copies(self, name: str) -> None:
        """Let the copies of disks on a restarted node be written again."""
        snapshot = self._master().config.snapshot
        node = resolve_node(snapshot, name)
        ops = (
            OpInstanceActivateDisks(instance_name=one.name, if_wanted=True)
            for one in sorted(snapshot.instances.values(), key=lambda one: one.name)
            if node.uuid in one.secondary_nodes
        )
        await asyncio.gather(*(self._job(op) for op in ops))

    async def _evacuate(self, evacuate: Evacuate) -> None:
        """Empty one node after the other as `gnt-node evacuate` does."""
        for name in evacuate.nodes:
            op = OpNodeEvacuate(node_name=name, mode=evacuate.mode, iallocator=self._allocator())
            if not await self._completed(op):
                return

    def _allocator(self) -> str | None:
        """Return the allocator that an administrator must name; None if the cluster has a default."""
        return None if self._master().config.snapshot.cluster.default_iallocator else "hail"

    async def _completed(self, op: OpCode) -> bool:
        """Return whether a job and the jobs that it submits succeed."""
        job = await self._job(op)
        if job is None or job.status is not JobStatus.SUCCESS:
            return False
        result = job.ops[0].result
        submitted = result.get("jobs", ()) if isinstance(result, Mapping) else ()
        ended = [await self._cluster.finished(number) for is_done, number in submitted if is_done]
        return len(ended) == len(submitted) and all(
            one.status is JobStatus.SUCCESS for one in ended
        )

    async def _move_master(self, name: str) -> None:
        """Let another candidate become the master first, as an administrator must."""
        nodes = self._master().config.snapshot.nodes.values()
        others = [one.name for one in nodes if one.master_candidate and one.name != name]
        ready = [one for one in others if not self._cluster.nodes[one].is_off]
        if ready:
            await self._cluster.fail_over_master(min(ready))

    async def _add(self, count: int) -> None:
        names = [one.name for one in self._master().config.snapshot.nodes.values()]
        known = {one.name for one in self._source.nodes}
        spare = sorted(
            (name for name in names if name not in known),
            key=lambda name: int(name.partition(".")[0].removeprefix("added")),
        )
        first, self._added = self._added, self._added + count
        for name in spare[first : self._added]:
            self._cluster.nodes[name].get_power()
            await self._job(OpNodeSetParams(node_name=name, offline=False))

    # The end

    async def _observe(self) -> None:
        """Let time pass until the cluster has been observed long enough."""
        if self._watch_s is not None:
            await self._cluster.run_for(self._watch_s)
            return
        ends_at = self._now + SETTLE_LIMIT_S
        await self._cluster.run_for(QUIET_S)
        while self._now < ends_at and not self._is_quiet():
            self._master()
            await self._cluster.run_for(LOOK_S)

    def _is_quiet(self) -> bool:
        """Return whether nothing has changed for a while; attempts that fail are no change."""
        queue = self._master().queue
        if any(queue.status(number) is JobStatus.RUNNING for number in queue.ids()):
            return False
        changes = (one for one in reversed(self._cluster.trace.events) if one.kind not in _JOBS)
        last = next(changes, None)
        return last is None or last.at <= self._cluster.now - QUIET_S

    def _history(self) -> History:
        snapshot = self._master().config.snapshot
        history = History(
            ended=self._now,
            before=self._source.objects,
            after=(snapshot.cluster, *_sorted(snapshot.objects())),
            down=frozenset(
                name
                for name, node in self._cluster.nodes.items()
                if node.is_off or name in self._cut
            ),
        )
        history.guests += _first_guests(self._source)
        offset = self._began + BEGIN_S
        for event in self._cluster.trace.events:
            at = event.at - offset
            if (change := _node_change(event, at)) is not None:
                history.nodes.append(change)
            if event.kind in (Kind.MASTER, Kind.MASTER_LOST):
                is_there = event.kind is Kind.MASTER
                history.masters.append((at, event.name if is_there else ""))
            if (state := _GUEST_STATES.get(event.kind)) is not None:
                history.guests.append(GuestChange(at, event.name, event.node, state, event.took))
        history.nodes += self._changes
        history.nodes.sort(key=lambda one: one.at)
        history.jobs += self._jobs(WALL_START + offset)
        return history

    def _jobs(self, offset: float) -> list[JobRecord]:
        master = self._master()
        views = (master.queue.view(number) for number in sorted(master.queue.ids()))
        return [_job_record(view, offset) for view in views if view is not None]


def _sorted(objects: Iterable[Stored]) -> list[Stored]:
    return sorted(objects, key=lambda one: (type(one).__name__, one.name, one.uuid))


def _first_guests(source: Source) -> list[GuestChange]:
    """Return the guests that run at the beginning."""
    nodes = {one.uuid: one for one in source.nodes}
    return [
        GuestChange(-BEGIN_S, one.name, nodes[one.primary_node].name, GuestState.UP)
        for one in source.objects
        if isinstance(one, Instance)
        and one.admin_state is AdminState.UP
        and not nodes[one.primary_node].offline
    ]


_JOBS = (Kind.JOB_QUEUED, Kind.JOB_WAITS, Kind.JOB_RUNS, Kind.JOB_ENDED)
_NODE_STATES = {
    Kind.NODE_LOST: "failed",
    Kind.NODE_BACK: "up",
    Kind.LEASE_OVER: "lease over",
    Kind.NODE_OFFLINE: "offline",
    Kind.NODE_ONLINE: "online",
}
_GUEST_STATES = {
    Kind.GUEST_STARTS: GuestState.STARTS,
    Kind.GUEST_UP: GuestState.UP,
    Kind.GUEST_MOVED: GuestState.MOVED,
    Kind.GUEST_DOWN: GuestState.DOWN,
}


def _node_change(event: Traced, at: float) -> NodeChange | None:
    if event.kind is Kind.NODE_STATE:
        state, _, why = event.detail.partition(": ")
        return NodeChange(at, event.name, state, why)
    state = _NODE_STATES.get(event.kind, "")
    return NodeChange(at, event.name, state, event.detail) if state else None


def _job_record(view: JobView, offset: float) -> JobRecord:
    def at(seconds: float | None) -> float | None:
        return None if seconds is None else seconds - offset

    ops = tuple(
        OpRecord(
            summary=one.op.summary(),
            status=one.status.value,
            start=at(one.start),
            exec=at(one.exec),
            end=at(one.end),
            error=_error_of(one.result) if one.status is JobStatus.ERROR else "",
            has_no_room=one.status is JobStatus.ERROR and _has_no_room(one.result),
        )
        for one in view.ops
    )
    return JobRecord(view.id, view.status.value, view.received - offset, ops, at(view.end))


def _error_of(result: Any) -> str:
    match result:
        case [str(), [message, *_]]:
            return str(message)
    return str(result)


def _has_no_room(result: Any) -> bool:
    match result:
        case [str(), [_message, code, *_]]:
            return str(code) == ErrorCode.NO_RESOURCES.value
    return False


def _creation(create: Create) -> OpInstanceCreate:
    return OpInstanceCreate(
        instance_name=f"new{create.number}.example.com",
        disk_template=create.template,
        disks=[DiskRequest(size=create.disk)],
        nics=[NicRequest()],
        os_type=OS,
        beparams={"maxmem": create.memory, "minmem": create.memory, "vcpus": create.vcpus},
        iallocator="hail",
    )


def _policy(change: Change) -> OpClusterSetParams:
    ratios = {"vcpu-ratio": change.vcpu_ratio, "spindle-ratio": change.spindle_ratio}
    ipolicy = {name: value for name, value in ratios.items() if value is not None}
    given: dict[str, Any] = {}
    if ipolicy:
        given["ipolicy"] = ipolicy
    if change.recovery is not None:
        given["beparams"] = {"recovery": change.recovery.value}
    if change.fence_methods is not None:
        given["ndparams"] = {"fence_methods": change.fence_methods}
    if change.n_plus_1 is not None:
        given["default_iallocator_params"] = (
            {} if change.n_plus_1 else {"no-capacity-checks": "yes"}
        )
    return OpClusterSetParams(**given)
