"""What the back ends tell their listeners: changes of the role."""

import asyncio
from collections.abc import AsyncGenerator

from ganeti.store.interface import Follower, Lost, Role


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
