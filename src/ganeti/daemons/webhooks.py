"""Sends the events of webhooks while this node is the master.

A rule has no queue: it has a position in the log of events (`ganeti.api.event_log`), and reads on when the receiver has
accepted what it was sent. So a receiver that fails costs no memory, and holds up neither the master nor another rule. The
position is stored from time to time; the next master continues from it, so a receiver may get an event twice, with the
same number.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Protocol

from msgspec.structs import replace

from ganeti.base.clock import Clock
from ganeti.base.errors import CommitUnknown, GanetiError, NotMaster
from ganeti.base.ids import IdSource
from ganeti.config.config import Config
from ganeti.config.transaction import Draft
from ganeti.config.webhook_match import fits
from ganeti.model.webhook import Webhook, WebhookState
from ganeti.protocols.webhook import Happened
from ganeti.units.services import WebhookPost

PAUSES_S = (5.0, 30.0, 120.0, 600.0)
"""Between the attempts to send the same events; the last one repeats."""
BATCH = 100
"""The greatest number of events in one request."""
BATCH_BYTES = 256 * 1024
GATHER_S = 0.2
"""The shortest time between two requests of a rule; events that happen meanwhile share the next one."""
STORE_S = 30.0
"""The position is stored at most this often while all goes well."""
WAIT_S = 300.0
GAP = "gap"
"""The kind of the event that says that earlier events are lost."""

_log = logging.getLogger(__name__)


class Events(Protocol):
    """The part of `ganeti.api.event_log.EventLog` that webhooks use."""

    async def last(self) -> str: ...
    async def wait(self, number: str | None, timeout_s: float) -> dict[str, Any]: ...


@dataclass
class Counts:
    """What a rule has done since this master began."""

    requests: int = 0
    events: int = 0
    failures: int = 0


@dataclass(frozen=True)
class Parts:
    """What the delivery of a rule's events needs."""

    config: Config
    events: Events
    post: WebhookPost
    clock: Clock

    async def store(self, state: WebhookState) -> None:
        """Store what is remembered of a rule, if the rule still exists."""

        def change(draft: Draft) -> None:
            if state.webhook in draft.table(Webhook):
                draft.put(state)

        await self.config.change(change)

    async def forget(self, state: WebhookState) -> None:
        """Remove what is remembered of a rule."""

        def change(draft: Draft) -> None:
            if (present := draft.table(WebhookState).get(state.uuid)) is not None:
                draft.remove(present)

        await self.config.change(change)


def _nothing() -> None:
    """Do nothing."""


