"""Calls to nodes without a network: the same interface, with failures on demand.

Arguments and results go through the wire form, so that a handler cannot hand over what JSON cannot.
"""

import asyncio
import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from ganeti.base.errors import GanetiError, RpcError, RpcFailed, RpcOffline, RpcUnknown
from ganeti.model import wire
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.headers import UNKNOWN_PROCEDURE, UNREACHABLE
from ganeti.rpc.hook_reports import HookReports
from ganeti.rpc.node_changes import NodeChanges
from ganeti.rpc.procedures.form import Nothing, Procedure
from ganeti.rpc.procedures.hooks import HOOKS_LIST, report

A = TypeVar("A", bound=msgspec.Struct)
R = TypeVar("R")


class Fault(enum.Enum):
    """How a call goes wrong."""

    NOT_SENT = "not sent"
    """RpcFailed, `Unreachable`: nothing was done."""
    REFUSED = "refused"
    """RpcFailed: the node answers with an error and has done nothing."""
    LOST_CALL = "lost call"
    """RpcUnknown, and nothing was done."""
    LOST_ANSWER = "lost answer"
    """RpcUnknown, and it was done."""


@dataclass(frozen=True)
class RecordedCall:
    """One call that was made, whether it failed or not."""

    node_name: str
    procedure: str
    args: Any
    key: str


class FakeRpc:
    """`nodes` maps a node's name to its handlers; a name without any is unreachable."""

    def __init__(
        self,
        nodes: Mapping[str, Handlers],
        leader_term: Callable[[], tuple[int, str]] = lambda: (1, "master"),
    ) -> None:
        self.nodes = dict(nodes)
        self.calls: list[RecordedCall] = []
        self.changing_calls: list[RecordedCall] = []
        """Those of `calls` whose procedures change a host, in order."""
        self.hook_reports = HookReports()
        self.node_changes = NodeChanges()
        self._leader_term = leader_term
        self._faults: dict[int, Fault] = {}
        self._changing = 0

    def reset(self) -> None:
        """Forget what was called."""
        self.calls.clear()
        self.changing_calls.clear()

    def fail(self, nth_changing_call: int, fault: Fault) -> None:
        """Make the n-th changing call from now on (1 is the next) go wrong."""
        self._faults[self._changing + nth_changing_call] = fault

    def forget_faults(self) -> None:
        """Let no injected fault happen that has not happened yet."""
        self._faults.clear()

    async def call(self, node: Node, procedure: Procedure[A, R], args: A, *, key: str = "") -> R:
        """The handler's result; raises RpcOffline, RpcFailed or RpcUnknown."""
        if node.offline:
            raise RpcOffline(node.name, "it is marked offline")
        try:
            return await self._made(node, procedure, args, key)
        finally:
            if procedure.changes_resources:
                self.node_changes.add(NodeUuid(node.uuid))

    async def _made(self, node: Node, procedure: Procedure[A, R], args: A, key: str) -> R:
        recorded = RecordedCall(node.name, procedure.name, args, key)
        self.calls.append(recorded)
        if procedure.changes:
            self.changing_calls.append(recorded)
        fault = self._next_fault(procedure)
        if fault is Fault.NOT_SENT or node.name not in self.nodes:
            raise RpcFailed(node.name, "cannot be reached: no connection", UNREACHABLE)
        if fault is Fault.REFUSED:
            raise RpcFailed(node.name, f"{procedure.name}: an injected failure", "HostError")
        if fault is Fault.LOST_CALL:
            raise RpcUnknown(node.name, f"{procedure.name}: no answer: an injected failure")
        called_at = self.hook_reports.moment()
        result = await self._answer(node, procedure, args, key)
        if key:
            await self._report_hooks(node, called_at)
        if fault is Fault.LOST_ANSWER:
            raise RpcUnknown(node.name, f"{procedure.name}: no answer: an injected failure")
        return result

    async def call_all(
        self, nodes: Iterable[Node], procedure: Procedure[A, R], args: A
    ) -> dict[NodeUuid, R | RpcError]:
        """The results of many nodes; an error stands in for a result."""

        async def one(node: Node) -> R | RpcError:
            try:
                return await self.call(node, procedure, args)
            except RpcError as err:
                return err

        asked = list(nodes)
        answers = await asyncio.gather(*(one(node) for node in asked))
        return {NodeUuid(node.uuid): answer for node, answer in zip(asked, answers, strict=True)}

    async def close(self) -> None:
        """Nothing to close."""

    def _next_fault(self, procedure: Procedure[Any, Any]) -> Fault | None:
        if not procedure.changes:
            return None
        self._changing += 1
        return self._faults.pop(self._changing, None)

    async def _report_hooks(self, node: Node, called_at: int) -> None:
        """Do what the header of an answer does; a node may be without hooks."""
        if handler := self.nodes[node.name].get(HOOKS_LIST.name):
            directories = await handler(Nothing(), Call())
            self.hook_reports.add(NodeUuid(node.uuid), called_at, report(directories))

    async def _answer(self, node: Node, procedure: Procedure[A, R], args: A, key: str) -> R:
        handler = self.nodes[node.name].get(procedure.name)
        if handler is None:
            what = f"this node has no procedure {procedure.name!r}"
            raise RpcFailed(node.name, what, UNKNOWN_PROCEDURE)
        epoch, master_uuid = self._leader_term()
        sent = wire.decode(wire.encode(args), procedure.arguments)
        try:
            result = await handler(sent, Call(epoch, master_uuid, key))
        except GanetiError as err:
            raise RpcFailed(node.name, err.message, err.wire_name) from err
        answered: R = wire.convert(wire.plain(result), procedure.result)
        return answered
