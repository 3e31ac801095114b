"""The etcd servers of the candidates, as the master changes them: one at a time, learners first."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ganeti.model.objects import Node, NodeUuid
from ganeti.store.backends import (
    CandidateState,
    Reports,
    ServerFault,
    ServerReport,
    StateServers,
)
from ganeti.store.etcd.gateway import Gateway, GatewayError, Rejected
from ganeti.store.etcd.health import Seen, look, server_problems
from ganeti.store.etcd.messages import EtcdMember
from ganeti.store.etcd.server import QUOTA_BYTES
from ganeti.store.etcd.settings import ServerSettings, client_url, peer_url
from ganeti.store.settings import StateSettings

CAUGHT_UP_S = 60.0
HEALTHY_S = 20.0
AGAIN_S = 0.3
LEAST_FREE_BYTES = 128 << 20
"""Space for a server's next log file, twice."""
_NO_MEMBER = (
    "its etcd server is not a member, or has not started; the master repairs this automatically. "
    "If the problem remains: 'gnt-node modify --master-candidate=no --auto-promote {name}', then "
    "'=yes'"
)
_HELP = (
    "Start ganeti-etcd there; if its data is damaged: 'gnt-node modify --master-candidate=no --auto-promote"
    " {name}', then '=yes'"
)

_log = logging.getLogger(__name__)


class ExternalEtcd(StateServers):
    """Servers that an administrator runs: candidates only need their addresses."""

    def __init__(self, settings: StateSettings, gateway: Gateway) -> None:
        super().__init__(settings)
        self._gateway = gateway

    async def close(self) -> None:
        await self._gateway.close()

    async def faults(self, candidates: Sequence[Node]) -> list[ServerFault]:
        del candidates
        gateway = self._gateway
        seen = await look(gateway, gateway.endpoints)
        return [
            ServerFault(
                "",
                f"etcd at {url} {trouble.text}; its administrator must fix the server",
                trouble.is_error,
            )
            for url in seen
            for trouble in server_problems(seen, url)
        ]


