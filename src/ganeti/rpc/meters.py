"""The progress of a node's calls, from the code that works to the master that asks.

Work reports to its own call, found through the context: no driver passes a meter on.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from ganeti.model.progress import Progress
from ganeti.rpc.calls import Call, Handler, Handlers
from ganeti.rpc.procedures import PROCEDURES
from ganeti.rpc.procedures.progress import CALL_PROGRESS, ProgressArgs

Read = Callable[[], Progress | None]


class _Meter:
    def __init__(self) -> None:
        self.read: Read = lambda: None


_METER: ContextVar[_Meter | None] = ContextVar("meter", default=None)


def report(done: int, total: int, part: str = "") -> None:
    """Report the progress of the present call; does nothing outside a call."""
    if (meter := _METER.get()) is not None:
        now = Progress(done=done, total=total, part=part)
        meter.read = lambda: now


def follow(read: Read) -> None:
    """Let `read`, which must not block for long, report the progress of the present call.

    Does nothing outside a call.
    """
    if (meter := _METER.get()) is not None:
        meter.read = read


class Meters:
    """The meters of a node's running changing calls, by their keys."""

    def __init__(self) -> None:
        self._meters: dict[str, _Meter] = {}

    def wrap(self, handlers: Handlers) -> Handlers:
        """Return the handlers with metered changing procedures, and the handler for their progress."""
        metered = {
            name: self._metered(handler) if PROCEDURES[name].changes else handler
            for name, handler in handlers.items()
        }
        return {**metered, CALL_PROGRESS.name: self.progress}

    async def progress(self, args: ProgressArgs, _call: Call) -> Progress | None:
        meter = self._meters.get(args.key)
        return meter.read() if meter is not None else None

    def _metered(self, handler: Handler) -> Handler:
        async def answer(args: Any, call: Call) -> Any:
            with self._measuring(call.key):
                return await handler(args, call)

        return answer

    @contextlib.contextmanager
    def _measuring(self, key: str) -> Iterator[None]:
        meter = self._meters[key] = _Meter()
        token = _METER.set(meter)
        try:
            yield
        finally:
            _METER.reset(token)
            if self._meters.get(key) is meter:
                del self._meters[key]
