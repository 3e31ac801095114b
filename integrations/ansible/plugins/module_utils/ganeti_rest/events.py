"""The stream of events (server-sent events), continued after each loss of the connection."""

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest.errors import (
    ServerBusy,
    Unreachable,
)

PAUSES_S = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class Event:
    """One event; `number` is where a new stream continues, or None if it cannot continue from this event."""

    kind: str
    content: Any
    number: str | None = None


def follow(
    begin: Callable[[str | None], AbstractContextManager[http.client.HTTPResponse]],
    after: str | None,
) -> Iterator[Event]:
    """Yield events for ever; `begin` opens a stream after an event.

    `reset` says that earlier events are lost: the state of all objects and then `complete` follow.
    """
    failures = 0
    while True:
        try:
            with begin(after) as answer:
                failures = 0
                for event in parsed(answer):
                    after = event.number or after
                    yield event
        except (Unreachable, ServerBusy, OSError, http.client.HTTPException):
            time.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
            failures += 1


def parsed(lines: http.client.HTTPResponse) -> Iterator[Event]:
    """Yield the events of one stream until it ends."""
    fields: dict[str, str] = {}
    for raw in lines:
        name, _, value = raw.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "event" in fields:
            yield Event(fields["event"], json.loads(fields["data"]), fields.get("id"))
            fields = {}
        else:
            fields = {}
