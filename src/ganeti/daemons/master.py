"""The master daemon's services: state, jobs, calls to nodes, and the socket for clients."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec

from ganeti import __version__
from ganeti.api.audit import MasterAudit
from ganeti.api.event_log import EventLog
from ganeti.api.ha_status import HaStatus
from ganeti.api.last_verify import VERIFY_OPS, last_verify
from ganeti.api.leased import LeasedDispatcher
from ganeti.api.login_links import LoginLinks
from ganeti.api.luxi_methods import AUDITED, LuxiMethods
from ganeti.api.luxi_server import Dispatcher
from ganeti.api.rest_methods import RestMethods
from ganeti.api.watcher_pause import WatcherPauseFile
from ganeti.base import tls
from ganeti.base.addresses import is_loopback
from ganeti.base.clock import SystemClock
from ganeti.base.errors import GanetiError, NotMaster, StoreError
from ganeti.base.ids import RandomIds
from ganeti.base.node_files import MASTER_AUDIT_LOG
from ganeti.base.paths import Paths
from ganeti.base.state_kinds import EMBEDDED
from ganeti.base.users import RAPI, ServiceUsers
from ganeti.bootstrap.daemons import Daemons
from ganeti.config.config import Config
from ganeti.config.snapshot import Snapshot
from ganeti.config.ssconf_writer import SsconfDistributor
from ganeti.config.transaction import Draft
from ganeti.daemons.announcer import EpochAnnouncer, register_states
from ganeti.daemons.backup_schedules import BackupScheduler
from ganeti.daemons.built_in_allocator import BuiltInAllocator
from ganeti.daemons.candidate_resources import CandidateResources, open_servers
from ganeti.daemons.candidates import NodeDirectory, RpcVoters
from ganeti.daemons.confd_copies import ConfdCopies
from ganeti.daemons.fencing import PowerFencing
from ganeti.daemons.figures import figures
from ganeti.daemons.master_address import MasterAddress
from ganeti.daemons.membership import MembershipKeeper
from ganeti.daemons.recovery import Mastership, RecoveryDriver
from ganeti.daemons.renewal import CryptoRenewal
from ganeti.daemons.rest_daemon import RestDaemon
from ganeti.daemons.ssconf_push import SsconfPush
from ganeti.daemons.storage_fencing import StorageFencing
from ganeti.daemons.webhook_post import WebhookPoster
from ganeti.daemons.webhooks import Parts, WebhookSender
from ganeti.jobs.queue import JobQueue
from ganeti.locking.levels import Level
from ganeti.locking.manager import LockManager
from ganeti.node.hooks import filled
from ganeti.query.consoles import ConsoleSource
from ganeti.query.execute import ClusterFacts, QueryExecutor
from ganeti.query.filter_changes import FilterChanges
from ganeti.query.history import HistorySource
from ganeti.query.job_filters import job_rules
from ganeti.query.live import LiveSource
from ganeti.query.screenshots import ScreenshotSource
from ganeti.rpc.client import RpcClient
from ganeti.rpc.hook_reports import HookReports
from ganeti.rpc.node_changes import NodeChanges
from ganeti.rpc.stale_work import StaleWorkFence
from ganeti.rpc.transport import HttpsTransport
from ganeti.store.archive import JobArchive
from ganeti.store.archive_feed import ArchiveFeed, ReplicatedArchive
from ganeti.store.backend import Fence, StateBackend
from ganeti.store.backends import StateServers
from ganeti.store.backup_file import BackupFiles
from ganeti.store.interface import Identity, Lease, Master
from ganeti.store.lease_gate import LeaseGate
from ganeti.store.room import RoomFile
from ganeti.store.settings import state_settings
from ganeti.store.stream import Peers
from ganeti.store.worker import Worker
from ganeti.units.missing_objects import NodePrograms
from ganeti.units.node_data import NodeData
from ganeti.units.placements import Placements
from ganeti.units.processor import Processor
from ganeti.units.services import RegisterState, Services, no_secret
from ganeti.units.survey import Survey

NODE_DATA_AGE_S = 2.0
"""Maximum age of node data that an allocator receives, in seconds."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CandidateParts:
    """The parts of a candidate that both roles use."""

    paths: Paths
    identity: Identity
    store: StateBackend
    directory: NodeDirectory
    worker: Worker
    """Threads for blocking calls that have no thread of their own."""
    peers: Peers
    voters: RpcVoters
    fence: Fence
    archive: JobArchive | None = None
    """None if the archive could not be opened."""


