"""What our part of a live migration takes, beyond what QEMU itself takes.

`overhead_s`: the job's time, less QEMU's own `total-time`, less the start of a bare incoming QEMU.
`downtime_added_ms`: QEMU's `downtime`, less that of a migration between two bare QEMU processes.
Medians of several migrations of the small guest between two local nodes.
"""

import argparse
import json
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import spin_ms, sync_ms
from real_guests import (
    BareMonitor,
    add_guest,
    command,
    console,
    elsewhere,
    kvm_cluster,
    qemu_words,
    wait_until_all_beat,
)

from ganeti.clients.luxi import LuxiClient
from ganeti.vcluster.layout import VirtualCluster

NAME = "web1.example.com"
FIGURES = re.compile(r"KiB in (\d+) ms, with a downtime of (\d+) ms")
BANDWIDTH, DOWNTIME_MS = 32 << 20, 30


def migrations(cluster: VirtualCluster, count: int) -> list[tuple[float, int, int]]:
    """Seconds of each job, and QEMU's total and down time in milliseconds."""
    found = []
    with LuxiClient(cluster.master.paths) as client:
        for number in range(count):
            time.sleep(1)
            op = {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": NAME,
                  "target_node": f"node{2 - number % 2}.vcluster.test"}  # fmt: skip
            begun = time.monotonic()
            job_id = client.submit_job([op])
            texts = [
                str(entry[3]) for change in client.wait_for_job(job_id) for entry in change.entries
            ]
            took = time.monotonic() - begun
            figures = FIGURES.search("\n".join(texts))
            if figures is None:
                raise RuntimeError(f"the migration failed: {texts}")
            found.append((took, int(figures[1]), int(figures[2])))
    return found


def bare(words: list[str], runtime: Path, disk: Path) -> tuple[float, int]:
    """Start of an incoming QEMU in seconds, and the down time of one migration to it in milliseconds."""
    with tempfile.TemporaryDirectory(prefix="gnt-", dir="/var/tmp") as name:
        copy = Path(name) / "disk"
        copy.write_bytes(disk.read_bytes())
        ends = []
        for end in ("a", "b"):
            place = Path(name) / end
            place.mkdir()
            changed = elsewhere(elsewhere(words, disk, copy), runtime, place)
            ends.append((place, changed))
        return _one_bare(*ends)


def _one_bare(
    source_end: tuple[Path, list[str]], target_end: tuple[Path, list[str]]
) -> tuple[float, int]:
    (here, source_words), (there, target_words) = source_end, target_end
    with subprocess.Popen(source_words, cwd="/") as source:
        monitor = BareMonitor(next_socket(here))
        monitor.ask("cont")
        time.sleep(5)
        begun = time.monotonic()
        with subprocess.Popen([*target_words, "-incoming", "defer"], cwd="/") as target:
            other = BareMonitor(next_socket(there))
            started_s = time.monotonic() - begun
            try:
                downtime = _moved(monitor, other, here / "stream")
            finally:
                other.ask("quit")
                target.wait()
                monitor.ask("quit")
                source.wait()
    return started_s, downtime


def next_socket(place: Path) -> Path:
    """The control socket that a bare QEMU makes."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for path in place.rglob("*.m"):
            return path
        time.sleep(0.002)
    raise RuntimeError("a bare QEMU does not start")


def _moved(monitor: BareMonitor, other: BareMonitor, stream: Path) -> int:
    for one in (monitor, other):
        one.ask("migrate-set-capabilities",
                capabilities=[{"capability": "late-block-activate", "state": True}])  # fmt: skip
    other.ask("migrate-incoming", uri=f"unix:{stream}")
    monitor.ask(
        "migrate-set-parameters", **{"max-bandwidth": BANDWIDTH, "downtime-limit": DOWNTIME_MS}
    )
    monitor.ask("migrate", uri=f"unix:{stream}")
    answer: dict[str, Any] = {}
    while "downtime" not in answer or answer.get("status") != "completed":
        if answer.get("status") == "failed":
            raise RuntimeError(f"the bare migration failed: {answer}")
        time.sleep(0.02)
        answer = monitor.ask("query-migrate")
    return int(answer["downtime"])


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--smoke", action="store_true", help="one of everything, to see that it runs"
    )
    args = parser.parse_args()
    first, count, bares = (0, 1, 1) if args.smoke else (2, 4, 2) if args.quick else (2, 12, 6)
    with kvm_cluster(2) as cluster:
        uuid = add_guest(cluster, NAME, node=1)
        wait_until_all_beat([console(cluster, uuid, 1)])
        words = qemu_words(cluster, uuid, 1)
        runtime = cluster.nodes[0].paths.kvm
        migrations(cluster, first)  # what each node finds out once
        moved = migrations(cluster, count)
        command(cluster, "gnt-instance", "shutdown", NAME)
        (disk,) = [path for path in cluster.shared_directory.rglob("*") if path.is_file()]
        alone = [bare(words, runtime, disk) for _ in range(bares)]
        started_s = statistics.median(one[0] for one in alone)
        bare_downtime = statistics.median(one[1] for one in alone)
        overheads = [took - total_ms / 1000 - started_s for took, total_ms, _down in moved]
        figures = {
            "overhead_s": round(statistics.median(overheads), 3),
            "downtime_added_ms": round(
                statistics.median(one[2] for one in moved) - bare_downtime, 1
            ),
            "job_s": round(statistics.median(one[0] for one in moved), 3),
            "qemu_total_ms": round(statistics.median(one[1] for one in moved)),
            "bare_start_s": round(started_s, 3),
            "bare_downtime_ms": bare_downtime,
            "sync_ms": sync_ms(Path(cluster.directory)),
            "spin_ms": spin_ms(),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
