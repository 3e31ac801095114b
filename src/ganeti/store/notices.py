"""The role of a back end: its listeners, and the calls that each role refuses."""

import asyncio
from collections.abc import AsyncGenerator

from ganeti.base.errors import NotMaster, StoreError
from ganeti.store.interface import Follower, Lease, Lost, Master, Role


class RoleFeed:
    """The role of a store, for any number of listeners."""

    def __init__(self) -> None:
        self._role: Role = Follower()
        self._listeners: set[asyncio.Queue[Role | None]] = set()
        self._ended = False
        self.is_closed = False
        """Set as soon as the store accepts no more requests; `close` follows once all work is done."""

    @property
    def role(self) -> Role:
        return self._role

    def change(self, role: Role) -> None:
        """Publish a role to all listeners; Lost is the last role."""
        if role == self._role or isinstance(self._role, Lost):
            return
        self._role = role
        for listener in self._listeners:
            listener.put_nowait(role)

    def check_usable(self) -> None:
        """Raise NotMaster where the store is closed, or lost."""
        if why := self._end():
            raise NotMaster(why)

    def check_readable(self) -> None:
        """Raise StoreError where the store is closed, or lost."""
        if why := self._end():
            raise StoreError(why)

    def check_lease(self, lease: Lease) -> None:
        """Raise NotMaster unless the store is the master in the lease's epoch."""
        self.check_usable()
        if not isinstance(self._role, Master):
            raise NotMaster("this node is not the master")
        if self._role.lease != lease:
            current = self._role.lease.epoch
            raise NotMaster(f"epoch {lease.epoch} is over: this is epoch {current}")

    def _end(self) -> str:
        if isinstance(self._role, Lost):
            return f"the store is closed permanently: {self._role.reason}"
        return "the store is closed" if self.is_closed else ""

    async def changes(self) -> AsyncGenerator[Role, None]:
        """Yield the present role and each later one, until `close`."""
        if self._ended:
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
        self._ended = self.is_closed = True
        for listener in self._listeners:
            listener.put_nowait(None)
