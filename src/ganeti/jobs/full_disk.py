"""Allows an administrator to cancel and archive jobs while the state's disk is full.

A file on the same disk reserves the space for that. When one of these operations is refused, the
file is removed and the store retries. Until the file can be created again, the queue accepts no
jobs, so that nothing else uses the space.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from ganeti.base.errors import Refused
from ganeti.jobs.background import Background

TRIES = 8
TRY_S = 0.5
"""Delays of the retries; their sum exceeds the time in which the store notices free space."""
KEEP_AGAIN_S = 5.0

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Room(Protocol):
    """Reserved space on the disk of the state; the interface to `store.room`."""

    async def give(self) -> bool:
        """Release it; return False if it was not reserved."""
        ...

    async def keep(self) -> bool:
        """Reserve it again; return False if the disk has too little space."""
        ...


class FullDisk:
    """Repeats a write that a full disk refused, after releasing the reserved space."""

    def __init__(self, room: Room | None, background: Background) -> None:
        self._room = room
        self._background = background
        self._is_given = False
        self._using = 0

    async def open(self) -> None:
        """Reserve the space now, or as soon as possible."""
        if self._room is not None and not await self._room.keep():
            self._background.spawn(self._keep_again(self._room), "keep-room")

    async def get_through(self, act: Callable[[], Awaitable[T]]) -> T:
        """Run a write that needs little space; Refused if even the reserved space is used up."""
        self._using += 1
        try:
            return await self._tried(act)
        finally:
            self._using -= 1

    def check(self) -> None:
        """Raise Refused while the reserved space is released: nothing new may begin then."""
        if self._is_given:
            raise Refused(
                "the disk of the state is full, and its reserved space is for cancelling and "
                "archiving jobs; free some space on it, then jobs are accepted again "
                "automatically"
            )

    async def _tried(self, act: Callable[[], Awaitable[T]]) -> T:
        try:
            return await act()
        except Refused:
            if not self._is_given and not await self._give():
                raise
        for _ in range(TRIES):
            await asyncio.sleep(TRY_S)
            try:
                return await act()
            except Refused as err:
                _log.info("still refused: %s", err)
        return await act()

    async def _give(self) -> bool:
        if self._room is None or not await self._room.give():
            return False
        self._is_given = True
        _log.warning(
            "the disk of the state is full: releasing the reserved space to cancel and archive jobs"
        )
        self._background.spawn(self._keep_again(self._room), "keep-room")
        return True

    async def _keep_again(self, room: Room) -> None:
        while True:
            await asyncio.sleep(KEEP_AGAIN_S)
            if not self._using and await room.keep():
                self._is_given = False
                _log.info("the disk of the state has free space again")
                return
