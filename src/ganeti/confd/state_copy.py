"""The facts from the servers of the state: a projection in memory, updated by a reader of the back end.

While the servers do not answer, the last known facts are used.
"""

import asyncio
import logging
from collections.abc import Collection

from ganeti.base.errors import ProtocolError, StoreError
from ganeti.confd.facts import KINDS, ClusterCopy
from ganeti.confd.local_copy import put
from ganeti.store.backends import StateReader
from ganeti.store.interface import Position

AGAIN_S = 0.5

_log = logging.getLogger(__name__)


class StateCopy:
    """Follows one cluster; `facts` has position 0 until all rows were read once. It is its reader's sink."""

    kinds: Collection[str] = KINDS

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader
        self._read = ClusterCopy()
        """The rows from the reader so far; becomes `facts` at the next position."""
        self.facts = ClusterCopy()
        self._logged = ""

    async def follow(self) -> None:
        """Keep `facts` current until cancelled."""
        try:
            while True:
                try:
                    await self._reader.follow(self)
                except (StoreError, ProtocolError) as err:
                    if err.message != self._logged:
                        _log.warning("the state cannot be read now: %s", err)
                    self._logged = err.message
                    await asyncio.sleep(AGAIN_S)
        finally:
            await self._reader.close()

    def begin(self) -> None:
        self._read = ClusterCopy()

    def put(self, kind: str, key: str, value: bytes) -> None:
        put(self._read, kind, key, value)

    def delete(self, kind: str, key: str) -> None:
        self._read.delete(kind, key)

    def reached(self, position: Position) -> None:
        self._read.position = position.as_int()
        self.facts = self._read
        self._logged = ""
