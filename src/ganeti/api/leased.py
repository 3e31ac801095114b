"""Answers as the master only while its lease is valid (F6).

A daemon that was frozen or isolated may have been replaced without knowing it. Its lease has
expired by then, on the monotonic clock, so no outdated data reaches a client, not even on old
connections. A request waits until a majority confirms the lease again, or the role has ended.
"""

from collections.abc import Collection

from ganeti.api.luxi_server import Caller, Dispatcher
from ganeti.base.errors import NotMaster
from ganeti.protocols.luxi import Answer, Request, refusal
from ganeti.store.lease_gate import LeaseGate

REASON = (
    "this node is not the master: its lease has expired, and another node may be the master by now"
)


class LeasedDispatcher:
    """Another dispatcher, guarded by the lease of the master.

    `durable` names the methods whose success is in the state when they answer: their answer is sent
    even if the lease ended meanwhile.
    """

    def __init__(self, inner: Dispatcher, gate: LeaseGate, durable: Collection[str]) -> None:
        self._inner, self._gate, self._durable = inner, gate, frozenset(durable)

    def is_abandonable(self, method: str) -> bool:
        """Return the answer of the inner dispatcher."""
        return self._inner.is_abandonable(method)

    def answer_at_once(self, request: Request, caller: Caller) -> Answer | None:
        """Return the inner dispatcher's answer; None while the lease must be confirmed."""
        return self._inner.answer_at_once(request, caller) if self._gate.holds() else None

    async def answer(self, request: Request, caller: Caller) -> Answer:
        """Return the inner dispatcher's answer, or a refusal.

        Data read while the lease had expired is sent once the lease is confirmed: then no other master was elected
        before.
        """
        if not await self._gate.wait():
            return refusal(NotMaster(REASON))
        answer = await self._inner.answer(request, caller)
        if request.method not in self._durable and not await self._gate.wait():
            return refusal(NotMaster(REASON))
        return answer
