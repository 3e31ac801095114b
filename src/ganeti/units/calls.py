"""The interface through which units call nodes."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

import msgspec

from ganeti.base.errors import RpcError
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.procedures.form import Procedure

A = TypeVar("A", bound=msgspec.Struct)
R = TypeVar("R")


class Rpc(Protocol):
    """The calls to nodes, as `ganeti.rpc.client.RpcClient` makes them."""

    async def call(self, node: Node, procedure: Procedure[A, R], args: A, *, key: str = "") -> R:
        """Return the result; raise RpcOffline, RpcFailed or RpcUnknown."""
        ...

    async def call_all(
        self, nodes: Iterable[Node], procedure: Procedure[A, R], args: A
    ) -> dict[NodeUuid, R | RpcError]:
        """Return the results of many nodes; an error takes the place of a missing result."""
        ...
