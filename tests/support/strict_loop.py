"""The loop of async tests: debug mode's checks, without the stacks that it keeps of futures, callbacks and coroutines.

Calls from another thread, callbacks that are coroutines and coroutines that nobody awaits are found
as in debug mode.  The stacks would take more than a fifth of all the tests' time; PYTHONASYNCIODEBUG=1 brings them back.
"""

import asyncio
import inspect
import os
from collections.abc import Callable
from functools import partial
from types import CoroutineType, FunctionType, MethodType

KEEPS_STACKS = bool(os.environ.get("PYTHONASYNCIODEBUG"))
MAY_BE_COROUTINES = FunctionType, MethodType, partial, CoroutineType


class StrictLoop(asyncio.SelectorEventLoop):
    """Futures, tasks and handles ask `get_debug` whether to keep a stack; the loop's own checks do not ask."""

    def get_debug(self) -> bool:
        return KEEPS_STACKS

    def _set_coroutine_origin_tracking(self, enabled: bool) -> None:
        """A coroutine that nobody awaits is reported without it, only not where it was made."""
        super()._set_coroutine_origin_tracking(enabled and KEEPS_STACKS)  # type: ignore[misc]  # as below

    def _check_callback(self, callback: Callable[..., object], method: str) -> None:
        """Refuse coroutines; what C brings (the steps of tasks: nearly all) is none, and the look takes long."""
        if type(callback) in MAY_BE_COROUTINES and not _is_plain(callback):
            super()._check_callback(callback, method)  # type: ignore[misc]  # typeshed leaves it out


def _is_plain(callback: Callable[..., object]) -> bool:
    """Whether it is a function or a method that is no coroutine function, which its code says at once."""
    code = getattr(callback, "__code__", None)
    return code is not None and not code.co_flags & inspect.CO_COROUTINE
