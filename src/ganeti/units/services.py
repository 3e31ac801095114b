"""What the master has, for all units and for undo steps."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec

from ganeti.base.clock import Clock
from ganeti.base.errors import RpcError
from ganeti.base.ids import IdSource
from ganeti.config.config import Config
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.procedures import Procedure
from ganeti.units.placements import Placements

A = TypeVar("A", bound=msgspec.Struct)


class Rpc(Protocol):
    """The calls to nodes, as `ganeti.rpc.client.RpcClient` makes them."""

    async def call(self, node: Node, procedure: Procedure[A], args: A, *, key: str = "") -> Any:
        """The result; raises RpcOffline, RpcFailed or RpcUnknown."""
        ...

    async def call_all(
        self, nodes: Iterable[Node], procedure: Procedure[A], args: A
    ) -> dict[NodeUuid, Any | RpcError]:
        """The results of many nodes; an error stands in for a result."""
        ...


@dataclass(frozen=True)
class Services:
    """The master's means."""

    config: Config
    rpc: Rpc
    ids: IdSource
    clock: Clock
    placements: Placements
    ssconf_position: Callable[[], int]
    """Position of the configuration that the ssconf files of all nodes should show by now."""