class WebhookSender:
    """Runs one task for each rule that is not paused."""

    def __init__(self, parts: Parts, ids: IdSource) -> None:
        self._parts, self._ids = parts, ids
        self._tasks: dict[str, tuple[Webhook, asyncio.Task[None]]] = {}
        self._deliveries: dict[str, Delivery] = {}
        self._unsubscribe: Callable[[], None] = _nothing

    def start(self) -> None:
        """Begin to send."""
        self._unsubscribe = self._parts.config.subscribe(lambda _snapshot: self._follow_rules())
        self._follow_rules()

    async def close(self) -> None:
        """Stop; the next master continues from the stored positions."""
        self._unsubscribe()
        tasks = [task for _rule, task in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def figures(self) -> dict[str, dict[str, int]]:
        """Return the counts of each rule by its name."""
        found = {}
        for rule in self._parts.config.snapshot.table(Webhook).values():
            delivery = self._deliveries.get(rule.uuid)
            counts = delivery.counts if delivery else Counts()
            state = delivery.state if delivery else None
            found[rule.name] = {
                **vars(counts),
                "gaps": state.gaps if state else 0,
                "failing": int(bool(state and state.failing_since)),
            }
        return found

    def _follow_rules(self) -> None:
        """Start and stop tasks so that each present rule has one."""
        present = self._parts.config.snapshot.table(Webhook)
        for uuid, (rule, task) in list(self._tasks.items()):
            if present.get(uuid) != rule:
                task.cancel()
                del self._tasks[uuid]
        for uuid, rule in present.items():
            if uuid not in self._tasks:
                work = self._run(rule)
                self._tasks[uuid] = rule, asyncio.create_task(work, name=f"webhook-{rule.name}")
        for uuid in self._deliveries.keys() - present.keys():
            del self._deliveries[uuid]

    async def _run(self, rule: Webhook) -> None:
        while True:
            try:
                await self._serve(rule)
            except (NotMaster, CommitUnknown) as err:
                _log.info("webhook %s ends: %s", rule.name, err)
                return
            except GanetiError as err:
                _log.warning("webhook %s waits: %s", rule.name, err)
            except Exception:  # noqa: BLE001 - one fault must not end the rule
                _log.exception("webhook %s has failed", rule.name)
            else:
                return
            await asyncio.sleep(PAUSES_S[1])

    async def _serve(self, rule: Webhook) -> None:
        """Send events until the rule changes; a paused one only loses its position."""
        known = self._deliveries.get(rule.uuid)
        state = known.state if known else self._stored(rule)
        if rule.is_paused:
            self._deliveries.pop(rule.uuid, None)
            if state is not None:
                await self._parts.forget(state)
            return
        if state is None:
            position = await self._parts.events.last()
            state = WebhookState(
                uuid=self._ids.uuid(), name=rule.name, webhook=rule.uuid, position=position
            )
            await self._parts.store(state)
        counts = known.counts if known else Counts()
        delivery = self._deliveries[rule.uuid] = Delivery(self._parts, rule, state, counts)
        await delivery.run()

    def _stored(self, rule: Webhook) -> WebhookState | None:
        states = self._parts.config.snapshot.table(WebhookState).values()
        return next((one for one in states if one.webhook == rule.uuid), None)


class Delivery:
    """The events of one rule, in their order, from its position on."""

    def __init__(self, parts: Parts, rule: Webhook, state: WebhookState, counts: Counts) -> None:
        self._parts, self._rule = parts, rule
        self.state, self.counts = state, counts
        self._stored_at = parts.clock.monotonic()
        self._is_stored = True

    async def run(self) -> None:
        """Send events for ever."""
        while True:
            wait_s = WAIT_S if self._is_stored else STORE_S
            answer = await self._parts.events.wait(self.state.position, wait_s)
            last = str(answer["last"])
            if answer["is_lost"]:
                await self._skip_gap(last)
                continue
            happened = [Happened(*one) for one in answer["events"]]
            view = self._parts.config.snapshot
            for batch in batches([one for one in happened if fits(self._rule, one, view)]):
                await self._deliver(batch)
                await self._store_if_due()
            if happened:
                self._remember(position=last)
            else:  # Stored with the next event: a position alone would be written again and again.
                self.state = replace(self.state, position=last)
            await self._store_if_due()
            await asyncio.sleep(GATHER_S)

    async def _skip_gap(self, last: str) -> None:
        """Count a gap, and report it to the receiver."""
        after, gaps = self.state.position, self.state.gaps + 1
        _log.error(
            "webhook %s: events after %s are no longer in the log; it continues after %s",
            *(self._rule.name, after, last),
        )
        self._remember(gaps=gaps)
        await self._deliver([Happened(last, GAP, {"after": after, "gaps": gaps})])
        await self._store()

    async def _deliver(self, events: Sequence[Happened]) -> None:
        """Send events until the receiver accepts them."""
        delivery = f"{self._rule.uuid}.{events[-1].number}"
        for pause_s in chain(PAUSES_S, repeat(PAUSES_S[-1])):
            cluster = self._parts.config.snapshot.cluster.name
            result = await self._parts.post(cluster, self._rule, delivery, events)
            self.counts.requests += 1
            if not result.error:
                break
            await self._fail(result.error)
            await asyncio.sleep(pause_s)
        self.counts.events += len(events)
        was_failing = self.state.failing_since > 0
        self._remember(
            position=events[-1].number,
            last_success=self._parts.clock.time(),
            failures=0,
            failing_since=0.0,
            error="",
        )
        if was_failing:
            await self._store()

    async def _fail(self, error: str) -> None:
        self.counts.failures += 1
        _log.warning("webhook %s: %s", self._rule.name, error)
        self._remember(
            failures=self.state.failures + 1,
            failing_since=self.state.failing_since or self._parts.clock.time(),
            error=error,
        )
        await self._store()

    def _remember(self, **fields: Any) -> None:
        self.state = replace(self.state, **fields)
        self._is_stored = False

    async def _store_if_due(self) -> None:
        if not self._is_stored and self._parts.clock.monotonic() - self._stored_at >= STORE_S:
            await self._store()

    async def _store(self) -> None:
        await self._parts.store(self.state)
        self._stored_at = self._parts.clock.monotonic()
        self._is_stored = True


def batches(events: Sequence[Happened]) -> list[list[Happened]]:
    """Return events in groups for one request each."""
    found: list[list[Happened]] = []
    size = 0
    for one in events:
        length = len(repr(one.content))
        if not found or len(found[-1]) >= BATCH or size + length > BATCH_BYTES:
            found.append([])
            size = 0
        found[-1].append(one)
        size += length
    return found
