"""An etcd in memory, for tests in virtual time: keys with revisions, leases, watches, and faults of each client's line.

It does what the back end's gateway asks of etcd, by etcd's rules; the suites that run on it also run on real servers.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ganeti.store.etcd.gateway import (
    REQUEST_S,
    Compacted,
    Full,
    Gateway,
    NotSent,
    Unanswered,
)
from ganeti.store.etcd.messages import (
    Compare,
    Event,
    Header,
    KeyValue,
    MembersAnswer,
    OperationAnswer,
    RangeAnswer,
    Request,
    TxnAnswer,
    WatchAnswer,
)

_OUT_OF_RANGE = 11


@dataclass
class _Lease:
    ttl_s: float
    ends_at: float
    keys: set[bytes] = field(default_factory=set)


class MemoryEtcd:
    """The servers, as one."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self.versions: dict[bytes, list[KeyValue]] = {}
        """Each key's history; a version without a value (`version` 0) is its end."""
        self.leases: dict[int, _Lease] = {}
        self._numbers = 0
        self.news = asyncio.Event()

    # Keys

    def at(self, key: bytes, revision: int = 0) -> KeyValue | None:
        """A key as it was at a revision (0: now)."""
        self.expire()
        for one in reversed(self.versions.get(key, [])):
            if not revision or one.mod_revision <= revision:
                return one if one.version else None
        return None

    def range(self, begin: bytes, end: bytes | None, revision: int) -> list[KeyValue]:
        names = [begin] if end is None else sorted(k for k in self.versions if begin <= k < end)
        found = (self.at(name, revision) for name in names)
        return [one for one in found if one is not None]

    def txn(
        self, compare: Sequence[Compare], success: Sequence[Request], failure: Sequence[Request]
    ) -> TxnAnswer:
        self.expire()
        holds = all(self._holds(one) for one in compare)
        requests = success if holds else failure
        written = [key for one in requests if (key := _written_key(one)) is not None]
        assert len(written) == len(set(written)), "etcd takes each key once in a transaction"
        revision = self.revision + 1
        has_changed = False
        answers = []
        for request in requests:
            found = RangeAnswer()
            if "request_put" in request:
                self._put(request["request_put"], revision)
                has_changed = True
            elif "request_delete_range" in request:
                has_changed |= self._delete(request["request_delete_range"]["key"], revision)
            else:
                kvs = self.range(request["request_range"]["key"], None, 0)
                found = RangeAnswer(kvs=tuple(kvs))
            answers.append(OperationAnswer(found))
        if has_changed:
            self._changed(revision)
        return TxnAnswer(Header(revision=self.revision), holds, tuple(answers))

    def _holds(self, compare: Compare) -> bool:
        found = self.at(compare.key)
        if compare.value is not None:
            return found is not None and found.value == compare.value
        return (found.create_revision if found is not None else 0) == (compare.create_revision or 0)

    def _put(self, fields: dict[str, Any], revision: int) -> None:
        key, lease = fields["key"], int(fields.get("lease", 0))
        old = self.at(key)
        if old is not None and old.lease:
            self.leases[old.lease].keys.discard(key)
        if lease:
            self.leases[lease].keys.add(key)
        created, version = (old.create_revision, old.version + 1) if old else (revision, 1)
        new = KeyValue(key, fields["value"], created, revision, version, lease)
        self.versions.setdefault(key, []).append(new)

    def _delete(self, key: bytes, revision: int) -> bool:
        old = self.at(key)
        if old is None:
            return False
        if old.lease in self.leases:
            self.leases[old.lease].keys.discard(key)
        self.versions[key].append(KeyValue(key, mod_revision=revision))
        return True

    def _changed(self, revision: int) -> None:
        self.revision = revision
        news, self.news = self.news, asyncio.Event()
        news.set()

    def events_of(self, revision: int, ranges: Sequence[tuple[bytes, bytes]]) -> list[Event]:
        """What one revision changed."""
        found = []
        for key, versions in self.versions.items():
            if not any(begin <= key < end for begin, end in ranges):
                continue
            for number, one in enumerate(versions):
                if one.mod_revision == revision:
                    before = versions[number - 1] if number else KeyValue()
                    kind = "PUT" if one.version else "DELETE"
                    found.append(Event(one, kind, before if before.version else KeyValue()))
        return found

    # Leases

    def grant(self, ttl_s: float) -> int:
        self._numbers += 1
        loop = asyncio.get_running_loop()
        self.leases[self._numbers] = _Lease(ttl_s, loop.time() + ttl_s)
        loop.call_later(ttl_s + 0.001, self.expire)
        return self._numbers

    def keep_alive(self, number: int) -> bool:
        self.expire()
        lease = self.leases.get(number)
        if lease is None:
            return False
        loop = asyncio.get_running_loop()
        lease.ends_at = loop.time() + lease.ttl_s
        loop.call_later(lease.ttl_s + 0.001, self.expire)
        return True

    def revoke(self, number: int) -> None:
        lease = self.leases.pop(number, None)
        if lease is not None and lease.keys:
            revision = self.revision + 1
            for key in lease.keys:
                self.versions[key].append(KeyValue(key, mod_revision=revision))
            self._changed(revision)

    def expire(self) -> None:
        """End the leases that are over."""
        now = asyncio.get_running_loop().time()
        for number in [one for one, lease in self.leases.items() if lease.ends_at <= now]:
            self.revoke(number)


