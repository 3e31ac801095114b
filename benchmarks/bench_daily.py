"""Daily work: the clone of an instance against `cp --sparse=always` of its disk; disks that move while a guest runs.

`clone_1g_ratio`: seconds of a whole `gnt-instance clone` of an instance that is down, within a node, over those of
`cp` to the same file system. The disk has 1 GiB: random data; every eighth part of 16 MiB is a hole. Both are synced at the
end. The fastest of some of each, in turns. `clone_nodes_ratio`: the same for a clone on another node of this host.

`live_move_ratio`: seconds of `dd` of the disk of a running guest to the same file system, synced at the end, and `rm`
of one such file, over those of a whole `gnt-instance modify -t file --file-storage-dir`, which removes the old disk; the
fastest of some of each, in turns. Both read the disk from the host's cache. `rm` counts because it takes half as long as
`dd` on a file system that discards freed blocks.
`guest_write_latency_ratio`: the mean time of a write of 64 KiB by the guest's device during such a move, over that
without one. `live_move_paused_ms`: the longest pause of the guest.

`metrics_1000_guests_ms`: the page of 1,000 guests' figures for Prometheus (`bench_figures.py`).
"""

import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench_figures import page
from local_cluster import local_cluster, run_job
from machine import spin_ms, sync_ms
from real_guests import command, console, kvm_cluster, wait_until_all_beat
from sizes import chosen_size

from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.hypervisor.kvm.pci_slots import device_id
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.vcluster.layout import VirtualCluster

MIB, PART = 1024 * 1024, 16
NAME, CLONE = "source.example.com", "clone.example.com"
WRITE_LIMIT_S = 60.0
BLOCK, SYSTEM_MIB, WRITES, WRITES_AT_ONCE = 64 * 1024, 64, 800, 20
_OPS = re.compile(r"and (\S+) ops/sec")
_PAUSED = re.compile(r"was paused for (\d+) ms")
NODE1, NODE2 = "node1.vcluster.test", "node2.vcluster.test"


