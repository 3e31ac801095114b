"""Looking after etcd's servers: which there are, their old revisions, and room where they are full."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from ganeti.base.errors import ProtocolError
from ganeti.model.objects import NodeUuid
from ganeti.store.etcd.gateway import Gateway, GatewayError
from ganeti.store.etcd.keys import Keys

LEASE_S = 6
"""How long after its last sign of life a master's place is taken by another one."""
LOOK_AT_MEMBERS_S = 10.0
COMPACT_S = 300.0
ROOM_AGAIN_S = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EtcdOptions:
    """What differs between etcd servers that belong to this cluster, and others."""

    is_managed: bool = True
    """The servers are the candidates', each named for its node, and hold nothing else."""
    lease_s: int = LEASE_S
    endpoints_are: Callable[[tuple[str, ...]], None] = lambda _endpoints: None
    """Told when the servers of the candidates are others."""


class Upkeep:
    """Maintenance of servers that belong to this cluster; external servers are not touched."""

    def __init__(self, gateway: Gateway, keys: Keys, node: NodeUuid, options: EtcdOptions) -> None:
        self._gateway, self._keys, self._node, self._options = gateway, keys, node, options
        self._room_made = 0.0
        self.holders: frozenset[NodeUuid] = frozenset()
        """The candidates whose servers have a vote."""

    async def compact(self) -> None:
        """Forget old revisions, on servers that belong to this cluster alone."""
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
        """Know the servers, as they come and go, where they are the candidates'."""
        while True:
            with contextlib.suppress(GatewayError, ProtocolError):
                await self.look_at_members()
            await asyncio.sleep(LOOK_AT_MEMBERS_S)

    async def look_at_members(self) -> None:
        """Ask now who the servers are; GatewayError."""
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

    async def make_room(self) -> None:
        """Forget old revisions and free their space, on servers that belong to this cluster alone."""
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
