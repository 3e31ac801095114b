"""The transactions that etcd still has: a watch from an earlier revision yields the changes of each.

Older values of the head map positions to revisions. A change of rows without a change of the head,
as a restore makes it, is not a transaction: no reader can continue over it.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ganeti.base.errors import StoreError
from ganeti.store.etcd.gateway import Compacted, Gateway, Unanswered
from ganeti.store.etcd.keys import Head, Keys
from ganeti.store.etcd.messages import Event
from ganeti.store.interface import Delete, LogEntry, NotInLog, Operation, Position, Put, Transaction

MOST_ENTRIES = 500
MOST_BYTES = 4 << 20
SILENCE_S = 2.0
_KNOWN = 64


class History:
    """Reads the transactions after a position, some entries at a time."""

    def __init__(self, gateway: Gateway, keys: Keys) -> None:
        self._gateway, self._keys = gateway, keys
        self._revisions: dict[Position, int] = {}

    async def after(self, position: Position) -> list[LogEntry]:
        """Behave like `StateHistory.log_after`; GatewayError."""
        head, last = await self._head_at(0)
        if position == head.position:
            return []
        try:
            revision = await self._revision_of(position, last)
            return await self._entries(position, revision, last)
        except Compacted:
            raise self._not_known(position) from None

    async def _entries(self, position: Position, revision: int, last: int) -> list[LogEntry]:
        """Yield the entries after a revision, up to the revision of the last one."""
        entries: list[LogEntry] = []
        size = 0
        async with aclosing(self._changes(revision + 1, last)) as changes:
            async for at, events in changes:
                head, operations = self._decoded(events)
                if head is None and operations:
                    raise self._not_known(position)
                if head is None or head.position == position:
                    continue
                txn = Transaction(tuple(operations))
                entries.append(LogEntry(head.position, position, head.digest, txn))
                position, size = head.position, size + txn.size_bytes()
                self._remember(position, at)
                if len(entries) >= MOST_ENTRIES or size >= MOST_BYTES:
                    break
        return entries

    async def _changes(self, first: int, last: int) -> AsyncGenerator[tuple[int, list[Event]]]:
        """Yield each revision with all its changes; Unanswered if they end before `last`."""
        keys = self._keys
        watch = self._gateway.watch(
            (keys.prefix, keys.end), revision=first, silence_s=SILENCE_S, is_history=True
        )
        at, events = 0, list[Event]()
        async with aclosing(watch) as answers:
            async for answer in answers:
                for event in answer.events:
                    if event.kv.mod_revision != at and events:
                        yield at, events
                        events = []
                    at = event.kv.mod_revision
                    events.append(event)
                if at >= last and not answer.fragment:
                    yield at, events
                    return
        raise Unanswered("etcd does not report the changes")

    def _decoded(self, events: list[Event]) -> tuple[Head | None, list[Operation]]:
        """Return the head, its revision, and the changes of rows."""
        head: Head | None = None
        operations: list[Operation] = []
        for event in events:
            key, is_deleted = event.kv.key, event.type == "DELETE"
            if key == self._keys.head:
                head = Head.decode(None if is_deleted else event.kv.value)
            if not key.startswith(self._keys.rows):
                continue
            found = event.prev_kv if is_deleted else event.kv
            if not found.key:
                raise NotInLog("etcd no longer has the previous value of a deleted row")
            row = self._keys.decode_row(found.key, found.value)
            operations.append(Put(row.kind, row.key, row.value))
            if is_deleted:
                operations.append(Delete(*self._keys.name_of_row(key)))
        return head, operations

    async def _revision_of(self, position: Position, last: int) -> int:
        """Return the revision that wrote a position, by a search in the ordered heads; NotInLog."""
        if position in self._revisions:
            return self._revisions[position]
        low, high = 1, last
        while low <= high:
            middle = (low + high) // 2
            try:
                head, revision = await self._head_at(middle)
            except Compacted:
                low = middle + 1
                continue
            if head.position == position and revision:
                self._remember(position, revision)
                return revision
            if head.position < position:
                low = middle + 1
            else:
                high = revision - 1
        raise self._not_known(position)

    async def _head_at(self, revision: int) -> tuple[Head, int]:
        """Return an earlier head and the revision that wrote it (0: none)."""
        answer = await self._gateway.range(self._keys.head, revision=revision)
        found = answer.kvs[0] if answer.kvs else None
        return Head.decode(found.value if found else None), found.mod_revision if found else 0

    def _remember(self, position: Position, revision: int) -> None:
        self._revisions[position] = revision
        while len(self._revisions) > _KNOWN:
            del self._revisions[next(iter(self._revisions))]

    def _not_known(self, position: Position) -> StoreError:
        return NotInLog(f"etcd no longer knows the transactions after {position}")
