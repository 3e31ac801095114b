"""The daemon of a master candidate: its state, its part in votes, and the socket for its clients."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial

from ganeti import ssconf
from ganeti.api.luxi_server import Dispatcher, LuxiServer
from ganeti.api.not_master import NotMasterMethods
from ganeti.base import tls
from ganeti.base.addresses import address_of_environment, is_loopback
from ganeti.base.errors import ErrorCode, GanetiError, NotMaster, PrereqError, StoreError
from ganeti.base.paths import Paths
from ganeti.bootstrap.membership import own_identity
from ganeti.daemons.candidates import NodeDirectory, RpcVoters, TlsPeers, listening
from ganeti.daemons.garbage import GcPolicy
from ganeti.daemons.master import CandidateParts, MasterServices
from ganeti.daemons.roles import RoleCallbacks, Roles
from ganeti.daemons.watchdog import LoopWatchdog
from ganeti.model.objects import NodeUuid
from ganeti.node.membership import CandidateCertificates
from ganeti.rpc.client import RpcClient
from ganeti.rpc.transport import HttpsTransport
from ganeti.store.archive import JobArchive
from ganeti.store.archive_feed import ArchiveServer
from ganeti.store.backends import open_state
from ganeti.store.interface import Lease
from ganeti.store.ports import LocalVoter, Ports
from ganeti.store.reason import with_names
from ganeti.store.register import RegisterFile
from ganeti.store.stream import Handler, Purpose, StreamServer
from ganeti.store.worker import Worker, WorkerExecutor

_log = logging.getLogger(__name__)


class Member:
    """The daemon; it calls `ended` if it cannot continue."""

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
        self._roles: Roles | None = None
        self._server: LuxiServer | None = None
        self._gc_policy = GcPolicy()

    def _require_roles(self) -> Roles:
        if self._roles is None:
            raise NotMaster("this daemon is starting")
        return self._roles

    def _require_parts(self) -> CandidateParts:
        if self._parts is None:
            raise NotMaster("this daemon is starting")
        return self._parts

    async def start(self) -> None:
        """Serve in one of the roles; GanetiError gives the reason of a failure."""
        try:
            await self._open()
            if self._force:
                for line in await self._take_over(True):
                    _log.warning("%s", line)
            else:
                await self._require_roles().resume()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop as after a crash, but with all files closed."""
        if self._roles is not None:
            await self._roles.close()
        await self._opened.aclose()

    async def _open(self) -> None:
        watchdog = LoopWatchdog()
        watchdog.start()
        self._opened.push_async_callback(watchdog.stop)
        self._gc_policy.start()
        self._opened.push_async_callback(self._gc_policy.stop)
        worker = Worker("rest")
        asyncio.get_running_loop().set_default_executor(WorkerExecutor(worker))
        self._opened.push_async_callback(worker.close)
        identity = await worker.call(partial(own_identity, self._paths))
        paths = self._paths
        files = (paths.node_certificate, paths.node_key, paths.authority_certificate)
        address = address_of_environment()
        local = address if is_loopback(address) else None
        directory = NodeDirectory()
        rpc = RpcClient(HttpsTransport(tls.client_context(*files), local), lambda: (0, ""))
        self._opened.push_async_callback(rpc.close)
        register = RegisterFile(self._paths.register)
        archive = await self._open_archive(worker)
        own = LocalVoter(identity.node_uuid, register, worker, directory.voter(identity.node_uuid))
        peers = TlsPeers(tls.client_context(*files), directory, local)
        voters = RpcVoters(identity.node_uuid, own, rpc, directory)
        ports = Ports(voters, peers, register, worker, directory.online)
        state = await open_state(paths, identity, ports)
        store = state.backend
        self._opened.push_async_callback(store.close)
        try:
            await directory.read(store)
        except StoreError as err:
            # The state is on other hosts; this node reads it again before it becomes the master.
            _log.warning("the state cannot be read yet: %s", err)
        parts = (store, directory, worker, peers, voters, state.fence, archive)
        self._parts = CandidateParts(self._paths, identity, *parts)
        archives = ArchiveServer(register, archive, worker, ended=state.master_hung_up)
        await self._answer_candidates({**state.handlers, "archive": archives.serve})
        self._opened.push_async_callback(self._close_server)
        await self._answer_with(NotMasterMethods(self._where, self._take_over))
        callbacks = RoleCallbacks(
            prepare=partial(directory.read, store),
            start_master=self._start_master,
            serve_master=self._serve_master,
            serve_follower=self._serve_follower,
            ended=self._ended,
        )
        self._roles = Roles(identity.node_uuid, store, state.fence, callbacks)
        self._roles.watch()

    async def _answer_candidates(self, handlers: Mapping[Purpose, Handler]) -> None:
        """Answer the daemons of other candidates."""
        paths, identity = self._paths, self._require_parts().identity
        context = tls.server_context(
            paths.node_certificate, paths.node_key, paths.authority_certificate
        )
        address = address_of_environment() or self._own_address(identity.node_uuid)
        serve = StreamServer(identity.cluster_uuid, handlers).serve
        server = listening(context, address, CandidateCertificates(paths), serve)
        await self._opened.enter_async_context(server)

    async def _open_archive(self, worker: Worker) -> JobArchive | None:
        """Return None if the archive is damaged: a follower can work without it, only a master cannot."""
        try:
            archive = await JobArchive.open(self._paths.job_archive, worker)
        except StoreError as err:
            _log.error("%s; this node cannot be the master until the file is moved away", err)
            return None
        self._opened.push_async_callback(archive.close)
        return archive

    def _own_address(self, uuid: NodeUuid) -> str | None:
        node = self._require_parts().directory.nodes.get(uuid)
        return node.primary_ip if node else None

    def _start_master(self, lease: Lease, lost: Callable[[str], None]) -> MasterServices:
        return MasterServices(self._require_parts(), lease, lost)

    def _serve_master(self, master: Dispatcher) -> None:
        if self._server is not None:
            self._server.dispatcher = master

    async def _serve_follower(self) -> None:
        await self._answer_with(NotMasterMethods(self._where, self._take_over))
        self._gc_policy.sweep_soon()  # the previous queue is garbage

    async def _answer_with(self, dispatcher: Dispatcher) -> None:
        """Disconnect all clients; they reconnect to the new role."""
        await self._close_server()
        server = LuxiServer(self._paths.luxi_socket, dispatcher, group=self._luxi_group)
        await server.start()
        self._server = server

    async def _close_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    def _where(self) -> str:
        if self._roles is not None and self._roles.waiting_reason:
            why = with_names(self._roles.waiting_reason, self._require_parts().directory.name)
            return f"it was the master and tries to become the master again: {why}"
        try:
            return f"the master is {ssconf.SimpleStore(self._paths).GetMasterNode()}"
        except GanetiError as err:
            return f"which node is the master is unknown here ({err.message})"

    # Taking over

    async def _take_over(self, force: bool) -> list[str]:  # noqa: FBT001 - as it comes by LUXI
        """Become the master; return remarks for the administrator. PrereqError."""
        try:
            return await self._taken_over(force=force)
        except NotMaster as err:
            why = with_names(err.message, self._require_parts().directory.name)
            raise PrereqError(
                f"this node has not become the master: {why}", ErrorCode.WRONG_STATE
            ) from err

    async def _taken_over(self, *, force: bool) -> list[str]:
        roles = self._require_roles()
        if roles.is_master:
            return ["this node is the master already"]
        parts = self._require_parts()
        before = parts.store.statistics()
        lines: list[str] = []
        if force:
            holders = ", ".join(self._names((await parts.store.members()).holders))
            lines.append(
                f"forced without a vote: this node's last position is {before.position.as_int()} "
                f"(epoch {before.position.epoch}, serial {before.position.serial}); the last "
                f"sync set that it knows is {holders}; changes that only other nodes hold may be "
                "lost"
            )
            await roles.force()
        else:
            await roles.take_over()
        members = await parts.store.members()
        where = ", ".join(self._names(members.holders)) or "other hosts"
        lines.append(
            f"this node is the master in epoch {members.epoch}; the state is on {where}"
            + (" (degraded)" if members.degraded else "")
        )
        lines.append(
            f"new jobs have numbers above {members.job_id_ceiling}: the previous master had "
            "reserved the numbers up to it, and numbers are not reused"
        )
        return lines

    def _names(self, uuids: frozenset[NodeUuid]) -> list[str]:
        return sorted(map(self._require_parts().directory.name, uuids))