class EtcdServers(StateServers):
    """Keeps a server on each candidate."""

    def __init__(self, cluster_uuid: str, gateway: Gateway, reports: Reports) -> None:
        super().__init__()
        self._cluster_uuid, self._gateway, self._reports = cluster_uuid, gateway, reports

    async def close(self) -> None:
        await self._gateway.close()

    async def admit(self, node: Node) -> CandidateState:
        gateway = self._gateway
        own = peer_url(node.primary_ip)
        await self._take_out_lost(gateway, node)
        members = await self._with(gateway, own)
        initial = ",".join(
            f"{node.uuid if own in member.peerURLs else member.name}={url}"
            for member in members
            for url in member.peerURLs
            if member.name or own in member.peerURLs
        )
        others = tuple(
            url for member in members if not member.isLearner for url in member.clientURLs
        )
        mine = client_url(node.primary_ip)
        settings = StateSettings(kind="etcd", endpoints=tuple(dict.fromkeys((*others, mine))))
        server = ServerSettings(
            name=node.uuid,
            cluster_uuid=self._cluster_uuid,
            address=node.primary_ip,
            initial_cluster=initial,
            is_new=False,
        )
        return CandidateState(settings, msgspec.json.encode(server).decode())

    async def lost(self, nodes: Iterable[Node]) -> frozenset[NodeUuid]:
        members = (await self._gateway.members()).members
        begun = [node for node in nodes if _begun(members, node)]
        reports = await self._reports(begun)
        return frozenset(uuid for uuid, report in reports.items() if not report.has_data)

    async def _take_out_lost(self, gateway: Gateway, node: Node) -> None:
        """Remove members whose data is lost: a member that has lost its votes must not return as itself."""
        if not await self.lost((node,)):
            return
        for member in (await gateway.members()).members:
            if _is_at(member, node):
                await gateway.remove_member(member.ID)
                _log.warning(
                    "%s has lost the data of etcd; replacing it with a new member", node.name
                )

    async def faults(self, candidates: Sequence[Node]) -> list[ServerFault]:
        gateway = self._gateway
        try:
            members = (await gateway.members()).members
        except GatewayError as err:
            return [ServerFault("", f"etcd does not report its members: {err.message}")]
        reports = await self._reports(candidates)
        begun = [node for node in candidates if _begun(members, node)]
        seen = await look(gateway, (client_url(node.primary_ip) for node in begun))
        found: list[ServerFault] = []
        for node in candidates:
            if node not in begun:
                found.append(ServerFault(node.name, _NO_MEMBER.format(name=node.name), False))
                continue
            found.extend(_faults(node, seen, reports.get(node.uuid)))
        return found

    async def _with(self, gateway: Gateway, own: str) -> tuple[EtcdMember, ...]:
        """Return all members, one at this URL among them, a learner if it is new; GatewayError."""
        end = asyncio.get_running_loop().time() + HEALTHY_S
        while True:
            members = (await gateway.members()).members
            if any(own in member.peerURLs for member in members):
                return members
            try:
                members = (await gateway.add_member(own, as_learner=True)).members
            except Rejected:
                # After a change etcd requires that all members are connected for a while.
                if asyncio.get_running_loop().time() > end:
                    raise
                await asyncio.sleep(AGAIN_S)
            else:
                _log.info("adding a learner of etcd at %s", own)
                return members

    async def settle(self, node: Node) -> None:
        """Give the node's server a vote once it has caught up."""
        gateway = self._gateway
        own = peer_url(node.primary_ip)
        end = asyncio.get_running_loop().time() + CAUGHT_UP_S
        while True:
            try:
                listed = (await gateway.members()).members
                found = [member for member in listed if own in member.peerURLs]
                if not found or not found[0].isLearner:
                    return
                await gateway.promote_member(found[0].ID)
            except GatewayError:
                if asyncio.get_running_loop().time() > end:
                    raise
                await asyncio.sleep(AGAIN_S)
            else:
                _log.info("%s is a member of etcd", node.name)
                return

    async def dismiss_others(self, candidates: frozenset[NodeUuid], nodes: list[Node]) -> None:
        gateway = self._gateway
        wanted = {peer_url(node.primary_ip) for node in nodes if node.uuid in candidates}
        for member in (await gateway.members()).members:
            if self._is_strange(member, candidates, wanted):
                await gateway.remove_member(member.ID)
                _log.info("%s is no longer a member of etcd", member.name or member.peerURLs)
                return

    @staticmethod
    def _is_strange(member: EtcdMember, candidates: frozenset[NodeUuid], wanted: set[str]) -> bool:
        if member.name:
            return member.name not in candidates
        return not wanted.intersection(member.peerURLs) and not member.isLearner


def _is_at(member: EtcdMember, node: Node) -> bool:
    return peer_url(node.primary_ip) in member.peerURLs


def _begun(members: Iterable[EtcdMember], node: Node) -> bool:
    """Return whether the node's server is a member that has run: it has a name since then."""
    return any(member.name and _is_at(member, node) for member in members)


def _faults(node: Node, seen: Seen, report: ServerReport | None) -> Iterator[ServerFault]:
    """Return the problems of one candidate's server."""
    name, log = node.name, "its log is etcd.log on that node"
    if report is not None and not report.has_data:
        text = (
            "the data of its etcd server is lost; the master replaces it with a new member "
            "automatically"
        )
        yield ServerFault(name, text)
        return
    if report is not None and report.free_bytes < LEAST_FREE_BYTES:
        free = report.free_bytes >> 20
        text = f"its etcd server is out of space: {free} MiB are free on its disk; make room there"
        yield ServerFault(name, text)
    for trouble in server_problems(seen, client_url(node.primary_ip), QUOTA_BYTES):
        text = f"its etcd server {trouble.text}; {log}"
        if trouble.is_error:
            text += f". {_HELP.format(name=name)}"
        yield ServerFault(name, text, trouble.is_error)
