"""What the figures of guests and nodes cost: samples of a node daemon, a history, a page for Prometheus.

The kernel's files about the guests are stood in for by files in memory, which are a little cheaper to read. The node's
own are real, and so are the history files.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench_query import NoJobs, snapshot, uuid
from machine import spin_ms

from ganeti.base.clock import SystemClock
from ganeti.base.paths import Paths
from ganeti.config.snapshot import Snapshot
from ganeti.hypervisor.abilities import Options
from ganeti.hypervisor.kvm.figures import Figures as KvmFigures
from ganeti.hypervisor.kvm.runtime import GuestFiles, Record
from ganeti.model.figures import FIGURES, RINGS, SAMPLE_S, Values
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.objects import Node
from ganeti.node.figures import Figures
from ganeti.query.execute import QueryExecutor
from ganeti.query.live import LiveSource
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.figures import FIGURES as PRESENT
from ganeti.rpc.procedures.figures import HISTORY, HistoryArgs, NodeFigures
from ganeti.rpc.procedures.form import Procedure
from ganeti.web.metrics import usage

GUESTS = (1, 20, 100)
SAMPLES = 60
MEMORY = Path("/dev/shm")  # noqa: S108 - a new directory in it
BUSY: Values = tuple(12345.678 + number for number in range(len(FIGURES)))


class Clock(SystemClock):
    """A clock that the benchmark moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def stand_in(paths: Paths, proc: Path, guests: int) -> None:
    """Write what the kernel and the driver know of guests, each with a tap and 24 open files."""
    (proc / "net").mkdir(parents=True)
    paths.kvm.mkdir(parents=True)
    lines = []
    for number in range(guests):
        own = proc / str(1000 + number)
        (own / "fd").mkdir(parents=True)
        for descriptor in range(24):
            (own / "fd" / str(descriptor)).symlink_to("/dev/null")
        fields = ["0"] * 40
        fields[0], fields[11], fields[17], fields[19] = "S", "500", "4", "77"
        (own / "stat").write_text(f"{1000 + number} (qemu) {' '.join(fields)}\n")
        (own / "statm").write_text("99999 5000 10 1 0 1 0\n")
        (own / "io").write_text("read_bytes: 4096\nwrite_bytes: 8192\n")
        lines.append(f"gnt{number}: 100 1 0 0 0 0 0 0 1000 5 0 0 0 0 0 0\n")
        instance = InstanceSpec(
            name=f"web{number}", uuid=uuid(3, number), hypervisor="kvm", os="o", memory=128,
            vcpus=1, hvparams={},
        )  # fmt: skip
        record = Record(
            instance=instance, argv=("qemu",) * 80, accelerator="kvm", boot_id="b",
            taps=(f"gnt{number}",), pid=1000 + number, start_ticks=77,
        )  # fmt: skip
        # The start of a UUID names the files of a real guest, and these do not differ in it.
        GuestFiles(paths.kvm, paths.log, f"{number:013}").write(record)
    (proc / "net/dev").write_text("".join(lines))


async def sampling(directory: Path, guests: int, samples: int) -> tuple[float, float]:
    """Return percent of a processor that sampling takes, and milliseconds of a history of a month."""
    clock, paths, proc = Clock(), Paths(directory / "node"), directory / "proc"
    stand_in(paths, proc, guests)
    driver: Any = SimpleNamespace(options=Options(figures=KvmFigures(paths, proc)))
    # History files are on a disk, as those of a node.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as disk:
        paths.data.mkdir(parents=True)
        paths.history.symlink_to(disk)
        figures = Figures(paths, {"kvm": driver}, clock)
        await figures.sample()
        begun = time.process_time()
        for _ in range(samples):
            clock.now += SAMPLE_S
            await figures.sample()
        spent = (time.process_time() - begun) / samples
        ring = RINGS[-1]
        args = HistoryArgs(
            uuid=uuid(3, 0), start=clock.now - ring.lasts_s, end=clock.now, step=ring.step
        )
        begun = time.perf_counter()
        await figures.handlers()[HISTORY.name](args, Call())
        history_ms = (time.perf_counter() - begun) * 1000
        await figures.close()
    return spent / SAMPLE_S * 100, history_ms


class MeasuredNodes:
    """Nodes whose guests are all busy."""

    def __init__(self, shown: Snapshot) -> None:
        self._guests = dict.fromkeys(shown.instances, BUSY)

    async def call(self, node: Node, procedure: Procedure[Any, Any], args: Any) -> Any:
        del node, args
        assert procedure is PRESENT
        return NodeFigures(node=BUSY, guests=self._guests)


async def page(instances: int) -> tuple[float, float]:
    """Return milliseconds and KiB of `/metrics/usage`."""
    shown = snapshot(instances)
    live = LiveSource(MeasuredNodes(shown), SystemClock())
    queries = QueryExecutor(lambda: shown, NoJobs(), list, live)

    async def ask(method: str, names: list[str], fields: list[str], *_locking: Any) -> Any:
        kind = {"QueryNodes": "node", "QueryInstances": "instance"}[method]
        return await queries.values(kind, names, fields)

    call: Any = SimpleNamespace(services=SimpleNamespace(master=SimpleNamespace(ask=ask)))
    begun = time.perf_counter()
    text = (await usage(call)).body
    await live.close()
    return (time.perf_counter() - begun) * 1000, len(text) / 1024


async def measured(*, quick: bool) -> dict[str, float]:
    """Return all figures."""
    found: dict[str, float] = {}
    for guests in GUESTS[:1] if quick else GUESTS:
        with tempfile.TemporaryDirectory(dir=MEMORY) as name:
            percent, history_ms = await sampling(Path(name), guests, 2 if quick else SAMPLES)
        found[f"sampling_{guests}_guests_percent"] = round(percent, 4)
    found["history_month_ms"] = round(history_ms, 2)
    instances = 10 if quick else 1000
    milliseconds, kib = await page(instances)
    found["metrics_1000_guests_ms"] = round(milliseconds, 1)
    found["metrics_1000_guests_kib"] = round(kib)
    return found


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one guest, and ten instances")
    args = parser.parse_args()
    print(json.dumps({**asyncio.run(measured(quick=args.quick)), "spin_ms": spin_ms()}))


if __name__ == "__main__":
    main()
