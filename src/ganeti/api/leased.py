"""Answers as the master only while its lease is valid (F6).

A daemon that was frozen or isolated may have been replaced without knowing it. Its lease has
expired by then, on the monotonic clock, so no outdated data reaches a client, not even on old
connections.
"""

from collections.abc import Callable, Collection

from ganeti.api.luxi_server import Caller, Dispatcher
from ganeti.base.errors import NotMaster
from ganeti.protocols.luxi import Answer, Request, refusal

REASON = (
    "this node is not the master: its lease has expired, and another node may be the master by now"
)


class LeasedDispatcher:
    """Another dispatcher, guarded by `holds`, which returns whether the lease is valid.

    `durable` names the methods whose success is in the state when they answer: their answer is sent
    even if the lease ended meanwhile.
    """

    def __init__(
        self, inner: Dispatcher, holds: Callable[[], bool], durable: Collection[str]
    ) -> None:
        self._inner, self._holds, self._durable = inner, holds, frozenset(durable)

    def is_abandonable(self, method: str) -> bool:
        """Return the answer of the inner dispatcher."""
        return self._inner.is_abandonable(method)

    def answer_at_once(self, request: Request, caller: Caller) -> Answer | None:
        """Return the inner dispatcher's answer, or a refusal."""
        if not self._holds():
            return refusal(NotMaster(REASON))
        return self._inner.answer_at_once(request, caller)

    async def answer(self, request: Request, caller: Caller) -> Answer:
        """Return the inner dispatcher's answer, or a refusal; data read while the lease ended is not sent."""
        if not self._holds():
            return refusal(NotMaster(REASON))
        answer = await self._inner.answer(request, caller)
        if request.method not in self._durable and not self._holds():
            return refusal(NotMaster(REASON))
        return answer
