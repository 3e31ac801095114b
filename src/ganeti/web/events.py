"""Server-sent events: the master's events for all subscribers, each from its last received event.

One request at the master serves all subscribers. Recent events are kept, so a subscriber that returns soon
causes no request. Older events, including those of an earlier master, are requested from the master. If
the master's log does not reach back to the subscriber's number, the subscriber gets `reset`, the state of
all objects and `complete`, so it misses nothing.
"""

import asyncio
import logging
import re
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ganeti.base.errors import GanetiError
from ganeti.model import wire
from ganeti.model.job import remote_source
from ganeti.model.rest_users import User
from ganeti.web.master import MasterConnections
from ganeti.web.refusals import Refusal

POLL_S = 10.0
"""Interval of contacts to an idle master; shorter than the silence after which the server ends (`daemons/rapi.py`)."""
KEPT = 5_000
KEEP_ALIVE_S = 15.0
AGAIN_S = 1.0
SUBSCRIBERS_LIMIT = 2_000
NUMBER = re.compile(r"[0-9]{1,10}-[0-9]{1,10}(?:-[0-9]{1,6})?")
_STATE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("instance", "QueryInstances", ("name", "uuid", "serial_no", "tags")),
    ("node", "QueryNodes", ("name", "uuid", "serial_no", "tags")),
    ("group", "QueryGroups", ("name", "uuid", "serial_no", "tags")),
    ("network", "QueryNetworks", ("name", "uuid", "serial_no", "tags")),
    ("image", "QueryImages", ("name", "uuid", "serial_no", "tags")),
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Event:
    """One event; `number` is where a subscriber continues, or None if it cannot continue from this event."""

    number: str | None
    kind: str
    content: Any

    def encoded(self) -> bytes:
        """Return the event in the form of the stream."""
        number = f"id: {self.number}\n" if self.number is not None else ""
        head = f"{number}event: {self.kind}\ndata: "
        return head.encode() + wire.encode(self.content) + b"\n\n"


_EventPosition = tuple[int, int, int, int]
"""Epoch, serial and N of a number, and the count of events without a number since."""


@dataclass(frozen=True)
class _Kept:
    position: _EventPosition
    event: Event
    bytes_: bytes


