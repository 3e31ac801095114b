"""Makes changing calls idempotent: a call with the same key, procedure and arguments runs once.

The memory is short and ends with the daemon. Beyond it, handlers are idempotent by their own
contract, and long work has a durable record (`tasks.py`).
"""

import asyncio
import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from ganeti.base.errors import GanetiError
from ganeti.model import wire
from ganeti.rpc.calls import Call, Handler, Handlers
from ganeti.rpc.procedures import PROCEDURES

REMEMBERED = 1000

_Identity = tuple[str, str, bytes]
"""Procedure, key, and the SHA-256 of the arguments, which may be large or secret."""


class Repeats:
    """Stores the results of the last changing calls; a repetition joins the running call."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._known: OrderedDict[_Identity, asyncio.Future[Any]] = OrderedDict()

    def wrap(self, handlers: Handlers) -> Handlers:
        """Return the handlers with the changing procedures made repeatable."""
        return {
            name: self._repeatable(name, handler) if PROCEDURES[name].changes else handler
            for name, handler in handlers.items()
        }

    def _repeatable(self, name: str, handler: Handler) -> Handler:
        async def answer(args: Any, call: Call) -> Any:
            if not call.key:
                return await handler(args, call)
            identity = (name, call.key, hashlib.sha256(wire.encode(args)).digest())
            return await self._once(identity, lambda: handler(args, call))

        return answer

    async def _once(self, identity: _Identity, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run `work` unless it has run or is running; faults of this program are not stored."""
        while (earlier := self._known.get(identity)) is not None:
            self._known.move_to_end(identity)
            try:
                return await asyncio.shield(earlier)
            except asyncio.CancelledError:
                # The running call was cancelled, not this one: this call runs instead.
                task = asyncio.current_task()
                if not earlier.cancelled() or (task is not None and task.cancelling()):
                    raise
        ended = self._known[identity] = asyncio.get_running_loop().create_future()
        try:
            result = await work()
        except GanetiError as err:
            ended.set_exception(err)
            ended.exception()  # there may be no waiter
            raise
        except BaseException:
            del self._known[identity]
            ended.cancel()
            raise
        finally:
            self._forget_oldest()
        ended.set_result(result)
        return result

    def _forget_oldest(self) -> None:
        surplus = len(self._known) - self._remembered
        if surplus > 0:
            ended = (one for one, result in self._known.items() if result.done())
            for identity in list(itertools.islice(ended, surplus)):
                del self._known[identity]
