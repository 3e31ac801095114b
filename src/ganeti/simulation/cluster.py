"""A whole cluster in one process and in virtual time: the real master, simulated nodes, a trace of what happens."""

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import Context
from dataclasses import dataclass
from typing import TypeVar

from ganeti.base.errors import GanetiError, InputError, NotMaster
from ganeti.config.fill import instance_spec
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import put_row
from ganeti.jobs.queue import JobQueue
from ganeti.jobs.view import JobView
from ganeti.model.fencing import parse_options
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import AdminState, DiskRole
from ganeti.model.objects import Cluster, Instance, NodeUuid
from ganeti.model.opcodes import OpCode
from ganeti.model.stored import Stored
from ganeti.simulation.durations import Durations
from ganeti.simulation.faulty_store import FaultyStore, MemoryDisk
from ganeti.simulation.master import MemoryArchive, SimulatedMaster
from ganeti.simulation.mastership import Candidates
from ganeti.simulation.network import Network
from ganeti.simulation.nodes.mirrors import Mirrors, is_mirrored
from ganeti.simulation.nodes.simulated import SimulatedNode
from ganeti.simulation.nodes.state import Guest
from ganeti.simulation.nodes.storage import SharedDirectory
from ganeti.simulation.nodes.world import World
from ganeti.simulation.observer import Observer
from ganeti.simulation.pace import Pace
from ganeti.simulation.recovery_time import RecoveryTime
from ganeti.simulation.simulation_loop import SimulationLoop
from ganeti.simulation.trace import Kind, Trace
from ganeti.simulation.virtual_time import LoopClock
from ganeti.store.interface import Identity
from ganeti.units.oob.device import power_device

SILENCE_S = 10.0
"""A master without a majority for so long ends (R9)."""
RARE_COLLECTION = 500_000, 20, 1000
"""Thresholds of the garbage collector: a day of 100 nodes takes a tenth longer with the usual ones."""

T = TypeVar("T")


@dataclass(frozen=True)
class Capacity:
    """What a node has."""

    memory: int = 65_536
    """MiB"""
    disk: int = 2_000_000
    """MiB, of each kind of local storage"""
    cpus: int = 16


