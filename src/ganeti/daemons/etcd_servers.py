"""The etcd servers of the candidates, as the master changes them: one at a time, learners first."""

import asyncio
import logging

import msgspec

from ganeti.base.paths import Paths
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.procedures.mastership import CandidateArgs
from ganeti.store.etcd.gateway import Gateway, GatewayError, Rejected
from ganeti.store.etcd.messages import EtcdMember
from ganeti.store.etcd.opening import open_gateway
from ganeti.store.etcd.settings import (
    ServerSettings,
    StateSettings,
    client_url,
    peer_url,
    state_settings,
)

CAUGHT_UP_S = 60.0
HEALTHY_S = 20.0
AGAIN_S = 0.3

_log = logging.getLogger(__name__)


class EtcdServers:
    """Keeps a server on each candidate; where the state is not in such an etcd, only the key is given."""

    def __init__(self, paths: Paths, cluster_uuid: str) -> None:
        self._paths, self._cluster_uuid = paths, cluster_uuid
        self._settings = state_settings(paths)
        self._gateway: Gateway | None = None
        if self._settings.kind == "etcd":
            self._gateway = open_gateway(paths, self._settings)

    async def close(self) -> None:
        if self._gateway is not None:
            await self._gateway.close()

    @property
    def _managed(self) -> Gateway | None:
        return self._gateway if self._settings.is_managed else None

    async def admit(self, node: Node) -> CandidateArgs:
        """Make a place for the node's server; GatewayError, also while the last change is too fresh."""
        gateway = self._managed
        if gateway is None:
            return await self._told(self._settings if self._gateway else None)
        own = peer_url(node.primary_ip)
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
        return await self._told(settings, server)

    async def _with(self, gateway: Gateway, own: str) -> tuple[EtcdMember, ...]:
        """All members, one at this URL among them: a learner if it is new; GatewayError."""
        end = asyncio.get_running_loop().time() + HEALTHY_S
        while True:
            members = (await gateway.members()).members
            if any(own in member.peerURLs for member in members):
                return members
            try:
                members = (await gateway.add_member(own, as_learner=True)).members
            except Rejected:
                # After a change etcd wants all members to be connected for a while.
                if asyncio.get_running_loop().time() > end:
                    raise
                await asyncio.sleep(AGAIN_S)
            else:
                _log.info("a learner of etcd is to come at %s", own)
                return members

    async def _told(
        self, settings: StateSettings | None, server: ServerSettings | None = None
    ) -> CandidateArgs:
        key = await asyncio.to_thread(self._paths.authority_key.read_text)
        return CandidateArgs(
            authority_key=key,
            state=msgspec.json.encode(settings).decode() if settings else "",
            etcd_server=msgspec.json.encode(server).decode() if server else "",
        )

    async def settle(self, node: Node) -> None:
        """Give the node's server a vote once it has caught up; GatewayError if it does not in time."""
        gateway = self._managed
        if gateway is None:
            return
        own = peer_url(node.primary_ip)
        end = asyncio.get_running_loop().time() + CAUGHT_UP_S
        while True:
            listed = (await gateway.members()).members
            found = [member for member in listed if own in member.peerURLs]
            if not found or not found[0].isLearner:
                return
            try:
                await gateway.promote_member(found[0].ID)
            except GatewayError:
                if asyncio.get_running_loop().time() > end:
                    raise
                await asyncio.sleep(AGAIN_S)
            else:
                _log.info("%s is a member of etcd", node.name)
                return

    async def dismiss_others(self, candidates: frozenset[NodeUuid], nodes: list[Node]) -> None:
        """Take out the servers of nodes that are no candidates any more, one; GatewayError."""
        gateway = self._managed
        if gateway is None:
            return
        wanted = {peer_url(node.primary_ip) for node in nodes if node.uuid in candidates}
        for member in (await gateway.members()).members:
            if self._is_strange(member, candidates, wanted):
                await gateway.remove_member(member.ID)
                _log.info("%s is no member of etcd any more", member.name or member.peerURLs)
                return

    @staticmethod
    def _is_strange(member: EtcdMember, candidates: frozenset[NodeUuid], wanted: set[str]) -> bool:
        if member.name:
            return member.name not in candidates
        return not wanted.intersection(member.peerURLs) and not member.isLearner
