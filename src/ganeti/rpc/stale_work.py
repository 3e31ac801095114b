"""The fence against stale work: calls and programs of earlier masters, and own ones of unknown outcome (R11).

Before the first changing call about an instance, the node confirms that no stale work concerns it
there. Programs are ended, calls without a program are awaited. While any remain, changing calls
about their instance are refused with the reason.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from ganeti.base.errors import RpcError, RpcFailed, RpcUnknown
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.calls import concerned_instance
from ganeti.rpc.headers import UNREACHABLE
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.procedures.migration import MIGRATION_FINISH_SOURCE, MIGRATION_FINISH_TARGET
from ganeti.rpc.procedures.stale_work import END_STALE_WORK, EndWorkArgs, UnfinishedWork

A = TypeVar("A", bound=msgspec.Struct)
R = TypeVar("R")

STALE_WORK = "StaleWork"
"""The `wire_error` of a call that was not sent, because an earlier master's work concerns its instance."""
ENDING = frozenset((MIGRATION_FINISH_SOURCE.name, MIGRATION_FINISH_TARGET.name))
"""Procedures that themselves safely end the work of an earlier call."""
KNOWN_FOR_S = 5.0
"""Time for which a node's report of running work is cached."""
AGAIN_S = 30.0

log = logging.getLogger(__name__)


class Caller(Protocol):
    """The client that makes the calls."""

    async def call(
        self, node: Node, procedure: Procedure[A, R], args: A, *, key: str = ""
    ) -> R: ...

    async def call_all(
        self, nodes: Iterable[Node], procedure: Procedure[A, R], args: A
    ) -> dict[NodeUuid, R | RpcError]: ...


@dataclass
class _Known:
    """A node's last report about earlier work."""

    is_clear: bool = False
    unfinished: list[UnfinishedWork] = field(default_factory=list)
    asked_at: float = float("-inf")
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    may_run: dict[str, set[str]] = field(default_factory=dict)
    """Instance -> keys of this master's own calls of unknown outcome, whose programs may run or start."""


class StaleWorkFence:
    """The calls of one master in one epoch; calls that change an instance pass the fence first."""

    def __init__(self, rpc: Caller) -> None:
        self._rpc = rpc
        self._known: dict[NodeUuid, _Known] = {}
        self._numbers = itertools.count(1)

    async def call(self, node: Node, procedure: Procedure[A, R], args: A, *, key: str = "") -> R:
        """Behave like `RpcClient.call`.

        RpcFailed, and nothing was sent, while stale work concerns the instance.
        """
        acts = procedure.changes and procedure.name not in ENDING
        instance = concerned_instance(args)
        if acts and instance and not node.offline:
            await self._leave_alone(node, instance)
        try:
            return await self._rpc.call(node, procedure, args, key=key)
        except RpcUnknown:
            if procedure.is_long:
                self._of(node).may_run.setdefault(instance, set()).add(key)
            raise

    async def call_all(
        self, nodes: Iterable[Node], procedure: Procedure[A, R], args: A
    ) -> dict[NodeUuid, R | RpcError]:
        return await self._rpc.call_all(nodes, procedure, args)

    async def sweep(self, nodes: Callable[[], Iterable[Node]]) -> None:
        """Ask all nodes to end earlier work, repeatedly where some remains; return when none remains."""
        while True:
            left = [node for node in nodes() if not node.offline and not self._of(node).is_clear]
            if not left:
                return
            await asyncio.gather(*(self._sweep_one(node) for node in left))
            if any(not self._of(node).is_clear for node in left):
                await asyncio.sleep(AGAIN_S)

    async def _sweep_one(self, node: Node) -> None:
        try:
            known = await self._ask(node)
        except RpcError as err:
            log.info(
                "%s does not report which work of earlier masters still runs there: %s",
                node.name,
                err.reason,
            )
            return
        for one in known.unfinished:
            log.warning(
                "%s still runs %s (%s) for an earlier master", node.name, one.what, one.instance
            )

    def _of(self, node: Node) -> _Known:
        return self._known.setdefault(NodeUuid(node.uuid), _Known())

    async def _leave_alone(self, node: Node, instance: str) -> None:
        try:
            known = await self._ask(node)
            await self._end_own(node, known, instance)
        except RpcUnknown as err:
            # Ending earlier work may be repeated; the requested call has certainly not been sent.
            raise RpcFailed(node.name, err.reason, UNREACHABLE) from err
        what = [one.what for one in known.unfinished if one.instance in ("", instance)]
        if what:
            raise RpcFailed(
                node.name,
                (
                    f"it still carries out {', '.join(what)} for an earlier master, so this call "
                    f"for {instance} was not sent; try again when that work has ended"
                ),
                STALE_WORK,
            )

    async def _end_own(self, node: Node, known: _Known, instance: str) -> None:
        """End this master's own programs whose outcome is unknown."""
        async with known.asking:
            if not (keys := known.may_run.get(instance)):
                return
            args = EndWorkArgs(keys=sorted(keys))
            key = f"earlier/{next(self._numbers)}"
            result = await self._rpc.call(node, END_STALE_WORK, args, key=key)
            if result.unfinished:
                what = ", ".join(one.what for one in result.unfinished)
                text = (
                    f"it still carries out {what}, which cannot be ended, so this call for "
                    f"{instance} was not sent"
                )
                raise RpcFailed(node.name, text, STALE_WORK)
            del known.may_run[instance]

    async def _ask(self, node: Node) -> _Known:
        known = self._of(node)
        async with known.asking:
            now = asyncio.get_running_loop().time()
            if known.is_clear or now - known.asked_at < KNOWN_FOR_S:
                return known
            key = f"earlier/{next(self._numbers)}"
            result = await self._rpc.call(node, END_STALE_WORK, EndWorkArgs(older=True), key=key)
            for what in result.ended:
                log.info("%s has ended %s of an earlier master", node.name, what)
            known.unfinished = result.unfinished
            known.is_clear = not result.unfinished
            known.asked_at = asyncio.get_running_loop().time()
            return known
