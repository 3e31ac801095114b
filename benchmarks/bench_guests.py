"""How long many real guests take to boot by one `gnt-instance startup --all`, against bare QEMU processes.

Both are timed until the last guest says its first heartbeat; the bare processes are the very same commands,
as many of them started at a time as jobs run at a time.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

from bench_migration import next_socket
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

from ganeti.vcluster.layout import VirtualCluster

FULL, QUICK, SMOKE = 30, 6, 2


def by_us(cluster: VirtualCluster, uuids: list[str]) -> float:
    """Seconds from the command to the last boot."""
    logs = [console(cluster, uuid, 1) for uuid in uuids]
    begun = time.monotonic()
    master = cluster.master
    words = master.words(["gnt-instance", "startup", "--all", "--force-multiple"])
    with subprocess.Popen(
        words, env=master.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as startup:
        took = wait_until_all_beat(logs) - begun
        if startup.wait():
            raise RuntimeError("gnt-instance startup failed")
    return took


def alone(commands: list[list[str]], runtime: Path, logs: Path) -> float:
    """Seconds until the same guests have booted, each started bare, all at once."""
    with tempfile.TemporaryDirectory(prefix="gnt-", dir="/var/tmp") as name:
        places = []
        for number, words in enumerate(commands):
            own = Path(name) / str(number)
            own.mkdir()
            places.append((own, elsewhere(elsewhere(words, runtime, own), logs, own)))
        begun = time.monotonic()
        processes = [subprocess.Popen(words, cwd="/") for _own, words in places]
        try:
            for own, _words in places:
                monitor = BareMonitor(next_socket(own))
                monitor.ask("cont")
                monitor.close()
            consoles = [next(own.rglob("*.console")) for own, _words in places]
            return wait_until_all_beat(consoles) - begun
        finally:
            for process in processes:
                process.kill()
                process.wait()


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--smoke", action="store_true", help="one of everything, to see that it runs"
    )
    args = parser.parse_args()
    count = SMOKE if args.smoke else QUICK if args.quick else FULL
    with kvm_cluster(1) as cluster:
        names = [f"web{number}.example.com" for number in range(count)]
        # The beats of those that have booted would take the processors from the others.
        uuids = [add_guest(cluster, name, node=1, start=False, beats_every_s=60) for name in names]
        ours = by_us(cluster, uuids)
        node = cluster.nodes[0]
        commands = [qemu_words(cluster, uuid, 1) for uuid in uuids]
        stop = ["gnt-instance", "shutdown", "--all", "--force-multiple", "--timeout=0"]
        command(cluster, *stop)
        bare = alone(commands, node.paths.kvm, node.paths.log / "kvm")
        figures = {
            "guests": count,
            "start_ratio": round(ours / bare, 2),
            "start_s": round(ours, 2),
            "bare_s": round(bare, 2),
            "sync_ms": sync_ms(Path(cluster.directory)),
            "spin_ms": spin_ms(),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
