"""Faults of the guests that should run on a node, for its answers to heartbeats."""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence

from ganeti.base.clock import Clock
from ganeti.base.errors import GanetiError
from ganeti.hypervisor.abilities import NoticesFaults, Sighting
from ganeti.hypervisor.interface import Hypervisor
from ganeti.model.recovery import GuestFault
from ganeti.node.instance_locks import InstanceLocks

MISSING_S = 30.0
"""A guest without a trace may be between two steps of a job, such as the stop and the start of a reboot."""

log = logging.getLogger(__name__)


class GuestFaults:
    """Returns the failed guests among those that should run, by the UUIDs of their instances.

    A call is quick. It also starts a look at the guests that can report more, whose result the next call returns.
    """

    def __init__(
        self, hypervisors: Mapping[str, Hypervisor], locks: InstanceLocks, clock: Clock
    ) -> None:
        self._hypervisors, self._locks, self._clock = hypervisors, locks, clock
        self._missing_since: dict[str, float] = {}
        self._looking: asyncio.Task[None] | None = None

    def __call__(self, wanted: Sequence[str]) -> dict[str, GuestFault]:
        if wanted and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look(wanted), name="look at guests")
        seen = self._seen(wanted)
        return dict(self._failed(seen)) | dict(self._missing(wanted, seen))

    async def close(self) -> None:
        """Stop looking."""
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking

    def _failed(self, seen: Mapping[str, Sighting]) -> Iterator[tuple[str, GuestFault]]:
        """Return the failed guests; one that a call is changing now is that call's responsibility."""
        busy = self._locks.statistics()
        for uuid, one in seen.items():
            if one.fault is not None and one.name not in busy:
                yield uuid, one.fault

    def _missing(
        self, wanted: Sequence[str], seen: Collection[str]
    ) -> Iterator[tuple[str, GuestFault]]:
        """Return the guests without a trace, once that has lasted: the machine was reset, or their start failed."""
        now = self._clock.monotonic()
        self._missing_since = {
            uuid: self._missing_since.get(uuid, now) for uuid in wanted if uuid not in seen
        }
        for uuid, since in self._missing_since.items():
            if now - since >= MISSING_S:
                yield uuid, GuestFault.CRASHED

    def _seen(self, wanted: Sequence[str]) -> dict[str, Sighting]:
        found: dict[str, Sighting] = {}
        for able in self._able():
            try:
                found |= able.seen(wanted)
            except (OSError, GanetiError) as err:
                log.warning("looking for guests: %s", err)
        return found

    async def _look(self, wanted: Sequence[str]) -> None:
        for able in self._able():
            try:
                await able.look(wanted)
            except (OSError, GanetiError) as err:
                log.warning("looking at guests: %s", err)

    def _able(self) -> Iterator[NoticesFaults]:
        for hypervisor in self._hypervisors.values():
            if (able := hypervisor.options.faults) is not None:
                yield able
