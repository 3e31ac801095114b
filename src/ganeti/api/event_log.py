"""What has happened lately on the master: jobs and objects that changed, numbered, for those who follow it.

The number of an event is `EPOCH-N`; N counts from 1 in each epoch. Who was away asks for all after the last
number that it has seen; after a change of master, or too long a time, it is told that it has to look anew.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Cluster, Instance, Node, NodeGroup
from ganeti.model.stored import Stored

EVENTS_LIMIT = 20_000
AT_ONCE = 5_000
"""Events of one answer."""
GATHER_S = 0.02
"""Changes of the configuration are compared at most this often."""
NUMBER = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")

_KINDS: dict[type[Stored], str] = {Instance: "instance", Node: "node", NodeGroup: "group"}


class EventLog:
    """The events of one mastership."""

    def __init__(self, epoch: int, limit: int = EVENTS_LIMIT) -> None:
        self._epoch = epoch
        self._events: deque[tuple[str, Any]] = deque(maxlen=limit)
        self._last = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._seen: Snapshot | None = None
        self._newest: Snapshot | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stop_following: Callable[[], None] | None = None

    @property
    def last(self) -> str:
        """The number of the last event."""
        return f"{self._epoch}-{self._last}"

    def note(self, kind: str, content: Mapping[str, Any]) -> None:
        """Something has happened."""
        self._last += 1
        self._events.append((kind, content))
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def after(self, number: str | None) -> dict[str, Any]:
        """All events after one, as `{"last", "is_lost", "events": [[number, kind, content] …]}`.

        None: none, only the last number. If what came after is not known any more, `is_lost` is true.
        """
        if number is None:
            return {"last": self.last, "is_lost": False, "events": []}
        found = NUMBER.fullmatch(number)
        first = self._last - len(self._events) + 1
        seen = int(found[2]) if found else 0
        if not found or int(found[1]) != self._epoch or not first - 1 <= seen <= self._last:
            return {"last": self.last, "is_lost": True, "events": []}
        skipped = seen - first + 1
        events = [
            [f"{self._epoch}-{seen + 1 + index}", kind, content]
            for index, (kind, content) in enumerate(
                islice(self._events, skipped, skipped + AT_ONCE)
            )
        ]
        last = events[-1][0] if events else number
        return {"last": last, "is_lost": False, "events": events}

    async def wait(self, number: str | None, timeout_s: float) -> dict[str, Any]:
        """The same, as soon as there is something to say, or when the time is over."""
        answer = self.after(number)
        if number is None or answer["events"] or answer["is_lost"]:
            return answer
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(waiter)
        return self.after(number)

    # The configuration

    def follow(self, snapshot: Snapshot, subscribe: Callable[[Any], Callable[[], None]]) -> None:
        """Note what differs from `snapshot` from now on."""
        self._seen = self._newest = snapshot
        self._stop_following = subscribe(self._changed)

    async def close(self) -> None:
        """Wake who waits; nothing more is noted."""
        if self._stop_following is not None:
            self._stop_following()
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _changed(self, snapshot: Snapshot) -> None:
        self._newest = snapshot
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._compare)

    def _compare(self) -> None:
        self._timer = None
        old, new = self._seen, self._newest
        self._seen = new
        if old is None or new is None:
            return
        if old.cluster is not new.cluster:
            self.note("cluster", _shown(new.cluster, "changed"))
        for kind, name in _KINDS.items():
            before, now = old.table(kind), new.table(kind)
            if before is now:
                continue
            for uuid, one in now.items():
                if before.get(uuid) is not one:
                    change = "changed" if uuid in before else "added"
                    self.note(name, _shown(one, change))
            for uuid in before.keys() - now.keys():
                self.note(name, _shown(before[uuid], "removed"))


def _shown(one: Cluster | Stored, change: str) -> dict[str, Any]:
    return {
        "name": getattr(one, "name", ""),
        "uuid": one.uuid,
        "change": change,
        "serial_no": one.serial_no,
        "tags": list(getattr(one, "tags", ())),
    }
