"""The hooks of nodes, as the nodes report them with their answers to the calls of jobs.

An operation sees every program that an administrator installed before it began: a report is valid for an operation if
the call was made after the operation began. A node without such a report is queried, once for all operations that
ask at the same time. The master reads the directory of its own node without a call.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from ganeti.base.errors import HostError, RpcError, RpcFailed, RpcOffline
from ganeti.model.hooks import Phase
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.headers import UNKNOWN_PROCEDURE
from ganeti.rpc.hook_reports import HookReports
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.hooks import HOOKS_LIST, HookDirectory
from ganeti.units.shared_queries import SharedQueries

Listed = frozenset[tuple[str, Phase]]
OwnHooks = Callable[[], list[HookDirectory]]
"""Read the directories of this host; HostError."""


class HookListing:
    """Knows the directories of nodes that are not empty."""

    def __init__(
        self,
        queries: SharedQueries,
        own: OwnHooks | None = None,
        reports: HookReports | None = None,
    ) -> None:
        """`own` reads the master's own node; if it cannot, the node is queried like any other."""
        self._queries, self._own = queries, own
        self.reports = reports or HookReports()

    async def of_all(
        self, nodes: Iterable[Node], master: NodeUuid, begun: int
    ) -> dict[NodeUuid, Listed | RpcError]:
        """Return the hooks of each node for an operation that began then; an error takes the place of an answer."""
        known: dict[NodeUuid, Listed | RpcError] = {}
        unknown: list[Node] = []
        for node in nodes:
            found = self._without_call(node, master, begun)
            if found is None:
                unknown.append(node)
            else:
                known[NodeUuid(node.uuid)] = found
        if unknown:
            answers = await asyncio.gather(*(self._answer(node) for node in unknown))
            known |= {NodeUuid(one.uuid): said for one, said in zip(unknown, answers, strict=True)}
        return known

    def _without_call(self, node: Node, master: NodeUuid, begun: int) -> Listed | RpcError | None:
        """Return what is known of a node; None if it must be asked."""
        if node.offline:
            return RpcOffline(node.name, "it is marked offline")
        if node.uuid == master and self._own is not None:
            with contextlib.suppress(HostError):
                return _listed(self._own())
        reported = self.reports.since(NodeUuid(node.uuid), begun)
        return None if reported is None else _listed(reported)

    async def _answer(self, node: Node) -> Listed | RpcError:
        try:
            return _listed((await self._queries.ask(node, HOOKS_LIST, Nothing())).answer)
        except RpcFailed as err:
            return frozenset() if err.wire_error == UNKNOWN_PROCEDURE else err
        except RpcError as err:
            return err


def _listed(found: Iterable[HookDirectory]) -> Listed:
    return frozenset((one.hook, one.phase) for one in found)