def _written_key(request: Request) -> bytes | None:
    for name in ("request_put", "request_delete_range"):
        if name in request:
            key: bytes = request[name]["key"]
            return key
    return None


class MemoryGateway(Gateway):
    """One client's line to it."""

    def __init__(self, etcd: MemoryEtcd) -> None:
        self.etcd = etcd
        self.is_full = False
        self.is_cut = False
        """No request gets through."""
        self.loses_answers = False
        """Requests are carried out, and their answers are lost."""
        self.late_s = 0.0
        """How late the answers come."""
        self.late_once_s = 0.0
        self.is_closed = False

    @property
    def endpoints(self) -> tuple[str, ...]:
        return ("memory",)

    async def close(self) -> None:
        self.is_closed = True

    async def _arrive(self) -> None:
        await asyncio.sleep(0.001)
        if self.is_cut or self.is_closed:
            raise NotSent("the line is cut")

    async def _answer(self) -> None:
        late_s, self.late_once_s = self.late_s + self.late_once_s, 0.0
        await asyncio.sleep(0.001 + late_s)
        if self.loses_answers or self.is_cut or self.is_closed:
            raise Unanswered("the answer is lost")

    async def range(
        self,
        key: bytes,
        end: bytes | None = None,
        *,
        revision: int = 0,
        limit: int = 0,
        timeout_s: float = REQUEST_S,
    ) -> RangeAnswer:
        del timeout_s
        await self._arrive()
        found = self.etcd.range(key, end, revision)
        header = Header(revision=self.etcd.revision)
        await self._answer()
        kept = tuple(found[:limit] if limit else found)
        return RangeAnswer(header, kept, more=len(kept) < len(found), count=len(found))

    async def txn(
        self,
        compare: Sequence[Compare],
        success: Sequence[Request],
        failure: Sequence[Request] = (),
        *,
        timeout_s: float = REQUEST_S,
    ) -> TxnAnswer:
        del timeout_s
        await self._arrive()
        if self.is_full:
            raise Full("database space exceeded (of the test)")
        answer = self.etcd.txn(compare, success, failure)
        await self._answer()
        return answer

    async def look(self, keys: Sequence[bytes]) -> TxnAnswer:
        await self._arrive()
        answer = self.etcd.txn([], [{"request_range": {"key": key}} for key in keys], [])
        await self._answer()
        return answer

    async def compact(self, revision: int) -> None:
        await self._arrive()
        self.etcd.compacted = max(self.etcd.compacted, revision)

    async def grant_lease(self, ttl_s: int) -> int:
        await self._arrive()
        number = self.etcd.grant(ttl_s)
        await self._answer()
        return number

    async def keep_alive(self, lease: int, *, timeout_s: float = REQUEST_S) -> bool:
        await self._arrive()
        is_alive = self.etcd.keep_alive(lease)
        try:
            async with asyncio.timeout(timeout_s):
                await self._answer()
        except TimeoutError:
            raise Unanswered("no answer in time") from None
        return is_alive

    async def revoke_lease(self, lease: int) -> None:
        await self._arrive()
        self.etcd.revoke(lease)
        await self._answer()

    async def watch(
        self,
        *ranges: tuple[bytes, bytes],
        revision: int,
        silence_s: float,
        is_history: bool = False,
    ) -> AsyncGenerator[WatchAnswer, None]:
        del is_history
        await self._arrive()
        if revision <= self.etcd.compacted:
            raise Compacted("the revision is compacted", _OUT_OF_RANGE)
        yield WatchAnswer(Header(revision=self.etcd.revision), created=True)
        while True:
            while revision <= self.etcd.revision:
                events = self.etcd.events_of(revision, ranges)
                revision += 1
                if events:
                    await self._answer()
                    yield WatchAnswer(Header(revision=revision - 1), tuple(events))
            try:
                async with asyncio.timeout(silence_s):
                    await self.etcd.news.wait()
            except TimeoutError:
                return

    async def members(self) -> MembersAnswer:
        await self._arrive()
        return MembersAnswer()
