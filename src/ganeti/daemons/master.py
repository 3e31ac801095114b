"""The master, put together: state, jobs, calls to nodes, and the socket that clients talk to."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial

from ganeti.api.luxi_methods import LuxiMethods
from ganeti.api.luxi_server import LuxiServer
from ganeti.api.watcher_pause import WatcherPauseFile
from ganeti.base import certificates, tls
from ganeti.base.addresses import is_loopback
from ganeti.base.clock import SystemClock
from ganeti.base.errors import GanetiError, NotMaster, StoreError
from ganeti.base.ids import RandomIds
from ganeti.base.paths import Paths
from ganeti.config.config import Config
from ganeti.config.ssconf_writer import SsconfDistributor
from ganeti.daemons.master_address import MasterAddress
from ganeti.daemons.watchdog import LoopWatchdog
from ganeti.jobs.queue import JobQueue
from ganeti.locking.manager import LockManager
from ganeti.model.objects import Node, NodeUuid
from ganeti.query.execute import QueryExecutor
from ganeti.query.live import LiveSource
from ganeti.rpc.client import RpcClient
from ganeti.rpc.procedures import WRITE_SSCONF, SsconfArgs
from ganeti.rpc.transport import HttpsTransport
from ganeti.store.archive import JobArchive
from ganeti.store.electorate import SoleVoter
from ganeti.store.interface import Campaign, Identity, Lease
from ganeti.store.job_ids import raise_ceiling
from ganeti.store.register import RegisterFile
from ganeti.store.sqlite import SqliteStore
from ganeti.store.worker import Worker, WorkerExecutor
from ganeti.units.placements import Placements
from ganeti.units.processor import Processor
from ganeti.units.services import FlagsOnly, Services

_log = logging.getLogger(__name__)


class Master:
    """Everything that a master daemon runs; `lost` is called if it cannot go on being the master."""

    def __init__(self, paths: Paths, lost: Callable[[str], None]) -> None:
        self._paths = paths
        self._lost = lost
        self._clock = SystemClock()
        self._ids = RandomIds()
        self._opened = AsyncExitStack()

    async def start(self) -> None:
        """Become the master and serve; GanetiError says why that is not possible."""
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop as if we died, but with all files closed; jobs go on under the next master."""
        await self._opened.aclose()

    async def _start(self) -> None:
        watchdog = LoopWatchdog()
        watchdog.start()
        self._opened.push_async_callback(watchdog.stop)
        worker = Worker("rest")
        asyncio.get_running_loop().set_default_executor(WorkerExecutor(worker))
        self._opened.push_async_callback(worker.close)
        identity = await worker.call(partial(own_identity, self._paths))
        voter = SoleVoter(RegisterFile(self._paths.register), worker)
        store = await SqliteStore.open(self._paths.state, identity, voter)
        self._opened.push_async_callback(store.close)
        lease = await store.campaign(Campaign())
        config = await Config.load(store, lease, self._clock, self._ids)
        self._opened.push_async_callback(config.close)
        _check_is_master(config, identity)
        rpc = self._rpc_client(identity, lease, config)
        self._opened.push_async_callback(rpc.close)
        distributor = SsconfDistributor(config, partial(_push_ssconf, rpc))
        self._opened.push_async_callback(distributor.close)
        locks = LockManager(self._clock)
        services = Services(
            config=config,
            rpc=rpc,
            ids=self._ids,
            clock=self._clock,
            placements=Placements(),
            ssconf=distributor,
            candidates=FlagsOnly(),
        )
        queue = JobQueue(
            store,
            lease,
            config,
            locks,
            Processor(services),
            clock=self._clock,
            archive=await JobArchive.open(self._paths.job_archive, worker),
            raise_ceiling=partial(raise_ceiling, store, voter, identity.cluster_uuid, lease),
        )
        self._opened.push_async_callback(queue.close)
        config.on_lost = queue.on_lost = self._step_down
        distributor.start()
        await queue.load()
        await self._serve(queue, config, locks, rpc)
        address = MasterAddress(config, rpc, lease.epoch)
        address.start()
        self._opened.push_async_callback(address.close)
        _log.info("master of cluster %s in epoch %d", config.snapshot.cluster.name, lease.epoch)

    async def _serve(
        self, queue: JobQueue, config: Config, locks: LockManager, rpc: RpcClient
    ) -> None:
        live = LiveSource(rpc, self._clock, lambda: rpc.changes)
        self._opened.push_async_callback(live.close)
        methods = LuxiMethods(
            queue=queue,
            config=config,
            queries=QueryExecutor(lambda: config.snapshot, queue, locks.snapshot, live),
            watcher_pause=WatcherPauseFile(self._paths.data / "watcher.pause", self._clock),
            clock=self._clock,
        )
        server = LuxiServer(self._paths.luxi_socket, methods)
        await server.start()
        self._opened.push_async_callback(server.close)

    def _rpc_client(self, identity: Identity, lease: Lease, config: Config) -> RpcClient:
        context = tls.client_context(
            self._paths.node_certificate, self._paths.node_key, self._paths.authority_certificate
        )
        own = config.snapshot.nodes[identity.node_uuid].primary_ip
        # Nodes of a virtual cluster on loopback addresses see each other's real addresses this way.
        transport = HttpsTransport(context, own if is_loopback(own) else None)
        return RpcClient(transport, lambda: (lease.epoch, identity.node_uuid), self._superseded)

    def _superseded(self, why: str) -> None:
        self._lost(f"another master has taken over: {why}")

    def _step_down(self, err: GanetiError) -> None:
        self._lost(err.message)


async def _push_ssconf(
    rpc: RpcClient, node: Node, position: int, values: Mapping[str, str]
) -> None:
    """Give a node a set of ssconf files; RpcError if it does not have the set afterwards."""
    args = SsconfArgs(position=position, values=dict(values))
    await rpc.call(node, WRITE_SSCONF, args, key=f"ssconf/{position}")


def own_identity(paths: Paths) -> Identity:
    """Which node this is, by its certificate, and of which cluster, by its register."""
    node_uuid, _name = certificates.node_identity(paths.node_certificate.read_bytes())
    register = RegisterFile(paths.register).read()
    if register is None:
        raise StoreError(f"{paths.register} does not exist: this node has joined no cluster")
    return Identity(register.cluster_uuid, NodeUuid(node_uuid))


def _check_is_master(config: Config, identity: Identity) -> None:
    cluster = config.snapshot.cluster
    if cluster.master_node != identity.node_uuid:
        master = config.snapshot.nodes.get(cluster.master_node)
        name = master.name if master else cluster.master_node
        raise NotMaster(f"this node is not the master of {cluster.name}: that is {name}")
