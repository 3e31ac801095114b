"""The answers of a candidate that is not the master: the master's name, and the take-over."""

from collections.abc import Awaitable, Callable
from typing import Any

from ganeti.api.luxi_server import Caller
from ganeti.base.errors import GanetiError, InputError, NotMaster
from ganeti.protocols.luxi import Answer, Request, refusal

TAKE_OVER = "MasterFailover"


class NotMasterMethods:
    """The dispatcher of a follower; `take_over(force)` makes it the master, and returns remarks (R7, R10)."""

    def __init__(
        self, where: Callable[[], str], take_over: Callable[[bool], Awaitable[list[str]]]
    ) -> None:
        self._where = where
        self._take_over = take_over

    def is_abandonable(self, method: str) -> bool:
        """A take-over continues after its client disconnects."""
        del method
        return False

    def answer_at_once(self, request: Request, caller: Caller) -> Answer | None:
        """Return None for every request."""
        del request, caller
        return None

    async def answer(self, request: Request, caller: Caller) -> Answer:
        """Carry out a take-over; refuse all other requests."""
        del caller
        try:
            return Answer(True, await self._carried_out(request))
        except GanetiError as err:
            return refusal(err)

    async def _carried_out(self, request: Request) -> Any:
        if request.method != TAKE_OVER:
            raise NotMaster(f"this node is not the master: {self._where()}")
        if len(request.args) != 1 or not isinstance(request.args[0], bool):
            raise InputError("must be true (force) or false", TAKE_OVER)
        return await self._take_over(request.args[0])
