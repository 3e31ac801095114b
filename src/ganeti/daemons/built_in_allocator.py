"""The built-in allocator of the master, which starts no program for a question.

The event loop computes small questions in a few milliseconds. A worker process, started for the
first large question, computes the large ones and keeps running. The allocator's name is `hail`. If
the search path has a program of that name that is not this implementation's script, the master runs
that program instead, so an administrator can replace the allocator.
"""

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.paths import Paths
from ganeti.daemons.allocation_client import AllocationClient
from ganeti.model.iallocator import BUILT_IN, FRAME_LENGTH_BYTES, RequestType, asks_monitoring

SMALL_INSTANCES, SMALL_NODES = 300, 30
SLOWEST_S = 300.0
_QUICK = (RequestType.ALLOCATE, RequestType.RELOCATE)
_ANSWER_LIMIT = 1 << 30

T = TypeVar("T")


class BuiltInAllocator:
    """The implementation of `units.services.BuiltInAllocator`."""

    def __init__(self, paths: Paths) -> None:
        self._programs = [directory / BUILT_IN for directory in paths.iallocator_search_path]
        self._own = Path(sys.executable).parent / BUILT_IN
        self._near: AllocationClient | None = None
        self._far = AllocationClient(self._exchange)
        self._process: asyncio.subprocess.Process | None = None
        self._one_at_a_time = asyncio.Lock()

    async def answer(
        self, message: dict[str, Any], options: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return success, info and result; None if another program of this name must answer."""
        if self._is_replaced():
            return None
        if _is_small(message, options):
            return await (await self._inline()).answer(message, options)
        return await self._computed(lambda: self._far.answer(message, options))

    async def explain(
        self, message: dict[str, Any], chosen: list[str], options: Mapping[str, Any]
    ) -> list[tuple[str, str]]:
        """Return (node, reason) for each node that was not chosen."""
        if _is_small(message, options):
            return await (await self._inline()).explain(message, chosen, options)
        return await self._computed(lambda: self._far.explain(message, chosen, options))

    async def survey(self, message: dict[str, Any]) -> Any:
        """Return the answer to a request of `placement/survey.py`, always from the worker process; PrereqError."""
        found = await self._computed(lambda: self._far.survey(message))
        if isinstance(found, dict) and "refused" in found:
            raise PrereqError(str(found["refused"]), ErrorCode.ENVIRONMENT)
        return found

    async def close(self) -> None:
        """End the worker process."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    def _is_replaced(self) -> bool:
        """Look at the first program of the name, on the loop: a thread costs more than these few calls."""
        for program in self._programs:
            with contextlib.suppress(OSError):
                if program.exists():
                    return not (self._own.exists() and program.samefile(self._own))
        return False

    async def _inline(self) -> AllocationClient:
        if self._near is None:
            self._near = await asyncio.to_thread(_loaded)
        return self._near

    async def _computed(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of the worker process."""
        async with self._one_at_a_time:
            try:
                async with asyncio.timeout(SLOWEST_S):
                    return await ask()
            except (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError) as err:
                await self.close()
                raise PrereqError(
                    f"Can't compute nodes using iallocator '{BUILT_IN}': its process ended or took more than"
                    f" {SLOWEST_S:g} s ({type(err).__name__}); the next request starts another one",
                    ErrorCode.ENVIRONMENT,
                ) from err
            except asyncio.CancelledError:
                await self.close()  # otherwise the next question would get the answer to this one
                raise

    async def _exchange(self, question: bytes) -> bytes:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "ganeti.daemons.allocation_worker"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        if process.stdin is None or process.stdout is None:
            raise EOFError
        process.stdin.write(len(question).to_bytes(FRAME_LENGTH_BYTES, "big") + question)
        await process.stdin.drain()
        length = int.from_bytes(await process.stdout.readexactly(FRAME_LENGTH_BYTES), "big")
        if length > _ANSWER_LIMIT:
            raise EOFError
        return await process.stdout.readexactly(length)


def _is_small(message: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Return whether the event loop may compute the answer."""
    return (
        not asks_monitoring(options)  # reads files and contacts other nodes
        and message["request"]["type"] in _QUICK
        and len(message["instances"]) <= SMALL_INSTANCES
        and len(message["nodes"]) <= SMALL_NODES
    )


def _loaded() -> AllocationClient:
    """Load the allocator on the first small question: its libraries take a fifth of a master's start."""
    from ganeti.daemons.allocation_worker import Worker  # noqa: PLC0415 - see above

    return AllocationClient(Worker().exchange)
