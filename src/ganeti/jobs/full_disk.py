"""What an administrator can do while the state's disk is full: cancel, and archive.

A file on the same disk keeps the room that these need. When one of them is refused, the file is given up
and the store retries; until there is space for the file again, the queue accepts no jobs, so that
nothing else uses the room up.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from ganeti.base.errors import Refused
from ganeti.jobs.background import Background

TRIES = 8
TRY_S = 0.5
"""Together longer than the store takes to notice that there is space."""
KEEP_AGAIN_S = 5.0

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Room(Protocol):
    """Space that is kept on the disk of the state; the port to `store.room`."""

    async def give(self) -> bool:
        """Free it; False if there was none."""
        ...

    async def keep(self) -> bool:
        """Take it again; False if the disk has not that much."""
        ...


class FullDisk:
    """Lets through what a full disk refuses, at the expense of the room."""

    def __init__(self, room: Room | None, background: Background) -> None:
        self._room = room
        self._background = background
        self._is_given = False
        self._using = 0

    async def open(self) -> None:
        """Keep the room from now on, or as soon as there is space for it."""
        if self._room is not None and not await self._room.keep():
            self._background.spawn(self._keep_again(self._room), "keep-room")

    async def get_through(self, act: Callable[[], Awaitable[T]]) -> T:
        """Do something that needs little space; Refused if even the room is used up."""
        self._using += 1
        try:
            return await self._tried(act)
        finally:
            self._using -= 1

    def check(self) -> None:
        """Refused as long as the room is given up: nothing new may begin then."""
        if self._is_given:
            raise Refused(
                "the disk of the state is full, and its last room is for cancelling and archiving jobs;"
                " free some space on it, jobs are taken again by themselves then"
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
            "the disk of the state is full: the room kept on it is used to cancel and archive"
        )
        self._background.spawn(self._keep_again(self._room), "keep-room")
        return True

    async def _keep_again(self, room: Room) -> None:
        while True:
            await asyncio.sleep(KEEP_AGAIN_S)
            if not self._using and await room.keep():
                self._is_given = False
                _log.info("the disk of the state has space again")
                return
