"""How far the calls of a node are, from where their work is done to the master that asks.

Work reports to the call on whose behalf it is done, which the context names: no driver passes a meter on.
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
    """Say how far the present call is; no-op outside a call."""
    if (meter := _METER.get()) is not None:
        now = Progress(done=done, total=total, part=part)
        meter.read = lambda: now


def follow(read: Read) -> None:
    """Let `read`, which must not block for long, say how far the present call is; no-op outside a call."""
    if (meter := _METER.get()) is not None:
        meter.read = read


class Meters:
    """The meters of the changing calls that one node carries out, by their keys."""

    def __init__(self) -> None:
        self._meters: dict[str, _Meter] = {}

    def wrap(self, handlers: Handlers) -> Handlers:
        """The same handlers, those of changing procedures metered, and the one that answers how far they are."""
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
