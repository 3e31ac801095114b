"""The hooks of nodes, queried for every operation, once for all operations that ask at the same time.

A program that an administrator has put there is seen by every operation that begins later. Who asks
while a question is under way waits for the next one: so a busy master asks a node one question at a time.
The master reads the directory of its own node without a call.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from ganeti.base.errors import HostError, RpcError, RpcFailed, RpcOffline
from ganeti.model.hooks import Phase
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.headers import UNKNOWN_PROCEDURE
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.hooks import HOOKS_LIST, HookDirectory
from ganeti.units.calls import Rpc

Listed = frozenset[tuple[str, Phase]]
OwnHooks = Callable[[], list[HookDirectory]]
"""Looks at the directories of this host; HostError."""


class HookListing:
    """Asks nodes for their directories that are not empty."""

    def __init__(self, rpc: Rpc, own: OwnHooks | None = None) -> None:
        """`own` looks at the master's node itself; who cannot see there asks as of any other."""
        self._rpc, self._own = rpc, own
        self._next: dict[NodeUuid, asyncio.Task[Listed | RpcError]] = {}
        self._asking: dict[NodeUuid, asyncio.Lock] = {}

    async def of_all(
        self, nodes: Iterable[Node], master: NodeUuid
    ) -> dict[NodeUuid, Listed | RpcError]:
        """Return what each node has; an error stands in for the answer of one that gives none."""
        asked = list(nodes)
        answers = await asyncio.gather(*(self._of(node, master) for node in asked))
        return {NodeUuid(node.uuid): said for node, said in zip(asked, answers, strict=True)}

    async def _of(self, node: Node, master: NodeUuid) -> Listed | RpcError:
        if node.offline:
            return RpcOffline(node.name, "it is marked offline")
        if node.uuid == master and self._own is not None:
            with contextlib.suppress(HostError):
                return _listed(self._own())
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
            return _listed(found)


def _listed(found: Iterable[HookDirectory]) -> Listed:
    return frozenset((one.hook, one.phase) for one in found)
