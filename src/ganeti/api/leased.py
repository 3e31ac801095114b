"""Answers as the master only under a lease that is valid at that moment (F6).

A daemon that was frozen, or has lost touch, may have been replaced without knowing it. Its lease has run out
by then, on the monotonic clock, so nothing that it still remembers reaches a client, on connections that
were open before either.
"""

from collections.abc import Callable, Collection

from ganeti.api.luxi_server import Caller, Dispatcher
from ganeti.base.errors import NotMaster
from ganeti.protocols.luxi import Answer, Request, refusal

REASON = (
    "this node is not the master: its lease has run out, and another node may be the master by now"
)


class LeasedDispatcher:
    """Another dispatcher, for as long as `holds` says that the lease is valid.

    `durable` names the methods whose success is in the state when they answer: a client learns of it although
    the lease ended meanwhile.
    """

    def __init__(
        self, inner: Dispatcher, holds: Callable[[], bool], durable: Collection[str]
    ) -> None:
        self._inner, self._holds, self._durable = inner, holds, frozenset(durable)

    def is_abandonable(self, method: str) -> bool:
        """As the inner one says."""
        return self._inner.is_abandonable(method)

    def answer_at_once(self, request: Request, caller: Caller) -> Answer | None:
        """As the inner one, or a refusal."""
        if not self._holds():
            return refusal(NotMaster(REASON))
        return self._inner.answer_at_once(request, caller)

    async def answer(self, request: Request, caller: Caller) -> Answer:
        """As the inner one, or a refusal; what was read while the lease ended is not given out."""
        if not self._holds():
            return refusal(NotMaster(REASON))
        answer = await self._inner.answer(request, caller)
        if request.method not in self._durable and not self._holds():
            return refusal(NotMaster(REASON))
        return answer
