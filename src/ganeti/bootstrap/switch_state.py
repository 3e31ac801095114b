"""`gnt-cluster modify --state`: the state moves from one back end to the other, on the master's node.

    wait until no job runs --> make the place --> end the master daemon --> claim the registers
        --> copy --> say where it is (the one step that counts) --> start the master daemon

Guests are not touched. One step decides. Before it, the state is at its old location, and the
command, or a start of the master daemon, continues from there; after it, the state is at the
destination. The claim prevents that another candidate becomes the master from an old copy: the
registers of a majority record that only this node has the last state. The other candidates follow
automatically: the new master sends each one the new location.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from ganeti import __version__, ssconf
from ganeti.base import tls
from ganeti.base.addresses import address_of_environment, is_loopback
from ganeti.base.clock import Clock
from ganeti.base.errors import ErrorCode, GanetiError, HostError, PrereqError, RpcError
from ganeti.base.paths import Paths, hostname
from ganeti.base.state_kinds import STATE_KINDS, ExternalServers
from ganeti.bootstrap.daemons import MASTERD, Daemons
from ganeti.bootstrap.init import answers
from ganeti.bootstrap.membership import own_identity
from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.model import wire
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.client import RpcClient
from ganeti.rpc.procedures.form import Nothing, Procedure
from ganeti.rpc.procedures.mastership import (
    REGISTER_ACCEPT,
    REGISTER_PROMISE,
    REGISTER_READ,
    AcceptArgs,
    PromiseArgs,
    RegisterAnswer,
)
from ganeti.rpc.transport import HttpsTransport
from ganeti.store.backend import Restoration
from ganeti.store.backends import Founding, back_end
from ganeti.store.election import Vote
from ganeti.store.encoding import DIGEST_BYTES, MemberList
from ganeti.store.epochs import outliers, reference_epoch
from ganeti.store.interface import MEMBERS_KEY, META_KIND, CampaignKind, Identity, Position, Row
from ganeti.store.register import Accepted, AcceptRequest, PromiseRequest
from ganeti.store.settings import StateSettings, keep_state_settings, state_settings

QUIET_S = 120.0
MASTER_LIMIT_S = 60.0
_LOOK_S = 0.2
MOVING = True
"""The second argument of SetDrainFlag: the queue is drained for the move, and not by an administrator."""

A = TypeVar("A", bound=msgspec.Struct)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Switch:
    """Data that all steps need."""

    paths: Paths
    daemons: Daemons
    clock: Clock
    identity: Identity
    say: Say

    async def move(self, kind: str, external: ExternalServers | None) -> None:
        """Move the state to another back end; HostError, StoreError."""
        paths, identity, settings = self.paths, self.identity, state_settings(self.paths)
        old, new = back_end(settings.kind), back_end(kind)
        async with self._quiet():
            found = await new.create_state(await self._founding(kind, external))
            try:
                async with old.leaving(paths, identity, settings):
                    self.say("stopping the master daemon for a moment")
                    await self.daemons.stop(MASTERD)
                    source = old.restorer(paths, identity, settings)
                    target = new.restorer(paths, identity, found)
                    async with source.held(), target.held():
                        rows = [row async for row in source.rows()]
                        plan = await self._claimed(
                            rows, (await source.present_state()).job_id_ceiling
                        )
                        await target.replace(plan, rows)
                        keep_state_settings(paths, found)
            finally:
                await self._started()
        self.say(f"the state is now in {kind}: {len(rows)} rows")
        await self.clean()

    async def _founding(self, kind: str, external: ExternalServers | None) -> Founding:
        server = STATE_KINDS[kind].server

        async def start_server() -> None:
            if server is not None:
                await self.daemons.start(server.daemon)

        address = await self._own_address()
        return Founding(
            kind, self.paths, self.identity, address, self.clock.time(), start_server, external
        )

    async def clean(self) -> None:
        """Remove the data of other back ends on this node; idempotent."""
        settings = state_settings(self.paths)
        for kind, one in STATE_KINDS.items():
            if kind == settings.kind:
                continue
            if one.server is not None:
                await self.daemons.stop(one.server.daemon)
            back_end(kind).retire(self.paths)
        if settings == StateSettings():
            self.paths.state_settings.unlink(missing_ok=True)

    async def _started(self) -> None:
        await self.daemons.start(MASTERD)
        await answers(self.paths, MASTER_LIMIT_S)

    async def resumed(self) -> None:
        """Complete the work of an interrupted command: the master serves, where the state is now."""
        settings = state_settings(self.paths)
        server = STATE_KINDS[settings.kind].server
        if server is not None and server.runs_here(self.paths):
            await self.daemons.start(server.daemon)
        await self.daemons.start(MASTERD)
        await back_end(settings.kind).resume(self.paths, self.identity, settings)
        await self._started()

    # The queue

    @contextlib.asynccontextmanager
    async def _quiet(self) -> AsyncIterator[None]:
        """Wait until no job runs, and let none begin during the block; PrereqError if a job does not end."""
        await self._call("SetDrainFlag", True, MOVING)
        try:
            await self._until_quiet()
            yield
        finally:
            with contextlib.suppress(GanetiError, OSError):
                await self.undrain()

    async def undrain(self) -> None:
        """Let the queue accept jobs again, also after a killed command; an administrator's drain stays."""
        await self._call("SetDrainFlag", False, MOVING)
        if (await self._call("QueryConfigValues", ["drain_flag"]))[0]:
            self.say(
                "the queue stays drained by the administrator; run 'gnt-cluster queue undrain' "
                "to end that"
            )

    async def _until_quiet(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + QUIET_S
        while running := await self._running():
            if loop.time() > end:
                jobs = ", ".join(map(str, running[:10]))
                raise PrereqError(
                    f"jobs still run ({jobs}): wait for them, or cancel them, and try again",
                    ErrorCode.WRONG_STATE,
                )
            await asyncio.sleep(_LOOK_S)

    async def _running(self) -> list[int]:
        rows = await self._call("QueryJobs", None, ["id", "status"])
        return [
            int(str(row[0]))
            for row in rows
            if row[1] in ("queued", "waiting", "canceling", "running")
        ]

    async def _call(self, method: str, *args: object) -> list[Any]:
        try:
            client = await AsyncLuxiClient.connect(self.paths.luxi_socket)
            try:
                found: list[Any] = await client.call(method, *args)
                return found
            finally:
                await client.close()
        except OSError as err:
            raise HostError(f"the master daemon of this node does not answer: {err}") from err

    # The registers

    async def _own_address(self) -> str:
        address = address_of_environment()
        if address:
            return address
        rows = await self._call("QueryNodes", [], ["uuid", "pip"], False)
        for uuid, primary_ip in rows:
            if uuid == self.identity.node_uuid:
                return str(primary_ip)
        raise HostError("the configuration does not contain this node")

    async def _claimed(self, rows: Sequence[Row], ceiling: int) -> Restoration:
        """Let a majority of the voters register that only this node has the last state; HostError."""
        nodes, voters = _nodes_of(rows), _voters_of(rows, self.identity)
        asked = [node for node in nodes if node.uuid in voters]
        context = tls.client_context(
            self.paths.node_certificate, self.paths.node_key, self.paths.authority_certificate
        )
        own = address_of_environment()
        rpc = RpcClient(HttpsTransport(context, own if is_loopback(own) else None), lambda: (0, ""))
        cluster, me = self.identity.cluster_uuid, self.identity.node_uuid
        try:
            known = await _asked(rpc, asked, REGISTER_READ, Nothing())
            promised = {uuid: vote.register.promised.epoch for uuid, vote in known.items()}
            out = outliers(promised, reference_epoch(promised, voters, 0))
            epoch = max([0, *(one for uuid, one in promised.items() if uuid not in out)]) + 1
            promise = PromiseArgs(
                request=PromiseRequest(cluster, epoch, me), kind=CampaignKind.FORCE
            )
            _check(await _asked(rpc, asked, REGISTER_PROMISE, promise), voters)
            accepted = Accepted(epoch, 0, me, frozenset((me,)), ceiling, voters, __version__)
            claim = AcceptArgs(request=AcceptRequest(cluster, accepted))
            _check(await _asked(rpc, asked, REGISTER_ACCEPT, claim), voters)
        finally:
            await rpc.close()
        digest = blake2b(f"{me} {epoch} moved".encode(), digest_size=DIGEST_BYTES).digest()
        return Restoration(Position(epoch + 1, 1), digest, ceiling, voters)


async def _asked(
    rpc: RpcClient, nodes: Iterable[Node], procedure: Procedure[A, RegisterAnswer], args: A
) -> dict[NodeUuid, Vote]:
    """Return the register answers of the nodes that answer."""
    found = await rpc.call_all(nodes, procedure, args)
    return {
        uuid: answer.vote
        for uuid, answer in found.items()
        if not isinstance(answer, RpcError) and answer.vote is not None
    }


def _check(votes: dict[NodeUuid, Vote], voters: frozenset[NodeUuid]) -> None:
    """Raise HostError where no majority has agreed."""
    agreed = [uuid for uuid, vote in votes.items() if vote.granted]
    if 2 * len(agreed) <= len(voters):
        raise HostError(
            f"only {len(agreed)} of {len(voters)} nodes agree to the move of the state: start "
            "the others again, and retry; nothing was moved"
        )


def _nodes_of(rows: Iterable[Row]) -> list[Node]:
    return [wire.decode(row.value, Node) for row in rows if row.kind == "node"]


def _voters_of(rows: Iterable[Row], identity: Identity) -> frozenset[NodeUuid]:
    found = {row.key: row.value for row in rows if row.kind == META_KIND}
    return MemberList.decode(found.get(MEMBERS_KEY), identity.node_uuid).voters


async def switch_state(
    paths: Paths,
    daemons: Daemons,
    clock: Clock,
    kind: str,
    *,
    external: ExternalServers | None = None,
    say: Say,
) -> None:
    """Move the state of a running cluster, on its master; idempotent."""
    try:
        identity = await asyncio.to_thread(own_identity, paths)
    except OSError as err:
        raise PrereqError("this host is not a member of a cluster", ErrorCode.WRONG_STATE) from err
    switch = Switch(paths, daemons, clock, identity, say)
    if ssconf.SimpleStore(paths).GetMasterNode() != hostname():
        raise PrereqError(
            f"run this on the master, {ssconf.SimpleStore(paths).GetMasterNode()}",
            ErrorCode.WRONG_STATE,
        )
    await switch.resumed()
    if state_settings(paths).kind == kind:
        await switch.undrain()
        await switch.clean()
        say(f"the state is in {kind} already")
    else:
        await switch.move(kind, external)
