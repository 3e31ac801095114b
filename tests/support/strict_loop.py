"""The loop of async tests: debug mode's checks, without the stack that it keeps of each future and callback.

Calls from another thread, callbacks that are coroutines and coroutines that nobody awaits are found
as in debug mode.  The stacks would take a fifth of all the tests' time; PYTHONASYNCIODEBUG=1 brings them back.
"""

import asyncio
import os

KEEPS_STACKS = bool(os.environ.get("PYTHONASYNCIODEBUG"))


class StrictLoop(asyncio.SelectorEventLoop):
    """Futures, tasks and handles ask `get_debug` whether to keep a stack; the loop's own checks do not ask."""

    def get_debug(self) -> bool:
        return KEEPS_STACKS
