"""Measures the guests of a node and the node itself, and keeps the history of the figures."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping
from typing import TypeVar

from ganeti.base.clock import Clock
from ganeti.base.errors import GanetiError, InputError
from ganeti.base.paths import Paths
from ganeti.base.run_to_completion import run_to_completion
from ganeti.history.files import NODE, Histories, is_name
from ganeti.history.host import HostFigures
from ganeti.hypervisor.interface import Hypervisor
from ganeti.model.figures import (
    RINGS,
    SAMPLE_S,
    STEPS,
    UNKNOWN,
    Reading,
    Values,
    values,
)
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.figures import (
    FIGURES,
    HISTORY,
    HISTORY_FORGET,
    HistoryArgs,
    HistoryForgetArgs,
    HistoryPart,
    NodeFigures,
)
from ganeti.rpc.procedures.form import Nothing

PRUNE_EVERY_S = 3600.0
CLOSE_S = 2.0
OLD_S = 3 * SAMPLE_S
"""Figures that are older than this are not reported as present."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class Figures:
    """Samples for as long as `run` runs. One thread at a time reads and writes."""

    def __init__(
        self,
        paths: Paths,
        hypervisors: Mapping[str, Hypervisor],
        clock: Clock,
        host: HostFigures | None = None,
    ) -> None:
        self._hypervisors, self._clock = hypervisors, clock
        self._host = host or HostFigures()
        self._histories = Histories(paths.history)
        self._turn = asyncio.Lock()
        self._readings: dict[str, Reading] = {}
        self._present: dict[str, Values] = {}
        self._read_at = float("-inf")
        """Monotonic."""
        self._prune_at = float("-inf")
        self._last_failure = ""

    def handlers(self) -> Handlers:
        return {
            FIGURES.name: self.present,
            HISTORY.name: self.history,
            HISTORY_FORGET.name: self.forget,
        }

    async def run(self) -> None:
        """Sample once in each step of the clock, until cancelled."""
        # Nodes of one host do not sample at the same moment.
        phase = random.uniform(0.1, 0.9) * SAMPLE_S  # noqa: S311 - not a secret
        while True:
            delay = SAMPLE_S - (self._clock.time() - phase) % SAMPLE_S
            # A sleep may end too early by the clock's resolution.
            await asyncio.sleep(delay if delay > SAMPLE_S / 2 else delay + SAMPLE_S)
            await self.sample()

    async def sample(self) -> None:
        """Measure and record once; a failure is logged once."""
        failure = await self._in_turn(self._sampled)
        if failure and failure != self._last_failure:
            log.warning("recording the history of figures: %s", failure)
        self._last_failure = failure

    async def close(self) -> None:
        """Close the files, unless the disk hangs."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S), self._turn:
                self._histories.close()

    async def _in_turn(self, act: Callable[[], T]) -> T:
        """Run it in a thread; the next caller waits for its end, even if this caller is cancelled."""
        async with self._turn:
            return await run_to_completion(asyncio.to_thread(act))

    def _sampled(self) -> str:
        """Return why something could not be recorded, '' after a success."""
        now, monotonic = self._clock.time(), self._clock.monotonic()
        readings, failure = self._measured()
        seconds = monotonic - self._read_at
        found = {
            name: values(one, self._readings.get(name), seconds) for name, one in readings.items()
        }
        known = {name: one for name, one in found.items() if one != UNKNOWN}
        self._readings, self._present, self._read_at = readings, known, monotonic
        try:
            self._histories.record(now, known)
            if monotonic >= self._prune_at:
                self._histories.prune(now)
                self._prune_at = monotonic + PRUNE_EVERY_S
        except OSError as err:
            failure = str(err)
        return failure

    def _measured(self) -> tuple[dict[str, Reading], str]:
        readings, failure = {NODE: self._host.read()}, ""
        for hypervisor in self._hypervisors.values():
            able = hypervisor.options.figures
            if able is not None:
                try:
                    readings |= able.measure()
                except (OSError, GanetiError) as err:
                    failure = str(err)
        return readings, failure

    async def present(self, _args: Nothing, _call: Call) -> NodeFigures:
        """Return the figures of the last sample."""
        if self._clock.monotonic() - self._read_at > OLD_S:
            return NodeFigures()
        guests = {uuid: one for uuid, one in self._present.items() if uuid != NODE}
        return NodeFigures(node=self._present.get(NODE, ()), guests=guests)

    async def history(self, args: HistoryArgs, _call: Call) -> HistoryPart:
        """Return a part of the history of the node or of a guest; InputError."""
        if args.step not in STEPS:
            raise InputError(f"must be one of {', '.join(map(str, STEPS))}", "step")
        ring = RINGS[STEPS.index(args.step)]
        name = _checked(args.uuid) if args.uuid else NODE
        now = self._clock.time()
        start, end = max(args.start, now - ring.lasts_s), min(args.end, now)
        rows = await self._in_turn(lambda: self._histories.read(name, ring, start, end))
        return HistoryPart(times=[row.time for row in rows], rows=[row.values for row in rows])

    def may_have(self, uuid: str) -> bool:
        """Return whether there may be a history of an instance: while a thread is at work, one may just begin."""
        return self._turn.locked() or self._histories.has(uuid)

    async def forget(self, args: HistoryForgetArgs, _call: Call) -> Nothing:
        """Remove the history of an instance."""
        name = _checked(args.uuid)
        await self._in_turn(lambda: self._histories.forget(name))
        return Nothing()


def _checked(uuid: str) -> str:
    """Return the UUID; InputError if no instance can have it."""
    if uuid == NODE or not is_name(uuid):
        raise InputError("is not the UUID of an instance", "uuid")
    return uuid