class EventHub:
    """Follows the master's events for all subscribers."""

    def __init__(self, master: MasterConnections) -> None:
        self._master = master
        self._kept: list[_Kept] = []
        self._since: _EventPosition = (0, 0, 0, 0)
        """The position after which all events are kept."""
        self._last: str | None = None
        self._position: _EventPosition = (0, 0, 0, 0)
        """The position of the last event."""
        self._passing = self._losses = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._heard = asyncio.get_running_loop().time()
        self._is_closed = False
        self.subscribers = 0
        self.contacts_lost = 0
        """Number of failed calls of the master; another one may have begun since."""

    def silent_s(self) -> float:
        """Return the seconds since the master's last answer."""
        return asyncio.get_running_loop().time() - self._heard

    async def run(self) -> None:
        """Follow the master until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                answer = await self._master.wait("WaitForEvents", self._last, POLL_S, self._passing)
                self._heard = loop.time()
            except (GanetiError, Refusal) as err:
                log.debug("no events: %s", err)
                self.contacts_lost += 1
                await asyncio.sleep(AGAIN_S)
                continue
            self._take(answer)

    def _take(self, answer: dict[str, Any]) -> None:
        last = str(answer["last"])
        if answer["is_lost"] or self._last is None:
            # Subscribers then see that their position is earlier, and the later events are requested from the master.
            self._kept.clear()
            self._losses += 1
            self._since = self._position = _position_of(last)
        for number, kind, content in answer["events"]:
            event = Event(None if number is None else str(number), str(kind), content)
            self._position = _position_of(number) if number is not None else _after(self._position)
            self._kept.append(_Kept(self._position, event, event.encoded()))
        if too_many := self._kept[:-KEPT]:
            self._since = too_many[-1].position
            del self._kept[:-KEPT]
        self._last, self._passing = last, int(answer["passing"])
        self._position = max(self._position, _position_of(last))
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            _wake(waiter)

    async def close(self) -> None:
        """End all subscriptions."""
        self._is_closed = True
        self._wake()

    async def news(self, timeout_s: float) -> None:
        """Return when there is a new event, or after the time limit."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.add(waiter)
        timer = loop.call_later(timeout_s, _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiters.discard(waiter)

    async def events(self, last: str | None) -> AsyncIterator[list[tuple[Event, bytes]]]:
        """Yield the events after `last` (None: from now on) as they arrive; an empty list keeps the connection alive."""
        while self._last is None and not self._is_closed:
            await self.news(KEEP_ALIVE_S)
        seen = self._position if last is None else _position_of(last)
        losses = self._losses if last is None or self._has(seen) else None
        while not self._is_closed:
            known = self._position
            if losses == self._losses and self._since <= seen <= known:
                found, seen = self._after(seen), known
            else:
                losses = self._losses
                found, seen = await self._older(seen)
            if found:
                yield found
                continue
            await self.news(KEEP_ALIVE_S)
            if known == self._position:
                yield []

    def _has(self, position: _EventPosition) -> bool:
        """Return True if this server sent an event of this number; other numbers may be of a lost history."""
        index = bisect_left(self._kept, position, key=lambda one: one.position)
        return index < len(self._kept) and self._kept[index].position == position

    def _after(self, seen: _EventPosition) -> list[tuple[Event, bytes]]:
        """Return events from the kept ones."""
        index = bisect_right(self._kept, seen, key=lambda one: one.position)
        return [(one.event, one.bytes_) for one in self._kept[index:]]

    async def _older(
        self, seen: _EventPosition
    ) -> tuple[list[tuple[Event, bytes]], _EventPosition]:
        """Return events from the master and their end; the whole state if the master does not have the events."""
        answer = await self._master.ask("WaitForEvents", "{}-{}-{}".format(*seen), 0)
        last = str(answer["last"])
        if not answer["is_lost"]:
            found = [Event(str(number), str(kind), one) for number, kind, one in answer["events"]]
        else:
            found = await self._everything(last)
        return [(event, event.encoded()) for event in found], _position_of(last)

    async def _everything(self, last: str) -> list[Event]:
        """Return `reset`, the state of all objects, and `complete`. Only `complete` has the number `last`.

        So a subscriber that loses its connection before `complete` gets the whole state again.
        """
        why = "the events after that number are not known; the present state follows"
        found = [Event(None, "reset", {"why": why})]
        for kind, method, names in _STATE:
            for row in await self._master.ask(method, [], list(names), False):
                content = {**dict(zip(names, row, strict=True)), "change": "state"}
                found.append(Event(None, kind, content))
        names = ("id", "status", "summary", "source", "dry_run")
        rows = await self._master.ask("QueryJobs", [], list(names))
        jobs = [dict(zip(names, row, strict=True)) for row in rows if row]
        found += [Event(None, "job", one) for one in jobs]
        return [*found, Event(last, "complete", {})]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _position_of(number: str) -> _EventPosition:
    """Return the position of an event's number, or of the end of a position."""
    epoch, serial, *index = map(int, number.split("-"))
    return epoch, serial, index[0] if index else 0, 0


def _after(position: _EventPosition) -> _EventPosition:
    """Return the position of an event without a number."""
    return *position[:3], position[3] + 1


def is_number(text: str) -> bool:
    """Return True if the text has the form of an event's number."""
    return NUMBER.fullmatch(text) is not None


def seen_by(user: User, kinds: Sequence[str]) -> Callable[[Event], bool]:
    """Return True if a user may see the event."""
    scope, own = user.rights.scope, remote_source(user.name)

    def is_seen(event: Event) -> bool:
        if event.kind in ("reset", "complete"):
            return True
        if event.kind not in kinds:
            return False
        if not scope.is_restricted:
            return True
        if event.kind == "job":
            return bool(event.content.get("source") == own)
        return event.kind == "instance" and scope.has(event.content["name"], event.content["tags"])

    return is_seen
