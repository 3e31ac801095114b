"""A master candidate's daemon: one process, in the role of master or of follower (R7-R9).

start: follower --this node was the master: vote, again and again--> master
follower --gnt-cluster master-failover: hand-over or vote, or force--> master
master --a greater epoch, no majority, an unknown commit--> follower
any --broken disk--> the end
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Any

from ganeti import ssconf
from ganeti.api.luxi_server import Dispatcher, LuxiServer
from ganeti.api.not_master import NotMasterMethods
from ganeti.base import tls
from ganeti.base.addresses import address_of_environment, is_loopback
from ganeti.base.errors import GanetiError, NotMaster, StoreError
from ganeti.base.paths import Paths
from ganeti.bootstrap.membership import own_identity
from ganeti.daemons.candidates import NodeDirectory, RpcVoters, TlsPeers, listening
from ganeti.daemons.garbage import OldObjects
from ganeti.daemons.master import CandidateParts, Mastership
from ganeti.daemons.watchdog import LoopWatchdog
from ganeti.model.objects import NodeUuid
from ganeti.node.membership import CandidateCertificates
from ganeti.rpc.client import RpcClient
from ganeti.rpc.transport import HttpsTransport
from ganeti.store.archive import JobArchive
from ganeti.store.following import Ports
from ganeti.store.interface import Campaign, CampaignKind, Follower, Lost, Master
from ganeti.store.register import RegisterFile
from ganeti.store.replicated import NotYet, ReplicatedStore
from ganeti.store.worker import Worker, WorkerExecutor

FIRST_TRIES_S = 5.0
"""How long the start of the daemon waits for a vote before it goes on as a follower."""
AGAIN_S = 1.0
AFTER_LOSS_S = 5.0
TAKE_OVER_S = 45.0
"""How long a take-over tries while a vote may come yet (G19: done in 60 s, refused in 90)."""
OVERTAKEN_S = 10.0
"""How long it tries after a refusal that only another campaign, or nobody, will change."""

_log = logging.getLogger(__name__)


class Member:
    """The daemon; `ended` is called if it cannot go on."""

    def __init__(
        self,
        paths: Paths,
        ended: Callable[[str], None],
        *,
        force: bool = False,
        luxi_group: int | None = None,
    ) -> None:
        self._paths = paths
        self._luxi_group = luxi_group
        self._ended = ended
        self._force = force
        self._opened = AsyncExitStack()
        self._parts: CandidateParts | None = None
        self._mastership: Mastership | None = None
        self._server: LuxiServer | None = None
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._old_objects = OldObjects()

    @property
    def _store(self) -> ReplicatedStore:
        return self._require_parts().store

    def _require_parts(self) -> CandidateParts:
        if self._parts is None:
            raise NotMaster("this daemon is starting")
        return self._parts

    async def start(self) -> None:
        """Serve in one of the roles; GanetiError says why that is not possible."""
        try:
            await self._open()
            await self._first_role()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop as if we died, but with all files closed."""
        self._is_closing = True
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        await self._end_mastership()
        await self._opened.aclose()

    async def _open(self) -> None:
        watchdog = LoopWatchdog()
        watchdog.start()
        self._opened.push_async_callback(watchdog.stop)
        self._old_objects.start()
        self._opened.push_async_callback(self._old_objects.stop)
        worker = Worker("rest")
        asyncio.get_running_loop().set_default_executor(WorkerExecutor(worker))
        self._opened.push_async_callback(worker.close)
        identity = await worker.call(partial(own_identity, self._paths))
        files = (
            self._paths.node_certificate,
            self._paths.node_key,
            self._paths.authority_certificate,
        )
        address = address_of_environment()
        local = address if is_loopback(address) else None
        directory = NodeDirectory()
        rpc = RpcClient(HttpsTransport(tls.client_context(*files), local), lambda: (0, ""))
        self._opened.push_async_callback(rpc.close)
        register = RegisterFile(self._paths.register)
        archive = await self._open_archive(worker)
        ports = Ports(
            voters=RpcVoters(identity.node_uuid, register, worker, rpc, directory),
            peers=TlsPeers(tls.client_context(*files), directory, local),
            register=register,
            worker=worker,
            archive=archive,
        )
        store = await ReplicatedStore.join(self._paths.state, identity, ports)
        self._opened.push_async_callback(store.close)
        await directory.read(store)
        self._parts = CandidateParts(self._paths, identity, store, directory, worker, archive)
        await self._opened.enter_async_context(
            listening(
                tls.server_context(*files),
                address or self._own_address(identity.node_uuid),
                CandidateCertificates(self._paths),
                store.serve,
            )
        )
        self._opened.push_async_callback(self._close_server)
        await self._answer_with(NotMasterMethods(self._where, self._take_over))
        self._spawn(self._watch_role(), "role")

    async def _open_archive(self, worker: Worker) -> JobArchive | None:
        """None if it is damaged: that takes no follower away, only a master cannot do without."""
        try:
            archive = await JobArchive.open(self._paths.job_archive, worker)
        except StoreError as err:
            _log.error("%s; this node cannot be the master until it is moved aside", err)
            return None
        self._opened.push_async_callback(archive.close)
        return archive

    def _own_address(self, uuid: NodeUuid) -> str | None:
        node = self._require_parts().directory.nodes.get(uuid)
        return node.primary_ip if node else None

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Roles

    async def _first_role(self) -> None:
        """The master that this node was, if a vote confirms it soon; else a follower."""
        if self._force:
            for line in await self._take_over(True):
                _log.warning("%s", line)
            return
        if not await self._was_master():
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + FIRST_TRIES_S
        while loop.time() < end:
            try:
                await self._become(Campaign())
            except NotMaster as err:
                _log.info("not the master yet: %s", err)
                await asyncio.sleep(AGAIN_S / 4)
            else:
                return
        self._spawn(self._confirm(0.0), "confirm")

    async def _was_master(self) -> bool:
        """Whether this node was the last master that it knows of."""
        return await self._last_master() == self._require_parts().identity.node_uuid

    async def _last_master(self) -> NodeUuid | None:
        """The master that was registered last, as far as this node knows."""
        worker = self._require_parts().worker
        register = await worker.call(RegisterFile(self._paths.register).read)
        accepted = register.accepted if register else None
        return accepted.master if accepted else None

    async def _confirm(self, delay_s: float) -> None:
        """Ask to go on as the master until that is granted, or another one is known."""
        said = ""
        await asyncio.sleep(delay_s)
        while self._mastership is None and await self._was_master():
            try:
                await self._become(Campaign())
            except GanetiError as err:
                if err.message != said:
                    _log.info("not the master: %s", err)
                said = err.message
            await asyncio.sleep(AGAIN_S)

    async def _become(self, how: Campaign) -> None:
        """Campaign, and serve as the master."""
        async with self._changing:
            if self._mastership is not None or self._is_closing:
                return
            parts = self._require_parts()
            await parts.directory.read(parts.store)
            lease = await parts.store.campaign(how)
            mastership = Mastership(parts, lease, self._step_down)
            try:
                methods = await mastership.start()
            except BaseException:
                await parts.store.step_down("this node could not begin as the master")
                raise
            self._mastership = mastership
            if self._server is not None:
                # Whoever is connected goes on with the master, also the caller of a take-over.
                self._server.dispatcher = methods

    def _step_down(self, why: str) -> None:
        """The master's parts say that they cannot go on in this epoch (R13)."""
        if not self._is_closing:
            self._spawn(self._store.step_down(why), "step down")

    async def _watch_role(self) -> None:
        async with aclosing(self._store.role_changes()) as roles:
            async for role in roles:
                if isinstance(role, Lost):
                    self._ended(role.reason)
                elif isinstance(role, Follower) and role.reason and self._mastership is not None:
                    _log.warning("not the master any more: %s", role.reason)
                    async with self._changing:
                        if not isinstance(self._store.statistics().role, Master):
                            await self._end_mastership()
                    self._spawn(self._confirm(AFTER_LOSS_S), "confirm")

    async def _end_mastership(self) -> None:
        mastership, self._mastership = self._mastership, None
        if mastership is None:
            return
        await mastership.close()
        del mastership
        if not self._is_closing:
            await self._answer_with(NotMasterMethods(self._where, self._take_over))
            self._old_objects.sweep()  # a queue that has ended is garbage

    async def _answer_with(self, dispatcher: Dispatcher) -> None:
        """Whoever is connected is let go, and connects again to the new role."""
        await self._close_server()
        server = LuxiServer(self._paths.luxi_socket, dispatcher, group=self._luxi_group)
        await server.start()
        self._server = server

    async def _close_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    def _where(self) -> str:
        try:
            return f"the master is {ssconf.SimpleStore(self._paths).GetMasterNode()}"
        except GanetiError as err:
            return f"which node is, this one does not know ({err.message})"

    # Taking over

    async def _take_over(self, force: bool) -> list[str]:  # noqa: FBT001 - as it comes by LUXI
        """Become the master; what an administrator should know about it. NotMaster."""
        if self._mastership is not None:
            return ["this node is the master already"]
        parts = self._require_parts()
        before = parts.store.statistics()
        told: list[str] = []
        if force:
            register = await parts.worker.call(RegisterFile(self._paths.register).read)
            accepted = register.accepted if register else None
            holders = ", ".join(self._names(accepted.sync_set)) if accepted else "nobody"
            told.append(
                f"forced without a vote: this node's last position is {before.position.as_int()}"
                f" (epoch {before.position.epoch}, serial {before.position.serial}); the last sync set"
                f" it knows of is {holders}; what only others have may be lost"
            )
            await self._begin_now(Campaign(CampaignKind.FORCE))
        else:
            await self._take_over_by_vote()
        members = await parts.store.members()
        told.append(
            f"this node is the master in epoch {members.epoch}; the state is on"
            f" {', '.join(self._names(members.sync_set))}"
            + (" (degraded)" if members.degraded else "")
        )
        return told

    def _names(self, uuids: frozenset[NodeUuid]) -> list[str]:
        nodes = self._require_parts().directory.nodes
        return sorted(nodes[uuid].name if uuid in nodes else uuid for uuid in uuids)

    async def _take_over_by_vote(self) -> None:
        """With the old master's agreement where it answers, else once it was silent for long enough."""
        parts = self._require_parts()
        await parts.directory.read(parts.store)
        kind = CampaignKind.VOTE
        loop = asyncio.get_running_loop()
        begun = loop.time()
        end = begun + TAKE_OVER_S
        while True:
            # It may have come back, and be heard by the voters, only after it was asked first.
            if kind is CampaignKind.VOTE and await self._master_agrees():
                kind = CampaignKind.HAND_OVER
            try:
                await self._begin_now(Campaign(kind))
            except NotMaster as err:
                # A refusal may be of the moment when another node, or the old master, campaigned too.
                limit = end if isinstance(err, NotYet) else begun + OVERTAKEN_S
                if loop.time() > limit:
                    raise
                _log.info("waiting: %s", err)
                await asyncio.sleep(AGAIN_S)
            else:
                return

    async def _master_agrees(self) -> bool:
        """Whether there is a master, and it has ended in favour of this node."""
        parts = self._require_parts()
        master = parts.store.followed_master or await self._last_master()
        if master is None or master == parts.identity.node_uuid:
            return False
        try:
            await parts.store.ask_for_hand_over(master)
        except NotMaster as err:
            _log.info("no hand-over: %s", err)
            return False
        return True

    async def _begin_now(self, how: Campaign) -> None:
        """On a task of its own: it must not end with the connection that asked for it."""
        await asyncio.shield(asyncio.create_task(self._become(how), name="take over"))
