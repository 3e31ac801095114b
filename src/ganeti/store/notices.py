"""What the back ends tell their readers: changes of the role, and news of the log. One loop."""

import asyncio
from collections.abc import AsyncGenerator

from ganeti.store.interface import Follower, Lost, Position, Role


class RoleFeed:
    """The role of a store, for any number of listeners."""

    def __init__(self) -> None:
        self._role: Role = Follower()
        self._listeners: set[asyncio.Queue[Role | None]] = set()
        self._closed = False

    @property
    def role(self) -> Role:
        return self._role

    def change(self, role: Role) -> None:
        """Tell everybody; lost is the last role there is."""
        if role == self._role or isinstance(self._role, Lost):
            return
        self._role = role
        for listener in self._listeners:
            listener.put_nowait(role)

    async def changes(self) -> AsyncGenerator[Role, None]:
        """The role now and each one after it, until `close`."""
        if self._closed:
            return
        listener: asyncio.Queue[Role | None] = asyncio.Queue()
        listener.put_nowait(self._role)
        self._listeners.add(listener)
        try:
            while (role := await listener.get()) is not None:
                yield role
        finally:
            self._listeners.discard(listener)

    def close(self) -> None:
        """End all iterations."""
        self._closed = True
        for listener in self._listeners:
            listener.put_nowait(None)


class LogNews:
    """Wakes those who wait for a position beyond the one they have."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()
        self._position: Position | None = None
        self._closed = False

    def reached(self, position: Position) -> None:
        """Say that the log goes up to `position`."""
        self._position = position
        self._wake()

    def close(self) -> None:
        """Wake everybody for the last time."""
        self._closed = True
        self._wake()

    async def beyond(self, position: Position) -> bool:
        """Wait until there is more than `position`; False when there will be none."""
        while not self._closed:
            if self._position is not None and self._position > position:
                return True
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
        return False

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
