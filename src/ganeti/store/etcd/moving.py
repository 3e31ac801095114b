"""Locks in etcd while the state moves from it to another back end."""

import contextlib
from collections.abc import AsyncIterator

from ganeti.base.paths import Paths
from ganeti.store.etcd.backend import HAND_OVER_S
from ganeti.store.etcd.gateway import Gateway, GatewayError
from ganeti.store.etcd.keys import Keys
from ganeti.store.etcd.messages import Compare, delete, put
from ganeti.store.etcd.opening import open_gateway
from ganeti.store.interface import Identity
from ganeti.store.settings import StateSettings, state_settings


@contextlib.asynccontextmanager
async def leaving(paths: Paths, identity: Identity, settings: StateSettings) -> AsyncIterator[None]:
    """Prevent elections: otherwise another candidate would win as soon as this node's daemon ends."""
    moved = Keys(identity.cluster_uuid).moved
    async with _opened(paths, settings) as gateway:
        await gateway.txn([], [put(moved, identity.node_uuid.encode())])
        try:
            yield
        finally:
            if state_settings(paths).kind == settings.kind:
                with contextlib.suppress(GatewayError):
                    await gateway.txn([], [delete(moved)])


async def resume(paths: Paths, identity: Identity, settings: StateSettings) -> None:
    """Cancel the move of the state; without a master, this node becomes the next one."""
    keys = Keys(identity.cluster_uuid)
    back = delete(keys.moved)
    async with _opened(paths, settings) as gateway:
        lease = await gateway.grant_lease(HAND_OVER_S)
        request = put(keys.hand_over, identity.node_uuid.encode(), lease)
        await gateway.txn([Compare(keys.leader, create_revision=0)], [back, request], [back])


@contextlib.asynccontextmanager
async def _opened(paths: Paths, settings: StateSettings) -> AsyncIterator[Gateway]:
    gateway = open_gateway(paths, settings)
    try:
        yield gateway
    finally:
        await gateway.close()
