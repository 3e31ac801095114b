"""Renewal of the cluster's keys and certificates, until all nodes match the configuration (F39).

The configuration states the target. `Cluster.authorities` lists the authorities, newest first; all
are accepted until each node has a certificate of the first. Each node's `certificate_generation`
follows the cluster's. Every step is idempotent, so the next master continues where the last one
stopped:

    authorities to all nodes -> each node: request, sign; accept both; switch; accept the new one
                             -> once no node is left: the first authority alone

A node that does not answer keeps its certificate, and is renewed when it answers again. No node
switches to a new authority before all nodes that are not offline accept that authority. Otherwise
a node that was unreachable could never be called again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from ganeti.base import certificates, tls
from ganeti.base.clock import Clock
from ganeti.base.errors import ErrorCode, GanetiError, InputError, PrereqError
from ganeti.base.files import write_atomically
from ganeti.base.paths import Paths
from ganeti.base.state_kinds import EMBEDDED, state_servers
from ganeti.config.config import Config
from ganeti.config.transaction import Draft
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.identity import (
    AUTHORITIES_WRITE,
    NODE_CERTIFICATE_SWITCH,
    NODE_KEY_REQUEST,
    AuthoritiesArgs,
    CertificateArgs,
)
from ganeti.units.calls import Rpc

T = TypeVar("T")

AGAIN_S = 20.0
AT_ONCE = 30
SETTLE_S = 20.0
RELOAD_S = 2.5
"""Time within which every master daemon has noticed its changed certificate (`tls.generation`: one second)."""

_log = logging.getLogger(__name__)


class Candidates(Protocol):
    """The distribution of keys to master candidates (`ganeti.daemons.membership`)."""

    async def promote(self, node: Node) -> None: ...
    async def renew_confd_key(self) -> dict[str, str]: ...


@dataclass
class Late:
    """Nodes that do not have everything yet: node -> reason."""

    nodes: dict[str, str] = field(default_factory=dict)


class CryptoRenewal:
    """Acts on each change of the configuration, one step after the other."""

    def __init__(
        self,
        paths: Paths,
        config: Config,
        rpc: Rpc,
        clock: Clock,
        *,
        settle: Callable[[float], Awaitable[list[str]]],
        candidates: Candidates,
    ) -> None:
        """`settle` is the ssconf distributor's method."""
        self._paths, self._config, self._rpc, self._clock = paths, config, rpc, clock
        self._settle, self._candidates = settle, candidates
        self._trusting: dict[NodeUuid, tuple[str, ...]] = {}
        self._having_key: set[NodeUuid] = set()
        self._late = Late()
        self._news, self._rounds = asyncio.Event(), asyncio.Condition()
        self._round = 0
        self._task: asyncio.Task[None] | None = None
        self._calls = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="renewal of certificates")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    @property
    def is_wanted(self) -> bool:
        """Return whether anything is left to do, now or when a node answers again."""
        cluster = self._config.snapshot.cluster
        return len(cluster.authorities) > 1 or bool(self._behind())

    async def renew(self, *, authority: bool) -> dict[str, str]:
        """Renew the certificates of all nodes, optionally with a new authority.

        Return late nodes with reasons.

        PrereqError if a renewal is not possible now. Late nodes get their certificates when they
        answer.
        """
        if authority:
            await self._begin_authority()
        else:
            await self._want()
        wanted = self._round + 1
        self._news.set()
        async with self._rounds:
            await self._rounds.wait_for(lambda: self._round > wanted or not self.is_wanted)
        return dict(self._late.nodes)

    async def renew_confd_key(self) -> dict[str, str]:
        """Give all candidates a new key of confd; return those that do not have it yet, with reasons."""
        return await self._candidates.renew_confd_key()

    async def _run(self) -> None:
        is_checked = False
        while True:
            self._news.clear()
            self._late = Late()
            try:
                if not is_checked:
                    await self._ensure_authority()
                    is_checked = True
                if self.is_wanted:
                    await self._once()
            except GanetiError as err:
                _log.warning("postponing the renewal of certificates: %s", err)
                self._late.nodes.setdefault("the cluster", err.message)
            async with self._rounds:
                self._round += 1
                self._rounds.notify_all()
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await self._news.wait()

    async def _once(self) -> None:
        await self._ensure_authority()
        if await self._tell_authorities():
            await self._renew_nodes(self._behind())
        cluster = self._config.snapshot.cluster
        if len(cluster.authorities) > 1 and not self._behind():
            await self._change_cluster(authorities=cluster.authorities[:1])
            await self._tell_authorities()
            _log.info(
                "all nodes have certificates of the new authority; the old authority is no longer trusted"
            )

    async def _guarded(self, node: Node, work: Awaitable[None]) -> None:
        try:
            await work
        except GanetiError as err:
            self._late.nodes[node.name] = err.message
            _log.warning("%s does not have its new certificate yet: %s", node.name, err)

    def _behind(self) -> list[Node]:
        """Return the nodes that are not offline and have no certificate of this generation."""
        snapshot = self._config.snapshot
        wanted = snapshot.cluster.certificate_generation
        return [node for node in snapshot.online_nodes() if node.certificate_generation < wanted]

    # The authority

    async def _begin_authority(self) -> None:
        if any(server.runs_here(self._paths) for server in state_servers()):
            raise PrereqError(
                "the servers of the state have certificates of the same authority: move the state into the"
                f" embedded store first (gnt-cluster modify --state {EMBEDDED}), and back afterwards",
                ErrorCode.WRONG_STATE,
            )
        cluster = self._config.snapshot.cluster
        if len(cluster.authorities) > 1:
            raise PrereqError(
                "a new authority is being introduced already: wait until all nodes have its certificates",
                ErrorCode.WRONG_STATE,
            )
        await self._new_authority()

    async def _new_authority(self) -> None:
        """Write the new authority to the configuration, then create its key.

        The next master detects a crash between the two.
        """
        snapshot = self._config.snapshot
        cluster = snapshot.cluster
        old = cluster.authorities or (await asyncio.to_thread(self._own_authority),)
        key = certificates.new_key()
        made = certificates.new_authority(key, cluster.name, cluster.uuid, self._clock.time())
        await self._change_cluster(
            authorities=(made.decode(), *old),
            certificate_generation=cluster.certificate_generation + 1,
        )
        await asyncio.to_thread(self._keep_authority, key)
        self._having_key.clear()

    async def _ensure_authority(self) -> None:
        """Provide the key of the first authority, or create another one.

        The master that had it may have been lost.
        """
        authorities = self._config.snapshot.cluster.authorities
        if authorities and not await asyncio.to_thread(self._has_key_of, authorities[0].encode()):
            _log.warning(
                "the key of the new authority was lost with its master: creating another key"
            )
            await self._new_authority()

    async def _tell_authorities(self) -> bool:
        """Return whether all online nodes accept all authorities and the candidates have the key."""
        snapshot = self._config.snapshot
        authorities = snapshot.cluster.authorities
        if not authorities:
            return True
        nodes = snapshot.online_nodes()
        for node in nodes:
            if self._trusting.get(node.uuid) != authorities:
                await self._guarded(node, self._tell(node, authorities))
        complete = all(self._trusting.get(node.uuid) == authorities for node in nodes)
        for node in nodes:
            is_other = node.uuid != snapshot.cluster.master_node
            if node.master_candidate and is_other and node.uuid not in self._having_key:
                await self._guarded(node, self._give(node))
        return complete

    async def _tell(self, node: Node, authorities: tuple[str, ...]) -> None:
        await self._rpc.call(node, AUTHORITIES_WRITE, AuthoritiesArgs(authorities=authorities))
        tls.reload_changed()
        self._trusting[node.uuid] = authorities

    async def _give(self, node: Node) -> None:
        await self._candidates.promote(node)
        self._having_key.add(node.uuid)

    def _own_authority(self) -> str:
        return self._paths.authority_certificate.read_text()

    def _has_key_of(self, authority: bytes) -> bool:
        try:
            return certificates.is_pair(authority, self._paths.authority_key.read_bytes())
        except (OSError, InputError):
            return False

    def _keep_authority(self, key: bytes) -> None:
        write_atomically(self._paths.authority_key, key, mode=0o600)

    # The nodes

    async def _renew_nodes(self, nodes: list[Node]) -> None:
        """Renew all nodes that answer, in lockstep.

        All nodes know a node's next certificate before it switches.
        """
        generation = self._config.snapshot.cluster.certificate_generation
        signed = dict(await self._each(nodes, self._prepare))
        known = [self._config.snapshot.nodes[uuid] for uuid in signed]
        if any(node.master_candidate for node in known) and (late := await self._settle(SETTLE_S)):
            # Nodes must not refuse a call from a candidate.
            why = f"it is a candidate, whose next certificate is not known yet to {', '.join(late)}"
            self._late.nodes |= {node.name: why for node in known if node.master_candidate}
            known = [node for node in known if not node.master_candidate]

        async def switch(node: Node) -> str:
            args = CertificateArgs(certificate=signed[node.uuid].decode())
            await self._rpc.call(node, NODE_CERTIFICATE_SWITCH, args, key=self._key(node))
            return tls.fingerprint(signed[node.uuid])

        switched = await self._each(known, switch)
        if any(node.master_candidate for node in known):
            await asyncio.sleep(RELOAD_S)
            tls.reload_changed()
        await asyncio.gather(
            *(
                self._change_node(
                    uuid, certificate=one, next_certificate="", certificate_generation=generation
                )
                for uuid, one in switched
            )
        )

    async def _each(
        self, nodes: list[Node], work: Callable[[Node], Awaitable[T]]
    ) -> list[tuple[NodeUuid, T]]:
        """Run a coroutine for each node; a node for which it fails is late."""
        slots, found = asyncio.Semaphore(AT_ONCE), list[tuple[NodeUuid, T]]()

        async def one(node: Node) -> None:
            async with slots:
                found.append((node.uuid, await work(node)))

        await asyncio.gather(*(self._guarded(node, one(node)) for node in nodes))
        return found

    async def _prepare(self, node: Node) -> bytes:
        """Issue the node's next certificate; from now on the cluster accepts both."""
        answer = await self._rpc.call(node, NODE_KEY_REQUEST, Nothing(), key=self._key(node))
        if node.next_certificate and answer.fingerprint == node.next_certificate:
            # The node had switched when the master died: record that, and renew it once more.
            await self._change_node(node.uuid, certificate=answer.fingerprint)
        certificate = await asyncio.to_thread(self._signed, node, answer.request.encode())
        await self._change_node(node.uuid, next_certificate=tls.fingerprint(certificate))
        return certificate

    def _signed(self, node: Node, request: bytes) -> bytes:
        authorities = self._config.snapshot.cluster.authorities
        authority = authorities[0].encode() if authorities else self._own_authority().encode()
        return certificates.sign_node(
            authority,
            self._paths.authority_key.read_bytes(),
            request,
            node_uuid=node.uuid,
            node_name=node.name,
            now=self._clock.time(),
        )

    def _key(self, node: Node) -> str:
        self._calls += 1
        return f"renewal/{self._config.snapshot.position}/{node.uuid}/{self._calls}"

    # The configuration

    async def _want(self) -> None:
        generation = self._config.snapshot.cluster.certificate_generation + 1
        await self._change_cluster(certificate_generation=generation)

    async def _change_cluster(self, **fields: object) -> None:
        def change(draft: Draft) -> None:
            draft.put(msgspec.structs.replace(draft.cluster, **fields))

        await self._config.change(change)

    async def _change_node(self, uuid: NodeUuid, **fields: object) -> None:
        def change(draft: Draft) -> None:
            if uuid in draft.nodes:
                draft.put(msgspec.structs.replace(draft.nodes[uuid], **fields))

        await self._config.change(change)
