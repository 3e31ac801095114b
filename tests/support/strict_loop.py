"""The loop of async tests: debug mode's checks, without the stack that it keeps of each future and callback.

Calls from another thread, callbacks that are coroutines and coroutines that nobody awaits are found
as in debug mode.  The stacks would take a fifth of all the tests' time; PYTHONASYNCIODEBUG=1 brings them back.
"""

import asyncio
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

    def _check_callback(self, callback: Callable[..., object], method: str) -> None:
        """Refuse coroutines; what C brings (the steps of tasks: nearly all) is none, and the look takes long."""
        if type(callback) in MAY_BE_COROUTINES:
            super()._check_callback(callback, method)  # type: ignore[misc]  # typeshed leaves it out
