"""Queries to nodes that jobs share.

When many jobs run at once, most of them ask the same of the same nodes. One call answers all that wait for it.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from ganeti.base.errors import RpcError
from ganeti.model import wire
from ganeti.model.objects import Node
from ganeti.rpc.procedures.form import Procedure
from ganeti.units.calls import Rpc

A = TypeVar("A", bound=msgspec.Struct)
R = TypeVar("R")
LONGEST_WAIT_S = 1.0
"""A call begins so long after a job has asked, even if the node has not answered the call before: it may hang."""
_Query = tuple[str, str, bytes]
"""The node's UUID, the procedure, its arguments."""


class Shared(NamedTuple, Generic[R]):
    """An answer to several jobs."""

    answer: R
    pending: frozenset[int]
    """The jobs whose placements were pending when the call began: the answer may lack what these use."""


class SharedQueries:
    """Sends each query once for all jobs that ask it at the same time; the call begins after all of them have asked."""

    def __init__(self, rpc: Rpc, pending: Callable[[], frozenset[int]] = frozenset) -> None:
        self._rpc, self._pending = rpc, pending
        self._next: dict[_Query, asyncio.Task[Any]] = {}
        """Those that have not begun: a job that asks now is answered by them."""
        self._last: dict[_Query, asyncio.Task[Any]] = {}
        """Those that have begun."""

    async def ask(self, node: Node, procedure: Procedure[A, R], args: A) -> Shared[R]:
        """Return the answer, which is not older than this call; raise RpcOffline, RpcFailed or RpcUnknown."""
        query = (node.uuid, procedure.name, wire.encode(args))
        task: asyncio.Task[Shared[R] | RpcError] | None = self._next.get(query)
        if task is None:
            asking = self._ask(query, node, procedure, args)
            name = f"{procedure.name} of {node.name}"
            task = self._next[query] = asyncio.create_task(asking, name=name)
        answer = await asyncio.shield(task)
        if isinstance(answer, RpcError):
            raise answer
        return answer

    async def _ask(
        self, query: _Query, node: Node, procedure: Procedure[A, R], args: A
    ) -> Shared[R] | RpcError:
        if (before := self._last.get(query)) is not None:
            await asyncio.wait([before], timeout=LONGEST_WAIT_S)
        mine = self._last[query] = self._next.pop(query)
        pending = self._pending()
        try:
            return Shared(await self._rpc.call(node, procedure, args), pending)
        except RpcError as err:
            return err
        finally:
            if self._last.get(query) is mine:
                del self._last[query]
