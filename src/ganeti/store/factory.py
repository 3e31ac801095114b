"""Which back end keeps the state of this node, and how it is opened, made and restored.

The choice is the node's own (`StateSettings`); without that file the state is embedded. A back end is one
entry of `BACK_ENDS`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ganeti.base.errors import StoreError
from ganeti.base.paths import Paths
from ganeti.store.backend import StateBackend, StateRestorer
from ganeti.store.embedded import EmbeddedStore
from ganeti.store.etcd.opening import open_etcd
from ganeti.store.etcd.restorer import EtcdRestorer
from ganeti.store.etcd.settings import state_settings
from ganeti.store.interface import Identity
from ganeti.store.local_log import Options
from ganeti.store.ports import OpenedState, Ports, alone
from ganeti.store.register import (
    Answer,
    PromiseRequest,
    Register,
    RegisterFile,
    RegisterKeeper,
    join,
)
from ganeti.store.restoring import EmbeddedRestorer


@dataclass(frozen=True)
class _BackEnd:
    """How to begin with one kind."""

    open: Callable[[Paths, Identity, Ports], Awaitable[OpenedState]]
    """A follower; StoreError says why that is not possible."""
    restorer: Callable[[Paths, Identity], StateRestorer]


async def _open_embedded(paths: Paths, identity: Identity, ports: Ports) -> OpenedState:
    options = Options(archive=paths.job_archive)
    store = await EmbeddedStore.open(paths.state, identity, ports, options)
    return OpenedState(store, store, store.handlers)


BACK_ENDS = {
    "embedded": _BackEnd(_open_embedded, EmbeddedRestorer),
    "etcd": _BackEnd(open_etcd, EtcdRestorer),
}
"""By `StateSettings.kind`."""


def _back_end(paths: Paths) -> _BackEnd:
    return BACK_ENDS[state_settings(paths).kind]


async def open_state(paths: Paths, identity: Identity, ports: Ports) -> OpenedState:
    """Open this node's state as a follower.

    StoreError if it is damaged, of others, or in use; ConfigurationError if the setting is damaged.
    """
    return await _back_end(paths).open(paths, identity, ports)


async def open_alone(paths: Paths, identity: Identity) -> StateBackend:
    """Open the state of a cluster of this node only, while no daemon runs; raises like `open_state`.

    The node joins the cluster if it has not.
    """
    register = RegisterFile(paths.register)
    join_cluster(register, identity)
    opened = await open_state(paths, identity, alone(identity.node_uuid, register))
    return opened.backend


def join_cluster(keeper: RegisterKeeper, identity: Identity) -> None:
    """Let this node's register be one of the cluster; harmless when it is. StoreError if of another."""
    request = PromiseRequest(identity.cluster_uuid, 0, identity.node_uuid)

    def rule(register: Register | None) -> Answer:
        if register is not None and register.cluster_uuid == identity.cluster_uuid:
            return Answer(True, register)
        return join(register, request)

    answer = keeper.decide(rule)
    if not answer.granted:
        raise StoreError(f"this node's register refused: {answer.reason}")


def state_restorer(paths: Paths, identity: Identity) -> StateRestorer:
    """What puts a backup in the place of this node's state; raises like `open_state`."""
    return _back_end(paths).restorer(paths, identity)
