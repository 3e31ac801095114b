"""Which hooks nodes have: asked anew for every operation, once for all operations that ask at the same time.

A program that an administrator has put there is seen by every operation that begins later. Who asks
while a question is under way waits for the next one: so a busy master asks a node one question at a time.
"""

import asyncio
from collections.abc import Iterable

from ganeti.base.errors import RpcError, RpcFailed, RpcOffline
from ganeti.model.hooks import Phase
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.hooks import HOOKS_LIST
from ganeti.units.services import Rpc

Listed = frozenset[tuple[str, Phase]]
UNKNOWN_PROCEDURE = "UnknownProcedure"
"""What a node says whose software is older than hooks."""


class HookListing:
    """Asks nodes for their directories that are not empty."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc
        self._next: dict[NodeUuid, asyncio.Task[Listed | RpcError]] = {}
        self._asking: dict[NodeUuid, asyncio.Lock] = {}

    async def of_all(self, nodes: Iterable[Node]) -> dict[NodeUuid, Listed | RpcError]:
        """What each node has; an error stands in for the answer of one that gives none."""
        asked = list(nodes)
        answers = await asyncio.gather(*(self._of(node) for node in asked))
        return {NodeUuid(node.uuid): said for node, said in zip(asked, answers, strict=True)}

    async def _of(self, node: Node) -> Listed | RpcError:
        if node.offline:
            return RpcOffline(node.name, "it is marked offline")
        task = self._next.get(node.uuid)
        if task is None:
            task = self._next[node.uuid] = asyncio.create_task(
                self._ask(node), name=f"hooks of {node.name}"
            )
        return await asyncio.shield(task)

    async def _ask(self, node: Node) -> Listed | RpcError:
        async with self._asking.setdefault(node.uuid, asyncio.Lock()):
            del self._next[node.uuid]  # who comes from now on has begun after this question
            try:
                found = await self._rpc.call(node, HOOKS_LIST, Nothing())
            except RpcFailed as err:
                return frozenset() if err.wire_error == UNKNOWN_PROCEDURE else err
            except RpcError as err:
                return err
            return frozenset((one.hook, one.phase) for one in found)
