"""Maintenance of etcd's servers: their list, old revisions, and room where they are full."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from ganeti.base.errors import ProtocolError
from ganeti.model.objects import NodeUuid
from ganeti.store.etcd.gateway import Gateway, GatewayError
from ganeti.store.etcd.health import look, successor
from ganeti.store.etcd.keys import Keys

LEASE_S = 3
"""Time after a master's last contact after which another candidate takes its place."""
LOOK_AT_MEMBERS_S = 10.0
COMPACT_S = 300.0
ROOM_AGAIN_S = 30.0
_FEWEST_TO_CHOOSE = 3
"""With two servers, the loss of either one ends the quorum."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EtcdOptions:
    """The differences between etcd servers of this cluster and external ones."""

    is_managed: bool = True
    """The servers belong to the candidates, each named for its node, and store nothing else."""
    lease_s: int = LEASE_S
    endpoints_are: Callable[[tuple[str, ...]], None] = lambda _endpoints: None
    """Called when the servers of the candidates have changed."""


class Upkeep:
    """Maintenance of servers that belong to this cluster; external servers are not touched."""

    def __init__(self, gateway: Gateway, keys: Keys, node: NodeUuid, options: EtcdOptions) -> None:
        self._gateway, self._keys, self._node, self._options = gateway, keys, node, options
        self._room_made = 0.0
        self.holders: frozenset[NodeUuid] = frozenset()
        """The candidates whose servers have a vote."""

    async def compact(self) -> None:
        """Discard old revisions, only on servers that belong to this cluster."""
        old = 0
        while self._options.is_managed:
            await asyncio.sleep(COMPACT_S)
            try:
                revision = (await self._gateway.range(self._keys.head)).header.revision
                if old:
                    await self._gateway.compact(old)
                old = revision
            except (GatewayError, ProtocolError) as err:
                _log.warning("etcd is not compacted: %s", err)

    async def look_at_servers(self) -> None:
        """Update the list of servers, where they belong to the candidates."""
        while True:
            with contextlib.suppress(GatewayError, ProtocolError):
                await self.look_at_members()
            await asyncio.sleep(LOOK_AT_MEMBERS_S)

    async def look_at_members(self) -> None:
        """Ask for the list of servers now; GatewayError."""
        listed = (await self._gateway.members()).members
        own = self._node
        started = sorted(
            (member for member in listed if member.clientURLs and not member.isLearner),
            key=lambda member: (member.name != own, member.name),
        )
        self.holders = frozenset(NodeUuid(member.name) for member in started)
        endpoints = tuple(url for member in started for url in member.clientURLs)
        if endpoints and endpoints != self._gateway.endpoints:
            self._gateway.use_endpoints(endpoints)
            self._options.endpoints_are(endpoints)

    async def lead_elsewhere(self) -> None:
        """Keep etcd's own leader away from this node, as long as it is the master.

        If the master's node died with etcd's leader, the election in etcd would extend the lease of
        the dead master by 2 to 3 s.
        """
        while self._options.is_managed:
            with contextlib.suppress(GatewayError, ProtocolError):
                await self._move_leader()
            await asyncio.sleep(LOOK_AT_MEMBERS_S)

    async def _move_leader(self) -> None:
        url_of = {
            member.name: member.clientURLs[0]
            for member in (await self._gateway.members()).members
            if member.clientURLs and not member.isLearner
        }
        own = url_of.get(self._node)
        if own is None or len(url_of) < _FEWEST_TO_CHOOSE:
            return
        if member := successor(await look(self._gateway, url_of.values()), own):
            await self._gateway.move_leader(own, member)
            _log.info("etcd is led by another node than the master's now")

    async def make_room(self) -> None:
        """Discard old revisions and free their space, only on servers that belong to this cluster."""
        now = asyncio.get_running_loop().time()
        if not self._options.is_managed or now < self._room_made:
            return
        self._room_made = now + ROOM_AGAIN_S
        try:
            await self._gateway.compact(
                (await self._gateway.range(self._keys.head)).header.revision
            )
            for endpoint in self._gateway.endpoints:
                await self._gateway.defragment(endpoint)
            await self._gateway.disarm()
        except (GatewayError, ProtocolError) as err:
            _log.warning("etcd is out of space: %s", err)
