"""Opens the etcd back end of a node whose settings name an etcd."""

import asyncio
import logging

import msgspec

from ganeti.base.clock import SystemClock
from ganeti.base.errors import ConfigurationError, HostError, StoreError
from ganeti.base.paths import Paths
from ganeti.model.objects import NodeUuid
from ganeti.store.election import Vote
from ganeti.store.etcd.backend import EtcdBackend
from ganeti.store.etcd.gateway import Gateway
from ganeti.store.etcd.server import ensure_certificate
from ganeti.store.etcd.settings import (
    access,
    server_settings,
)
from ganeti.store.etcd.upkeep import EtcdOptions
from ganeti.store.fence import RegisterFence
from ganeti.store.interface import Identity, Membership
from ganeti.store.ports import OpenedState, Ports
from ganeti.store.settings import StateSettings, keep_state_settings, state_settings

_log = logging.getLogger(__name__)


def open_gateway(paths: Paths, settings: StateSettings) -> Gateway:
    """Return a client of this node's etcd; StoreError where its certificates or settings are wrong."""
    try:
        server = server_settings(paths)
        if server is not None:
            now = SystemClock().time()
            ensure_certificate(paths, server.cluster_uuid, server.address, now)
        return Gateway(access(paths, settings))
    except (ConfigurationError, HostError) as err:
        raise StoreError(err.message) from err


async def open_etcd(paths: Paths, identity: Identity, ports: Ports) -> OpenedState:
    """Return a follower that campaigns from now on; StoreError."""
    try:
        settings = state_settings(paths)
    except ConfigurationError as err:
        raise StoreError(err.message) from err

    def endpoints_are(endpoints: tuple[str, ...]) -> None:
        """Store the endpoints, so that the next start finds them."""
        new = msgspec.structs.replace(settings, endpoints=endpoints)
        try:
            keep_state_settings(paths, new)
        except OSError as err:
            _log.warning("%s: %s", paths.state_settings, err.strerror)

    async def counted() -> Membership:
        return await backend.members()

    async def is_gone(node: NodeUuid) -> bool:
        vote = await ports.voters.read(node)
        return isinstance(vote, Vote) and not vote.voter.has_master_daemon

    fence = RegisterFence(
        identity,
        ports.voters,
        counted,
        ports.nodes,
        holds=lambda epoch: backend.holds(epoch),  # noqa: PLW0108 - it is made below
    )
    backend = EtcdBackend(
        open_gateway(paths, settings),
        identity,
        highest_promised=fence.greatest_promised,
        is_gone=is_gone,
        options=EtcdOptions(is_managed=settings.is_managed, endpoints_are=endpoints_are),
    )
    try:
        await backend.start()
    except BaseException:
        await asyncio.shield(backend.close())
        raise
    return OpenedState(backend, fence, {}, backend.master_hung_up)