class SimulatedCluster:
    """`objects` are the whole configuration, the cluster's own object among them; see `run`."""

    def __init__(
        self,
        objects: Iterable[Stored],
        *,
        durations: Durations | None = None,
        capacities: Mapping[str, Capacity] | None = None,
        seed: int = 0,
        elects_master: bool = True,
        skips_heartbeats: bool = True,
    ) -> None:
        """`capacities` are by names of nodes. `elects_master`: another candidate takes over by itself.

        `skips_heartbeats`: those that change nothing do not happen.
        """
        self._objects = list(objects)
        self.durations = durations or Durations()
        self._capacities = dict(capacities or {})
        self.dice = random.Random(seed)  # noqa: S311 - for chance, not for keys
        self._elects_master, self._skips_heartbeats = elects_master, skips_heartbeats
        self.trace = Trace(lambda: asyncio.get_running_loop().time())
        self.network = Network(self.dice, self.durations.rpc_s / 2)
        self.nodes: dict[str, SimulatedNode] = {}
        self.master: SimulatedMaster | None = None
        self._broken_power: set[str] = set()
        self._archive = MemoryArchive()
        self._new_master = ""
        self._electing: asyncio.Task[None] | None = None
        self._is_closing = False

    def run(self, scenario: Callable[["SimulatedCluster"], Awaitable[T]]) -> T:
        """Start the cluster, let the scenario happen to it, and return its result."""

        async def whole() -> T:
            await self._start()
            try:
                return await scenario(self)
            finally:
                await self._close()

        thresholds = gc.get_threshold()
        gc.set_threshold(*RARE_COLLECTION)
        try:
            with asyncio.Runner(loop_factory=SimulationLoop) as runner:
                return runner.run(whole())
        finally:
            gc.set_threshold(*thresholds)

    # What a scenario does

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return asyncio.get_running_loop().time()

    @property
    def snapshot(self) -> Snapshot:
        """The configuration as the master has acknowledged it."""
        return self._serving().config.snapshot

    @property
    def queue(self) -> JobQueue:
        """The job queue of the present master."""
        return self._serving().queue

    async def run_for(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def submit(self, *ops: OpCode) -> int:
        """Submit a job; return its number."""
        return await self.queue.submit(ops)

    def job(self, job_id: int) -> JobView | None:
        """Return a job of the queue."""
        return self.queue.view(job_id)

    async def finished(self, job_id: int) -> JobView:
        """Wait until a job has ended, perhaps under another master."""
        while True:
            master = self.master
            view = master.queue.view(job_id) if master is not None else None
            if view is not None and view.status.is_final:
                return view
            if master is None:
                await asyncio.sleep(1.0)
                continue
            try:
                await master.queue.wait_for_change(
                    job_id, lambda view: [view.status], [view and view.status], 2**40, 60.0
                )
            except GanetiError:
                await asyncio.sleep(1.0)

    async def idle(self, limit_s: float = 86_400.0) -> None:
        """Wait until no job is left to run."""
        async with asyncio.timeout(limit_s):
            while self.master is None or self._unended(self.master):  # noqa: ASYNC110 - several masters
                await asyncio.sleep(1.0)

    @staticmethod
    def _unended(master: SimulatedMaster) -> bool:
        found = (master.queue.status(job_id) for job_id in master.queue.ids())
        return any(status is not None and not status.is_final for status in found)

    def fail_node(self, name: str) -> None:
        """Let a node lose its power."""
        self.nodes[name].lose_power("its power has failed")

    def return_node(self, name: str) -> None:
        """Switch a node on; it answers once it has booted."""
        node, boots = self.nodes[name], self.nodes[name].boot_id

        def is_up() -> None:
            if node.boot_id == boots:
                node.get_power()

        asyncio.get_running_loop().call_later(self.world.seconds("node_boot_s"), is_up)

    def cut(self, one: Iterable[str], other: Iterable[str], *, both_ways: bool = True) -> None:
        """Cut the network between nodes."""
        one, other = list(one), list(other)
        self.network.cut(one, other, both_ways=both_ways)
        self.trace.add(Kind.LINK_CUT, ",".join(one), ",".join(other))
        self._changed()

    def heal(self, one: Iterable[str], other: Iterable[str]) -> None:
        """Repair the network between nodes."""
        one, other = list(one), list(other)
        self.network.heal(one, other)
        self.trace.add(Kind.LINK_HEALED, ",".join(one), ",".join(other))
        self._changed()

    def break_power_device(self, name: str, *, broken: bool = True) -> None:
        """Let the power device of a node not answer any more, or answer again."""
        (self._broken_power.add if broken else self._broken_power.discard)(name)

    # The beginning and the end

    async def _start(self) -> None:
        clusters = [one for one in self._objects if isinstance(one, Cluster)]
        if len(clusters) != 1:
            raise InputError("must contain one cluster", "objects")
        cluster = clusters[0]
        others = [one for one in self._objects if one is not cluster]
        snapshot = Snapshot.of(0, cluster, others=others)
        recovery_time = RecoveryTime()
        mirrors = Mirrors(
            rate_mib_s=self.durations.resync_mib_s,
            write_mib_s=self.durations.write_mib_s,
            reaches=self._reaches,
            in_sync=self._in_sync,
        )
        self.world = World(
            LoopClock(), recovery_time, self.durations, self.network, self.trace, self.dice, mirrors
        )
        self.world.node_with_device = self._node_with_device
        self.world.power_works = lambda name: name not in self._broken_power
        self.world.changed = self._changed
        self._make_nodes(snapshot)
        self._place_instances(snapshot)
        self._candidates = Candidates(self.world, self.nodes)
        self._candidates.follow(snapshot)
        self._pace = Pace(self.world, self.nodes, lambda: self.master)
        if self._skips_heartbeats:
            self._pace.begin()
        self._disk = MemoryDisk(Identity(cluster.uuid, cluster.master_node))
        for one in self._objects:
            row = put_row(one)
            self._disk.rows[row.kind, row.key] = row.value
        await self._begin_master(cluster.master_node)

    async def _close(self) -> None:
        self._is_closing = True
        if self._electing is not None:
            self._electing.cancel()
            await asyncio.wait((self._electing,))
        await self._end_master()
        self._pace.close()
        running = [task for node in self.nodes.values() for task in node.running]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    # Mastership

    async def _begin_master(self, node: NodeUuid) -> None:
        self._disk.identity = Identity(self._disk.identity.cluster_uuid, node)
        store = FaultyStore(self._disk, sync_s=self.durations.commit_s)
        master = SimulatedMaster(self.world, self.nodes, store, self._archive, self._confirmed_at)
        self._new_master = next(one.name for one in self.nodes.values() if one.uuid == node)
        await master.start(node, elects_master=self._elects_master)
        master.config.subscribe(self._candidates.follow)
        if self._skips_heartbeats:
            master.config.subscribe(self._pace.follow)
        self._candidates.follow(master.config.snapshot)
        self.master = master
        self._observer = Observer(master, self.trace, self.world.recovery_time)
        self.trace.add(Kind.MASTER, master.name)
        self._changed()

    async def _end_master(self) -> None:
        master, self.master = self.master, None
        if master is not None:
            self._observer.close()
            await master.die()

    def _confirmed_at(self) -> float | None:
        return self._candidates.confirmed_at(self._new_master)

    def _changed(self) -> None:
        """A node or a link is lost or back: mirrors connect again, and the master may have to be another one."""
        self.world.mirrors.settle_all()
        master = self.master
        if master is not None:
            self._observer.look(again=self._is_disturbed())
        is_lost = master is None or not self._candidates.has_majority(master.name)
        if is_lost and self._electing is None and not self._is_closing:
            loop = asyncio.get_running_loop()
            self._electing = loop.create_task(self._elect(), name="election", context=Context())

    def _reaches(self, one: str, other: str) -> bool:
        is_up = not (self.nodes[one].is_off or self.nodes[other].is_off)
        is_cut = self.network.is_cut(one, other) or self.network.is_cut(other, one)
        return is_up and not is_cut

    def _in_sync(self, disk: DiskSpec, node: str) -> None:
        self.trace.add(Kind.DISK_IN_SYNC, disk.uuid, f"disk {disk.index}", node=node)

    def _is_disturbed(self) -> bool:
        return any(node.is_off for node in self.nodes.values()) or self.network.is_disturbed

    async def _elect(self) -> None:
        """Let the master end that reaches no majority, and another one begin."""
        try:
            name = self._new_master
            if self.nodes[name].is_off:
                self.trace.add(Kind.MASTER_LOST, name, "its node is lost")
                await self._end_master()
            else:
                await asyncio.sleep(SILENCE_S)
                if self._candidates.has_majority(name):
                    return
                self.trace.add(Kind.MASTER_LOST, name, "it reaches no majority")
                await self._end_master()
            if self._elects_master:
                await asyncio.sleep(self.durations.election_s)
                while (found := self._candidates.next_after(name)) is None:  # noqa: ASYNC110 - any change of nodes and links
                    await asyncio.sleep(1.0)
                await self._begin_master(found[1])
        finally:
            self._electing = None

    async def fail_over_master(self, name: str) -> None:
        """Let a candidate become the master, as an administrator asks it to."""
        await self._end_master()
        await self._begin_master(NodeUuid(self.nodes[name].uuid))

    def _serving(self) -> SimulatedMaster:
        if self.master is None:
            raise NotMaster("the cluster has no master now")
        return self.master

    # Machines

    def _make_nodes(self, snapshot: Snapshot) -> None:
        self.world.shared.total = 10**12
        oses = {_os_name(one): "1.0" for one in snapshot.instances.values()}
        for node in snapshot.nodes_by_name():
            has = self._capacities.get(node.name, Capacity())
            made = self.nodes[node.name] = SimulatedNode(
                node.name,
                snapshot.cluster.uuid,
                self.world.shared,
                world=self.world,
                memory=has.memory,
                cpus=has.cpus,
                local=SharedDirectory(total=has.disk),
                uuid=node.uuid,
                oses=dict(oses),
            )
            made.groups = {snapshot.cluster.vg_name: SharedDirectory(total=has.disk)}
            made.is_off = node.offline
        peers = dict(self.nodes)
        for node in snapshot.nodes_by_name():
            peers |= dict.fromkeys((node.primary_ip, node.secondary_ip), self.nodes[node.name])
        for made in self.nodes.values():
            made.peers = peers

    def _node_with_device(self, agent: str, options: Mapping[str, str]) -> str | None:
        snapshot = self._serving().config.snapshot
        for node in snapshot.nodes_by_name():
            device = power_device(snapshot, node)
            is_named = device is not None and device.agent == agent
            if device is not None and is_named and parse_options(device.options) == options:
                return node.name
        return None

    def _place_instances(self, snapshot: Snapshot) -> None:
        bridges = {str(snapshot.cluster.nicparams.get("default", {}).get("link", "br0"))}
        for instance in snapshot.instances.values():
            for uuid in instance.all_nodes:
                node = self.nodes[snapshot.nodes[uuid].name]
                spec = instance_spec(snapshot, instance, uuid)
                bridges |= {nic.link for nic in spec.nics}
                is_up = instance.admin_state is AdminState.UP and not node.is_off
                is_primary = uuid == instance.primary_node
                for disk in spec.disks:
                    node.place_disk(disk)
                    if is_up and is_mirrored(disk):
                        role = DiskRole.PRIMARY if is_primary else DiskRole.SECONDARY
                        node.mirrors.add(node.name, disk).role = role
                if is_primary and is_up:
                    node.guests[instance.uuid] = Guest(spec)
        for node in self.nodes.values():
            node.bridges |= bridges
        self.world.mirrors.settle_all()


def _os_name(instance: Instance) -> str:
    return instance.os.partition("+")[0]