class Jobs:
    """An instance with data and holes on its disk, and its clones."""

    def __init__(self, cluster: VirtualCluster, size: int) -> None:
        self._cluster = cluster
        run_job(self._cluster,
            OP_ID="OP_INSTANCE_CREATE", instance_name=NAME, mode="create", start=False, disk_template="file",
            disks=[{"size": size}], pnode=NODE1, nics=[], no_install=True,
        )  # fmt: skip
        place = cluster.master.paths.below("/srv/ganeti/file-storage")
        [self.disk] = [path for path in place.rglob("*") if path.is_file()]
        with self.disk.open("r+b") as file:
            for part in range(size // PART):
                file.seek(part * PART * MIB)
                if part % 8:
                    file.write(os.urandom(PART * MIB))

    def clone(self, node: str) -> None:
        run_job(self._cluster,
            OP_ID="OP_INSTANCE_CREATE", instance_name=CLONE, mode="clone", src_instance=NAME, pnode=node, start=False,
        )  # fmt: skip

    def remove(self) -> None:
        run_job(self._cluster, OP_ID="OP_INSTANCE_REMOVE", instance_name=CLONE)

    def copy(self) -> None:
        """Copy the same disk by cp."""
        target = self.disk.with_name("copy")
        subprocess.run(["cp", "--sparse=always", str(self.disk), str(target)], check=True)
        subprocess.run(["sync", str(target)], check=True)

    def remove_copy(self) -> None:
        self.disk.with_name("copy").unlink()


def seconds(
    act: Callable[[], object],
    undo: Callable[[], object],
    *,
    before: Callable[[], object] = lambda: None,
) -> float:
    """Return the time of an act, which is prepared and undone."""
    before()
    os.sync()
    begun = time.perf_counter()
    act()
    taken = time.perf_counter() - begun
    undo()
    return taken


def clones(size: int, rounds: int) -> dict[str, float]:
    """The seconds of each, and the ratios."""
    with local_cluster(2) as cluster:
        jobs = Jobs(cluster, size)
        jobs.copy()  # the first copy reads the disk from the storage, later ones from memory
        jobs.remove_copy()
        taken = [
            (
                seconds(jobs.copy, jobs.remove_copy),
                seconds(lambda: jobs.clone(NODE1), jobs.remove),
                seconds(lambda: jobs.clone(NODE2), jobs.remove),
            )
            for _ in range(rounds)
        ]
    copy, within, between = (min(each) for each in zip(*taken, strict=True))
    return {
        "cp_s": round(copy, 2),
        "clone_s": round(within, 2),
        "clone_nodes_s": round(between, 2),
        "clone_1g_ratio": round(within / copy, 2),
        "clone_nodes_ratio": round(between / copy, 2),
    }


class LiveMoves:
    """A running guest with random data behind its system, whose disk moves from directory to directory."""

    def __init__(self, cluster: VirtualCluster, size: int) -> None:
        self._cluster, self._size, self._count = cluster, size, 0
        self.paused_ms: list[int] = []
        words = [
            "-t",
            "file",
            "--disk",
            f"0:size={size}m",
            "-o",
            "tiny+default",
            "-B",
            "memory=96m",
        ]
        command(
            cluster, "gnt-instance", "add", *words, "--no-nics", "--no-start", "-n", "node1", NAME
        )
        with self._disk.open("r+b") as file:
            file.seek(SYSTEM_MIB * MIB)
            for _ in range(size - SYSTEM_MIB):
                file.write(os.urandom(MIB))
        command(cluster, "gnt-instance", "startup", NAME)
        query = ("gnt-instance", "list", "--no-headers", "-o")
        uuid = command(cluster, *query, "uuid", NAME).strip()
        wait_until_all_beat([console(cluster, uuid, 1)])
        self._files = GuestFiles.of(cluster.master.paths, uuid)
        record = self._files.read()
        if record is None:
            raise RuntimeError("the guest has no record")
        self._device = device_id("disk", record.instance.disks[0].uuid)

    @property
    def _disk(self) -> Path:
        place = self._cluster.master.paths.below("/srv/ganeti/file-storage")
        [disk] = [path for path in place.rglob("*") if path.is_file() and path.name != "copy"]
        return disk

    def move(self) -> None:
        self._count += 1
        said = command(
            self._cluster,
            "gnt-instance",
            "modify",
            "-t",
            "file",
            "--file-storage-dir",
            f"m{self._count}",
            NAME,
        )
        self.paused_ms += [int(found) for found in _PAUSED.findall(said)]

    def read(self) -> None:
        """Fill the host's cache with the disk: a copy past the cache has left it out."""
        with self._disk.open("rb") as file:
            while file.read(MIB):
                pass

    def copy(self) -> None:
        """Copy the same disk by dd."""
        target = self._cluster.master.paths.below("/srv/ganeti/file-storage/copy")
        words = ["dd", f"if={self._disk}", f"of={target}", "bs=1M", "conv=fsync", "status=none"]
        subprocess.run(words, check=True)

    def remove_copy(self) -> None:
        self._cluster.master.paths.below("/srv/ganeti/file-storage/copy").unlink()

    async def write(self, count: int) -> list[float]:
        """Let the guest's device write random blocks; return the seconds that QEMU took for each."""
        begin = self._files.qemu_log.stat().st_size
        path = f"/machine/peripheral/{self._device}/virtio-backend"
        blocks = range(SYSTEM_MIB * MIB // BLOCK, self._size * MIB // BLOCK)
        for block in random.choices(blocks, k=count):  # noqa: S311 - which blocks does not matter
            # QEMU counts these writes as requests of the guest, other than `write`.
            words = f'qemu-io -d {path} "aio_write -P 7 {block * BLOCK} {BLOCK}"'
            ask = Monitor(self._files.people_monitor)
            before = len(self._told(begin))
            await ask("human-monitor-command", {"command-line": words})
            async with asyncio.timeout(WRITE_LIMIT_S):
                while len(self._told(begin)) == before:  # noqa: ASYNC110 - QEMU tells it in a file
                    await asyncio.sleep(0.0005)
        return self._told(begin)

    def _told(self, begin: int) -> list[float]:
        """Return the seconds of the writes that QEMU has told since this position of its log."""
        said = self._files.qemu_log.read_bytes()[begin:].decode(errors="replace")
        return [1 / float(ops) for ops in _OPS.findall(said)]

    async def latencies(self) -> tuple[float, float]:
        """Return the mean seconds of a write, alone (before and after) and during a move."""
        await self.write(WRITES_AT_ONCE)
        alone = await self.write(WRITES)
        moving = asyncio.create_task(asyncio.to_thread(self.move))
        meanwhile = list[float]()
        while not moving.done():
            meanwhile += await self.write(WRITES_AT_ONCE)
        await moving
        alone += await self.write(WRITES)
        return statistics.mean(alone), statistics.mean(meanwhile)


def live_moves(size: int, rounds: int) -> dict[str, float]:
    """The ratios of disks that move while their guest runs."""
    with kvm_cluster(1) as cluster:
        moves = LiveMoves(cluster, size)
        moves.copy()
        moves.remove_copy()
        taken = [
            (
                seconds(moves.copy, lambda: None, before=moves.read),
                seconds(moves.remove_copy, lambda: None),
                seconds(moves.move, lambda: None, before=moves.read),
            )
            for _ in range(rounds)
        ]
        alone, meanwhile = asyncio.run(moves.latencies())
        paused_ms = max(moves.paused_ms)
    copy, remove, live = (min(each) for each in zip(*taken, strict=True))
    return {
        "dd_s": round(copy, 2),
        "rm_s": round(remove, 2),
        "live_move_s": round(live, 2),
        "live_move_ratio": round((copy + remove) / live, 2),
        "live_move_write_ms": round(1000 * alone, 3),
        "guest_write_latency_ratio": round(meanwhile / alone, 2),
        "live_move_paused_ms": paused_ms,
    }


def main() -> None:
    """Print the figures as one JSON object."""
    chosen = chosen_size(__doc__, "a smaller disk, one round")
    size, rounds = ((96, 1), (256, 1), (1024, 4))[chosen]
    figures = {"size_mib": size, **clones(size, rounds), **live_moves(size, rounds)}
    milliseconds, _kib = asyncio.run(page((10, 10, 1000)[chosen]))
    figures["metrics_1000_guests_ms"] = round(milliseconds, 1)
    print(json.dumps({**figures, "sync_ms": sync_ms(Path.cwd()), "spin_ms": spin_ms()}))


if __name__ == "__main__":
    main()
