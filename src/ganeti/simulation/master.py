"""One mastership in a simulation: the real services of the master, with ports that need no files."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial

import msgspec

from ganeti.config.config import Config
from ganeti.config.ssconf_writer import SsconfDistributor
from ganeti.config.transaction import Draft
from ganeti.daemons.allocation_client import AllocationClient
from ganeti.daemons.allocation_worker import Worker
from ganeti.daemons.fencing import PowerFencing
from ganeti.daemons.master import NODE_DATA_AGE_S, is_locked
from ganeti.daemons.recovery import Mastership, RecoveryDriver
from ganeti.daemons.ssconf_push import SsconfPush
from ganeti.daemons.storage_fencing import StorageFencing
from ganeti.jobs.queue import JobQueue
from ganeti.locking.manager import LockManager
from ganeti.model.objects import Node, NodeUuid
from ganeti.query.execute import ClusterFacts, QueryExecutor
from ganeti.query.job_filters import job_rules
from ganeti.query.live import LiveSource
from ganeti.recovery.power import PowerResult, StorageResult
from ganeti.rpc.client import RpcClient
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.stale_work import StaleWorkFence
from ganeti.simulation.faulty_store import FaultyStore
from ganeti.simulation.nodes.simulated import SimulatedNode
from ganeti.simulation.nodes.world import World
from ganeti.simulation.trace import Kind
from ganeti.simulation.transport import SimulatedTransport
from ganeti.store.backend import become_master
from ganeti.units.node_data import NodeData
from ganeti.units.placements import Placements
from ganeti.units.processor import Processor
from ganeti.units.services import Services


@dataclass
class MemoryArchive:
    """The archive of jobs."""

    content: dict[int, bytes] = field(default_factory=dict)

    async def append(self, jobs: Sequence[tuple[int, bytes]]) -> None:
        self.content.update(jobs)

    async def get(self, job_id: int) -> bytes | None:
        return self.content.get(job_id)

    async def ids(self, *, limit: int, below: int | None) -> list[int]:
        ids = sorted(self.content, reverse=True)
        return [one for one in ids if below is None or one < below][:limit]

    async def greatest_id(self) -> int:
        return max(self.content, default=0)


class WillingCandidates:
    """Nodes become candidates, and cease to be, without work."""

    async def promote(self, node: Node) -> None: ...

    async def demote(self, node: Node) -> None: ...

    async def enforce(self, node: Node) -> None: ...


class TracedPower:
    """The record of attempts to switch nodes off."""

    def __init__(self, world: World) -> None:
        self._trace = world.trace

    def power_cut(self, node: str, device: str, result: PowerResult, seconds: float) -> None:
        detail = f"{device}: {result.detail} ({seconds:.0f} s)"
        self._trace.add(Kind.POWER_CUT, node, detail)

    def storage_fenced(self, node: str, result: StorageResult, seconds: float) -> None:
        """Do nothing: the trace has the state of the node, with the reason."""


class SimulatedMaster:
    """What runs on the master's node; `start` begins a mastership, `die` ends it without notice."""

    def __init__(
        self,
        world: World,
        nodes: Mapping[str, SimulatedNode],
        store: FaultyStore,
        archive: MemoryArchive,
        majority_at: Callable[[], float | None],
    ) -> None:
        self._world, self._nodes, self.store = world, nodes, store
        self._archive, self._majority_at = archive, majority_at
        self._opened = AsyncExitStack()

    async def start(self, node: NodeUuid, *, elects_master: bool) -> None:
        """Take a new epoch, and serve on a node."""
        world, clock, ids = self._world, self._world.clock, self._world.ids
        lease = await become_master(self.store)
        self.config = config = await Config.load(self.store, lease, clock, ids)
        self._opened.push_async_callback(config.close)
        await self._say_who_is_master(node)
        self.name = config.snapshot.nodes[node].name
        transport = SimulatedTransport(world, self.name, self._nodes)
        rpc = self.rpc = RpcClient(transport, lambda: (lease.epoch, node))
        distributor = SsconfDistributor(config, SsconfPush(rpc))
        self._opened.push_async_callback(distributor.close)
        fence, self.locks = StaleWorkFence(rpc), LockManager(clock)
        power = PowerFencing(config, rpc, node, ids=ids, clock=clock, audit=TracedPower(world))
        self.recovery = RecoveryDriver(
            config,
            rpc,
            world.recovery_time,
            power=power,
            storage=StorageFencing(config, rpc, clock, TracedPower(world)),
            master=Mastership(lease.epoch, self._majority_at),
            queue=lambda: self.queue,
            is_locked=self.is_locked,
        )
        services = Services(
            config=config,
            rpc=fence,
            ids=ids,
            clock=clock,
            placements=Placements(),
            ssconf=distributor,
            candidates=WillingCandidates(),
            hook_reports=rpc.hook_reports,
            own_hooks=partial(self._nodes[self.name].on_hooks_list, Nothing()),
            pending_undo=lambda: self.queue.pending_undo(),  # noqa: PLW0108 - the queue comes later
            node_data=NodeData(NODE_DATA_AGE_S, rpc.node_changes),
            built_in=AllocationClient(Worker().exchange),
            recovery=self.recovery,
            elects_master=elects_master,
            power=power,
            queries=lambda: self.queries,
        )
        self.queue = JobQueue(
            self.store,
            lease,
            config,
            self.locks,
            Processor(services),
            clock=clock,
            archive=self._archive,
            raise_ceiling=partial(self.store.raise_job_id_ceiling, lease),
            make_rulebook=job_rules,
        )
        self._opened.push_async_callback(self.queue.close)
        live = LiveSource(rpc, clock, lambda: rpc.changes)
        self._opened.push_async_callback(live.close)
        facts = ClusterFacts(lambda: self.queue.is_drained, _no_pause)
        self.queries = QueryExecutor(
            lambda: config.snapshot, self.queue, self.locks.snapshot, live, facts
        )
        distributor.start()
        await self.queue.load()
        sweep = asyncio.create_task(fence.sweep(lambda: list(config.snapshot.nodes.values())))
        self._opened.push_async_callback(partial(_end, sweep))
        self.recovery.start()
        self._opened.push_async_callback(self.recovery.close)
        self._opened.push_async_callback(power.close)

    def is_locked(self, instance: str) -> bool:
        """Return whether a job holds an instance."""
        return is_locked(self.locks, instance)

    async def die(self) -> None:
        """Be gone without notice: nothing more is written or answered."""
        self.store.crash()
        await self.close()

    async def close(self) -> None:
        """End everything, as after a crash."""
        await self._opened.aclose()

    async def _say_who_is_master(self, node: NodeUuid) -> None:
        if self.config.snapshot.cluster.master_node == node:
            return

        def change(draft: Draft) -> None:
            draft.put(msgspec.structs.replace(draft.cluster, master_node=node))

        await self.config.change(change)


async def _no_pause() -> None:
    return None


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))