class Part(Protocol):
    """A service that a master starts and closes with its mastership."""

    def start(self) -> None: ...
    async def close(self) -> None: ...


class MasterServices:
    """The services that run on this candidate while it is the master."""

    def __init__(self, node: "CandidateParts", lease: Lease, lost: Callable[[str], None]) -> None:
        self._node = node
        self._paths = node.paths
        self._lease = lease
        self._lost = lost
        self._gate = LeaseGate(
            lambda: node.fence.holds(lease.epoch),
            lambda: node.store.statistics().role != Master(lease),
        )
        self._clock = SystemClock()
        self._ids = RandomIds()
        self._audit = MasterAudit(node.paths.log / MASTER_AUDIT_LOG, self._clock)
        self._opened = AsyncExitStack()
        self._built_in = BuiltInAllocator(self._paths)
        self._post = WebhookPoster(self._clock)
        self._jobs: JobQueue | None = None
        self._queries: QueryExecutor | None = None

    async def start(self) -> Dispatcher:
        """Start, and return the object that answers clients; GanetiError gives the reason of a failure."""
        try:
            return LeasedDispatcher(await self._start(), self._gate, AUDITED)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop as after a crash, but with all files closed; jobs continue under the next master."""
        await self._opened.aclose()

    async def _start(self) -> LuxiMethods:
        store, lease, identity = self._node.store, self._lease, self._node.identity
        keep_old = partial(keep_old_state, self._paths, BackupFiles(store, self._node.worker))
        config = await Config.load(store, lease, self._clock, self._ids, keep_old=keep_old)
        self._opened.push_async_callback(config.close)
        config.on_changed = self._audit.changed
        config.on_lost = self._step_down
        await _say_who_is_master(config, identity)
        self._node.directory.take(config.snapshot.nodes.values())
        await self._announce()
        rpc = self._rpc_client(identity, lease, config)
        self._opened.push_async_callback(rpc.close)
        distributor = SsconfDistributor(config, SsconfPush(rpc))
        self._opened.push_async_callback(distributor.close)
        archive = self._archive()
        servers = open_servers(self._paths, identity.cluster_uuid, rpc)
        self._opened.push_async_callback(servers.close)
        resources = CandidateResources(self._paths, servers)
        members = MembershipKeeper(
            store,
            lease,
            config,
            rpc,
            resources=resources,
            directory=self._node.directory,
            settle=distributor.settle,
            candidates_are=archive.candidates_are,
        )
        fence, locks = StaleWorkFence(rpc), LockManager(self._clock)
        renewal = CryptoRenewal(
            self._paths,
            config,
            rpc,
            self._clock,
            settle=distributor.settle,
            candidates=members,
        )
        power = PowerFencing(
            config,
            rpc,
            identity.node_uuid,
            ids=self._ids,
            clock=self._clock,
            audit=self._audit,
        )
        recovery = RecoveryDriver(
            config,
            rpc,
            self._clock,
            power=power,
            storage=StorageFencing(config, rpc, self._clock, self._audit),
            master=Mastership(lease.epoch, lambda: self._node.fence.majority_at(lease.epoch)),
            queue=self._open_queue,
            is_locked=partial(is_locked, locks),
        )
        services = self._services(
            config=config,
            rpc=fence,
            hook_reports=rpc.hook_reports,
            node_changes=rpc.node_changes,
            distributor=distributor,
            members=members,
            servers=servers,
            renewal=renewal,
            power=power,
            recovery=recovery,
        )
        queue = self._queue(config, locks, services, archive)
        distributor.start()
        await queue.load()
        self._keep(fence.sweep(lambda: list(config.snapshot.nodes.values())), "stale work")
        self._begin(members)
        self._begin(renewal)
        self._begin(power)
        self._begin(recovery)
        self._begin(
            BackupScheduler(config, queue, clock=self._clock, ids=self._ids, audit=self._audit)
        )
        self._begin(ConfdCopies(config, rpc, lambda: resources.confd_keys()[0]))
        self._begin(MasterAddress(config, rpc, lease.epoch))
        self._start_rest(config, rpc)
        _log.info("master of cluster %s in epoch %d", config.snapshot.cluster.name, lease.epoch)
        return self._methods(queue, services, locks, rpc)

    def _begin(self, part: "Part") -> None:
        """Start a service that runs as long as this node is the master."""
        part.start()
        self._opened.push_async_callback(part.close)

    def _start_rest(self, config: Config, rpc: RpcClient) -> None:
        if Daemons(self._paths).has_rest:
            self._begin(RestDaemon(config, rpc, self._lease.epoch))

    async def _announce(self) -> None:
        """Announce the epoch to the nodes without a vote, now and while this node is the master."""
        node = self._node
        announcer = EpochAnnouncer(
            node.voters, node.store, node.directory, node.identity, self._lease
        )
        await announcer.announce()
        self._keep(announcer.run(), "announcing the epoch")

    def _services(  # noqa: PLR0913 - each becomes a field
        self,
        *,
        config: Config,
        rpc: StaleWorkFence,
        hook_reports: HookReports,
        node_changes: NodeChanges,
        distributor: SsconfDistributor,
        members: MembershipKeeper,
        servers: StateServers,
        renewal: CryptoRenewal,
        power: PowerFencing,
        recovery: RecoveryDriver,
    ) -> Services:
        """Return the services that the units use."""
        store, built_in = self._node.store, self._built_in
        self._opened.push_async_callback(built_in.close)
        self._opened.push_async_callback(self._post.close)
        return Services(
            config=config,
            rpc=rpc,
            ids=self._ids,
            clock=self._clock,
            placements=Placements(),
            ssconf=distributor,
            candidates=members,
            is_degraded=lambda: store.is_degraded,
            state_faults=lambda: servers.faults(config.snapshot.master_candidates()),
            registers=self._registers,
            pending_undo=lambda: self._jobs.pending_undo() if self._jobs else (),
            node_data=NodeData(NODE_DATA_AGE_S, node_changes),
            built_in=built_in,
            renewal=renewal,
            recovery=recovery,
            elects_master=state_settings(self._paths).kind != EMBEDDED,
            power=power,
            webhook_post=self._post,
            queries=lambda: self._queries,
            domain_secret=self._domain_secret,
            own_hooks=partial(filled, self._paths.hooks),
            hook_reports=hook_reports,
        )

    async def _registers(self) -> Sequence[RegisterState]:
        """Return each node's answer to this master's renewals of its epoch."""
        voters = (await self._node.store.members()).voters
        node = self._node
        return register_states(
            node.voters.answers, voters, self._lease.epoch, node.identity.node_uuid
        )

    def _domain_secret(self) -> str:
        """Return the secret of the clusters with which this cluster exchanges instances."""
        try:
            found = self._paths.cluster_domain_secret.read_text("ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            found = ""
        return found or no_secret()

    def _archive(self) -> ReplicatedArchive:
        """Return the archive of jobs with its replication to the other candidates.

        StoreError without an archive.
        """
        node = self._node
        if node.archive is None:
            raise StoreError(
                f"the archive of jobs {self._paths.job_archive} could not be opened when this "
                "daemon started; see the daemon's log"
            )
        feed = ArchiveFeed(node.identity, self._lease.epoch, node.peers, node.archive)
        self._opened.push_async_callback(feed.close)
        return ReplicatedArchive(node.archive, feed, node.store.members)

    def _queue(
        self, config: Config, locks: LockManager, services: Services, archive: ReplicatedArchive
    ) -> JobQueue:
        """Return the queue of jobs, still empty."""
        store = self._node.store
        queue = self._jobs = JobQueue(
            store,
            self._lease,
            config,
            locks,
            Processor(services),
            clock=self._clock,
            archive=archive,
            raise_ceiling=partial(store.raise_job_id_ceiling, self._lease),
            room=RoomFile(
                self._paths.state_room,
                self._node.worker,
                heirs=(self._paths.state, self._paths.job_archive),
            ),
            make_rulebook=job_rules,
        )
        self._opened.push_async_callback(queue.close)
        queue.on_lost = self._step_down
        return queue

    def _open_queue(self) -> JobQueue:
        assert self._jobs is not None  # noqa: S101 - recovery begins after the queue has been read
        return self._jobs

    def _keep(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a coroutine for as long as this node is the master."""
        task = asyncio.create_task(work, name=name)

        async def end() -> None:
            task.cancel()
            await asyncio.wait((task,))

        self._opened.push_async_callback(end)

    def _methods(
        self, queue: JobQueue, services: Services, locks: LockManager, rpc: RpcClient
    ) -> LuxiMethods:
        config = services.config
        ha_status = HaStatus(
            lambda: config.snapshot, services.recovery.status, services.elects_master
        )
        live = LiveSource(rpc, self._clock, lambda: rpc.changes)
        self._opened.push_async_callback(live.close)
        events = EventLog(self._node.store)
        events.follow(config.subscribe)
        self._opened.push_async_callback(events.close)
        queue.on_change = events.job_changed
        webhooks = WebhookSender(Parts(config, events, self._post, self._clock), self._ids)
        self._begin(webhooks)
        rest = RestMethods(
            events,
            lambda: f"{config.snapshot.position}.{rpc.changes}",
            lambda: {
                **figures(queue, config.snapshot, self._node.store, locks, rpc),
                **ha_status.figures(),
                "webhooks": webhooks.figures(),
            },
            lambda: config.snapshot,
            ConsoleSource(rpc),
            HistorySource(rpc, self._clock),
            Survey(services, self._built_in),
            lambda: last_verify(queue.of_kind(*VERIFY_OPS)),
            self._audit.latest,
            queue,
            LoginLinks(self._clock),
        )
        users = ServiceUsers.of_node(self._paths)
        pause = WatcherPauseFile(self._paths.watcher_pause, self._clock)
        facts = ClusterFacts(lambda: queue.is_drained, pause.until)
        queries = QueryExecutor(lambda: config.snapshot, queue, locks.snapshot, live, facts)
        self._queries = queries
        return LuxiMethods(
            queue=queue,
            config=_Shown(config, self._node.store, state_settings(self._paths).kind),
            queries=queries,
            watcher_pause=pause,
            screenshots=ScreenshotSource(rpc),
            filters=FilterChanges(config, self._ids, self._clock, queue.greatest_id),
            backups=BackupFiles(self._node.store, self._node.worker),
            clock=self._clock,
            audit=self._audit,
            ha_status=ha_status,
            programs=NodePrograms(rpc, has_built_in=True),
            more=rest.table(),
            rest_uid=users.accounts[RAPI].uid if users else None,
        )

    def _rpc_client(self, identity: Identity, lease: Lease, config: Config) -> RpcClient:
        context = tls.client_context(
            self._paths.node_certificate, self._paths.node_key, self._paths.authority_certificate
        )
        own = config.snapshot.nodes[identity.node_uuid].primary_ip
        # Nodes of a virtual cluster on loopback addresses identify each other by their real
        # addresses this way.
        transport = HttpsTransport(context, own if is_loopback(own) else None)
        return RpcClient(
            transport, lambda: (lease.epoch, identity.node_uuid), self._superseded, self._gate
        )

    def _superseded(self, why: str) -> None:
        self._lost(f"another master has taken over: {why}")

    def _step_down(self, err: GanetiError) -> None:
        self._lost(err.message)


