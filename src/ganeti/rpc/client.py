"""The master's end of the RPC: every call ends in a result, an error, "offline" or "unknown".

    result       the node has done it
    RpcOffline   the node is marked offline; nothing was sent
    RpcFailed    the node answered with an error; with `UNREACHABLE`, it surely has not seen the call
    RpcUnknown   anything else once the call may have been sent; never treated as failure

A call that changes nothing is retried once. A call for long work with a key is repeated while its
node restarts: the node waits for the first call's work, or returns its result.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

import msgspec

from ganeti.base.errors import InputError, RpcError, RpcFailed, RpcOffline, RpcUnknown
from ganeti.model import wire
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.headers import (
    ACCESS_DENIED,
    EPOCH_HEADER,
    EPOCH_REFUSED,
    KEY_HEADER,
    MASTER_HEADER,
    UNREACHABLE,
)
from ganeti.rpc.hook_reports import HookReports
from ganeti.rpc.node_changes import NodeChanges
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.timings import Timing
from ganeti.rpc.transport import Answer, NoAnswer, NotSent, Transport
from ganeti.store.lease_gate import LeaseGate

A = TypeVar("A", bound=msgspec.Struct)
R = TypeVar("R")

NODES_AT_ONCE = 30
NO_LEASE = "was not called: this node is not the master any more"
REATTACH_TRIES = 30
REATTACH_DELAY_S = 2.0
log = logging.getLogger(__name__)


class _RemoteError(msgspec.Struct, frozen=True):
    error: str
    message: str
    code: str = ""


class RpcClient:
    """Calls nodes.

    `leader_term` returns the master's epoch and UUID; `superseded` is called with a candidate's
    greater epoch.
    """

    def __init__(
        self,
        transport: Transport,
        leader_term: Callable[[], tuple[int, str]],
        superseded: Callable[[str], None] | None = None,
        gate: LeaseGate | None = None,
    ) -> None:
        """Calls that change a node wait for `gate`, the lease of this master."""
        self._transport = transport
        self._leader_term = leader_term
        self._superseded = superseded
        self._gate = gate
        self._fan_out = asyncio.Semaphore(NODES_AT_ONCE)
        self._term: tuple[int, str] = 0, ""
        self._term_headers: dict[str, str] = {}
        """The headers of the last term."""
        self._encoded: tuple[msgspec.Struct, bytes] | None = None
        """The last arguments: many nodes may get the same ones."""
        self.changes = 0
        """Number of finished changing calls, successful or not."""
        self.timings: defaultdict[str, Timing] = defaultdict(Timing)
        """Durations of the calls that were sent, by procedure."""
        self.hook_reports = HookReports()
        self.node_changes = NodeChanges()

    def call(
        self, node: Node, procedure: Procedure[A, R], args: A, *, key: str = ""
    ) -> Coroutine[Any, Any, R]:
        """Return the result; raise RpcOffline, RpcFailed or RpcUnknown within the procedure's deadline."""
        if self._encoded is None or self._encoded[0] is not args:
            self._encoded = args, wire.encode(args)
        return self._call(node, procedure, self._encoded[1], key)

    async def _call(self, node: Node, procedure: Procedure[A, R], body: bytes, key: str) -> R:
        if node.offline:
            raise RpcOffline(node.name, "it is marked offline")
        if procedure.changes and self._gate is not None and not await self._gate.wait():
            raise RpcFailed(node.name, NO_LEASE, UNREACHABLE)
        headers = self._headers(key)
        loop = asyncio.get_running_loop()
        begun, is_answered = loop.time(), False
        called_at = self.hook_reports.moment()
        try:
            answer = await self._post(node, procedure, body, headers, begun)
            is_answered = True
        except NotSent as err:
            raise RpcFailed(node.name, f"cannot be reached: {err}", UNREACHABLE) from err
        except NoAnswer as err:
            raise RpcUnknown(node.name, f"{procedure.name}: no answer: {err}") from err
        finally:
            self.changes += procedure.changes
            if procedure.changes_resources or not is_answered:
                self.node_changes.add(NodeUuid(node.uuid))
            self.timings[procedure.name].add(loop.time() - begun, failed=not is_answered)
        if answer.hooks is not None:
            self.hook_reports.add(NodeUuid(node.uuid), called_at, answer.hooks)
        return self._result(node, procedure, answer)

    async def call_all(
        self, nodes: Iterable[Node], procedure: Procedure[A, R], args: A
    ) -> dict[NodeUuid, R | RpcError]:
        """Return the results of many nodes, called at the same time; an error takes the place of a result."""
        body = wire.encode(args)

        asked = list(nodes)
        answers: dict[str, R | RpcError] = {}
        left = iter(asked)

        async def ask() -> None:
            async with self._fan_out:
                for node in left:
                    try:
                        answers[node.uuid] = await self._call(node, procedure, body, "")
                    except RpcError as err:
                        answers[node.uuid] = err

        await asyncio.gather(*(ask() for _ in range(min(len(asked), NODES_AT_ONCE))))
        return {NodeUuid(node.uuid): answers[node.uuid] for node in asked}

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    def _headers(self, key: str) -> dict[str, str]:
        term = self._leader_term()
        if term != self._term:
            epoch, master_uuid = self._term = term
            self._term_headers = {EPOCH_HEADER: str(epoch), MASTER_HEADER: master_uuid}
        return {**self._term_headers, KEY_HEADER: key} if key else self._term_headers

    async def _post(
        self,
        node: Node,
        procedure: Procedure[A, R],
        body: bytes,
        headers: dict[str, str],
        begun: float,
    ) -> Answer:
        tries = 1
        if not procedure.changes:
            tries = 2
        elif procedure.is_long and KEY_HEADER in headers:
            tries = REATTACH_TRIES
        loop, left_s = asyncio.get_running_loop(), procedure.deadline_s
        end = begun + procedure.deadline_s
        lost: NoAnswer | None = None
        for _ in range(tries):
            if lost is not None:
                if procedure.changes:
                    await asyncio.sleep(min(REATTACH_DELAY_S, end - loop.time()))
                left_s = end - loop.time()
            if left_s <= 0:
                break
            try:
                return await self._transport.post(
                    node,
                    procedure.name,
                    body,
                    headers=headers,
                    timeout_s=left_s,
                    lane=procedure.lane,
                )
            except NoAnswer as err:
                log.info("%s on %s: no answer: %s", procedure.name, node.name, err)
                lost = err
            except NotSent:
                # Once a call may have arrived, a later attempt that was not sent proves nothing
                # about it.
                if lost is None:
                    raise
        raise lost or NoAnswer("no time was left")

    def _result(self, node: Node, procedure: Procedure[A, R], answer: Answer) -> R:
        if answer.status == 200:  # noqa: PLR2004 - OK
            try:
                answered = msgspec.json.decode(answer.body, type=procedure.answer)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
                raise RpcUnknown(
                    node.name, f"{procedure.name}: its answer cannot be understood: {err}"
                ) from err
            result: R = answered.result
            return result
        try:
            error = wire.decode(answer.body, _RemoteError)
        except InputError:
            error = _RemoteError("ProtocolError", f"{procedure.name}: HTTP status {answer.status}")
        message = error.message
        if error.error == EPOCH_REFUSED and self._superseded is not None:
            # Only candidates campaign: a refusal by another node must not end the mastership.
            if node.master_candidate:
                self._superseded(f"node {node.name}: {error.message}")
            else:
                message += f"(if this continues: gnt-node add --readd {node.name})"
        if error.error == ACCESS_DENIED:
            message = (
                "it answers only master candidates, and its list does not contain this node (if "
                f"it should, and this continues: gnt-node add --readd {node.name})"
            )
        raise RpcFailed(node.name, message, error.error)
