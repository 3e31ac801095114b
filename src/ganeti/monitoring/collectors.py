"""The collectors of a node: their names and their sources of data.

A report is cached for a collector's interval, so that more requests cause no more work. Two
collectors need figures over time: `sample` reads them, `rest_s` returns the time until the next
sample.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ganeti.base.clock import Clock, SystemClock
from ganeti.base.errors import GanetiError, HostError
from ganeti.base.paths import Paths
from ganeti.base.process import Run, run
from ganeti.model.data_collectors import (
    CPU_LOAD,
    DISKSTATS,
    DRBD,
    KVM_MEMORY,
    KVM_STATUS,
    LV,
    MICROSECONDS,
    XEN_CPU_LOAD,
    Collecting,
)
from ganeti.monitoring import disks, drbd, guests, processors
from ganeti.monitoring.report import INSTANCE, STORAGE, Description, ReportKind

COMMAND_LIMIT_S = 10.0
NANOSECONDS = 1_000_000_000

DESCRIPTIONS = {
    one.name: one
    for one in (
        Description(CPU_LOAD, None, ReportKind.PERFORMANCE),
        Description(XEN_CPU_LOAD, None, ReportKind.PERFORMANCE),
        Description(DISKSTATS, STORAGE, ReportKind.PERFORMANCE),
        Description(DRBD, STORAGE, ReportKind.STATUS),
        Description(KVM_STATUS, INSTANCE, ReportKind.STATUS),
        Description(KVM_MEMORY, None, ReportKind.PERFORMANCE),
        Description(LV, STORAGE, ReportKind.PERFORMANCE),
    )
}


@dataclass(frozen=True)
class Host:
    """The data sources of a node's collectors."""

    paths: Paths
    proc: Path = Path("/proc")
    run: Run = run
    clock: Clock = field(default_factory=SystemClock)

    def read(self, name: str) -> str:
        """Return a file of the kernel; HostError."""
        try:
            return (self.proc / name).read_text(errors="replace")
        except OSError as err:
            raise HostError(f"{self.proc / name} cannot be read: {err.strerror}") from err

    async def output(self, argv: tuple[str, ...]) -> str:
        """Return a program's output; HostError."""
        done = await self.run(argv, timeout_s=COMMAND_LIMIT_S)
        return done.stdout.decode(errors="replace")

    def guests(self) -> list[guests.Guest]:
        return list(guests.guests(self.proc, self.paths.kvm))


class _Kept(NamedTuple):
    at_s: float
    report: dict[str, Any]


class Collectors:
    """The collectors of one node; `wanted` returns the active ones and their intervals."""

    def __init__(self, host: Host, wanted: Callable[[], Mapping[str, Collecting]]) -> None:
        self._host = host
        self._wanted = wanted
        self._kept: dict[str, _Kept] = {}
        self._at_work: dict[str, asyncio.Lock] = {}
        self._loads = processors.Window()
        self._domains = processors.Window()
        self._data: dict[str, Callable[[], Awaitable[Any]]] = {
            CPU_LOAD: self._processor_load,
            XEN_CPU_LOAD: self._domain_loads,
            DISKSTATS: self._diskstats,
            DRBD: self._drbd,
            KVM_STATUS: self._guest_status,
            KVM_MEMORY: self._guest_memory,
            LV: self._volumes,
        }

    def active(self) -> list[Description]:
        """Return the active collectors."""
        wanted = self._wanted()
        return [one for name, one in DESCRIPTIONS.items() if wanted[name].active]

    async def report(self, one: Description) -> dict[str, Any]:
        """Return the collector's report, at most as old as its interval."""
        lasts_s = self._wanted()[one.name].interval_us / MICROSECONDS
        async with self._at_work.setdefault(one.name, asyncio.Lock()):
            now = self._host.clock.monotonic()
            kept = self._kept.get(one.name)
            if kept is None or now - kept.at_s >= lasts_s:
                kept = self._kept[one.name] = _Kept(now, await self._made(one))
        return kept.report

    async def _made(self, one: Description) -> dict[str, Any]:
        try:
            data = await self._data[one.name]()
        except GanetiError as err:
            data = one.failed(err.message)
        return one.report(data, int(self._host.clock.time() * NANOSECONDS))

    async def sample(self, name: str) -> None:
        """Read the figures of a collector that needs some over time; does nothing for others."""
        now = self._host.clock.monotonic()
        try:
            if name == CPU_LOAD:
                values = processors.parse_stat(self._host.read("stat"))
                self._loads.add(processors.Sample(now, values))
            elif name == XEN_CPU_LOAD:
                text = await self._host.output(processors.XENTOP)
                self._domains.add(processors.Sample(now, processors.parse_xentop(text)))
        except GanetiError:
            return  # the report states that too little is known

    async def _processor_load(self) -> Any:
        return processors.load_data(self._loads.rates(), os.sysconf("SC_CLK_TCK"))

    async def _domain_loads(self) -> Any:
        return self._domains.rates(processors.XEN_LEAST_S)

    async def _diskstats(self) -> Any:
        return disks.parse_diskstats(self._host.read("diskstats"))

    async def _drbd(self) -> Any:
        return drbd.parse(self._host.read("drbd"))

    async def _guest_status(self) -> Any:
        running = await asyncio.to_thread(self._host.guests)
        return guests.status_data(running, self._host.clock.time())

    async def _guest_memory(self) -> Any:
        return guests.memory_data(await asyncio.to_thread(self._host.guests))

    async def _volumes(self) -> Any:
        return disks.parse_lvs(await self._host.output(disks.LVS))


async def keep_sampling(
    collectors: Collectors, wanted: Callable[[], Mapping[str, Collecting]], name: str
) -> None:
    """Sample a collector at its interval while it is active, until cancelled."""
    while True:
        of_this = wanted()[name]
        if of_this.active:
            await collectors.sample(name)
        await asyncio.sleep(of_this.interval_us / MICROSECONDS)