def is_locked(locks: LockManager, instance_name: str) -> bool:
    """Return whether a job holds an instance."""
    found = locks.info(Level.INSTANCE, instance_name)
    return found is not None and bool(found.owners)


async def keep_old_state(paths: Paths, backups: BackupFiles) -> None:
    """Preserve the state for a downgrade.

    An existing copy predates the first change and is kept (G28, F35).
    """
    path = paths.state_before(__version__)
    if not path.exists():
        await backups.write(path)
        _log.info("the state of the earlier version is preserved in %s", path)


@dataclass(frozen=True)
class _Shown:
    """The configuration for clients; it reports at once that the master has no other voter (R6)."""

    config: Config
    store: StateBackend
    kind: str

    @property
    def snapshot(self) -> Snapshot:
        return self.config.snapshot

    @property
    def degraded(self) -> bool:
        return self.store.is_degraded

    async def state(self) -> dict[str, Any]:
        nodes = self.snapshot.nodes
        holders = (await self.store.members()).holders
        names = sorted(nodes[uuid].name if uuid in nodes else uuid for uuid in holders)
        return {"kind": self.kind, "holders": names}


async def _say_who_is_master(config: Config, identity: Identity) -> None:
    """Write this node into the configuration as the master, if it names another node."""
    cluster = config.snapshot.cluster
    if cluster.master_node == identity.node_uuid:
        return
    if identity.node_uuid not in config.snapshot.nodes:
        raise NotMaster("the configuration does not contain this node")

    def change(draft: Draft) -> None:
        draft.put(msgspec.structs.replace(draft.cluster, master_node=identity.node_uuid))

    await config.change(change)
