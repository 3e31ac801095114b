"""Incremental backups against `qemu-img convert` to the same directory, and the writes of a guest meanwhile.

`full_ratio`, `restore_ratio`: seconds of `qemu-img convert` of a disk of random data, synced at the end, over the
seconds of a whole job between two nodes of this host; the fastest of some of each, in turns.
`local_full_ratio`, `local_restore_ratio`: the same of a job with a directory of the instance's own node.
`compare_ratio`: seconds of a backup of 1 % changed blocks of a stopped instance, found by their sums, over those of a
full one.
`encrypted_full_ratio`, `encrypted_restore_ratio`: seconds of an encrypted full backup over those of a plain one, and of
its restore.
`guest_write_full_mib_s`, `guest_first_write_full_mib_s`, `live_full_mib_s`: the rate of the backup meanwhile, and that
without writes.
`incremental_ratio`: seconds in which 1 % changed blocks of a running guest, found by QEMU's bitmap, are written to an
image and synced, over those of all its blocks; `incremental_bytes_ratio`: the same of bytes.
`guest_write_latency_ratio`: the mean time of a guest's write during a backup, over that in as long a time after it, by
QEMU's device. Half of the writes append records of 4 KiB to a log, each with a flush; half overwrite random 4 KiB of a
sixteenth of the disk. `guest_write_p50_ratio`, `guest_write_p99_ratio`: the same of these percentiles.
`guest_first_write_ratio`, with `_p50_` and `_p99_`: the same of the slowest kind: writes of 64 KiB, each the first
one to its block, so that its old content is copied if the backup has not read it yet.
The program of the node that makes the backup reads the guest's disk, and writes to memory: a target is on another disk.
`live_restore_boot_s`: seconds until a guest that a live restore starts above a backup on another node is ready;
`live_restore_boot_ratio`: over those of its ordinary start; the fastest of some of each, in turns.
"""

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from local_cluster import local_cluster, run_job
from machine import spin_ms, sync_ms
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.hypervisor.abilities import Moment
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.hypervisor.kvm.pci_slots import device_id
from ganeti.model import wire
from ganeti.model.instance_spec import InstanceSpec
from ganeti.node.backups.directory import NEW
from ganeti.node.carrier.order import ChangesOrder, EndOrder, ImageOrder, StreamOrder
from ganeti.protocols.backup_manifest import image_file
from ganeti.vcluster.layout import VirtualCluster
from tests.support.kvm_nodes import READY, Node
from tests.support.live_restores import on_backed_disk, restorable
from tests.support.tiny_guest import (
    build_tiny_guest,
    install,
    make_disk,
    tiny_instance,
    wait_for_text,
)

MIB, BLOCK = 1024 * 1024, 64 * 1024
CHANGED = 0.01
NAME, NODE1, NODE2 = "source.example.com", "node1.vcluster.test", "node2.vcluster.test"
TARGET = "/srv/ganeti/backup"
WRITES, WRITES_AT_ONCE = 200, 20
RECORD, LOG = 4096, 4 * MIB
DATABASE = 1 / 16
"""Share of the disk that random writes overwrite."""
_FIRST, _SECOND = "20261127-180500", "20261127-190500"
_OPS = re.compile(r"and (\S+) ops/sec")


class Jobs:
    """An instance with random data on its disk, and its backups on the other node."""

    def __init__(self, cluster: VirtualCluster, size: int) -> None:
        self._cluster, self._size = cluster, size
        run_job(self._cluster,
            OP_ID="OP_INSTANCE_CREATE", instance_name=NAME, mode="create", start=False, disk_template="file",
            disks=[{"size": size}], pnode=NODE1, nics=[], no_install=True,
        )  # fmt: skip
        place = cluster.master.paths.below("/srv/ganeti/file-storage")
        [self.disk] = [path for path in place.rglob("*") if path.is_file()]
        with self.disk.open("r+b") as file:
            for _ in range(size):
                file.write(os.urandom(MIB))

    def save(self, *, full: bool, encrypt: bool = False, node: str = NODE2) -> None:
        run_job(self._cluster,
            OP_ID="OP_BACKUP_SAVE", instance_name=NAME, node=node, target=TARGET, full=full, encrypt=encrypt,
        )  # fmt: skip

    def make_key(self) -> None:
        run_job(self._cluster, OP_ID="OP_BACKUP_KEY_CREATE")

    def restore(self, node: str = NODE2) -> None:
        run_job(self._cluster,
            OP_ID="OP_BACKUP_RESTORE", instance_name=NAME, node=node, target=TARGET,
        )  # fmt: skip

    def change(self) -> None:
        """Write 1 % of the blocks."""
        blocks = range(self._size * MIB // BLOCK)
        with self.disk.open("r+b") as file:
            for block in random.sample(blocks, int(len(blocks) * CHANGED)):
                file.seek(block * BLOCK)
                file.write(os.urandom(BLOCK))

    @property
    def stored(self) -> list[int]:
        """Bytes of the images, the oldest first."""
        place = self._cluster.nodes[1].paths.below(f"/srv/ganeti/backup/{NAME}")
        return [one.stat().st_size for one in sorted(place.glob("*.qcow2"))]

    def convert(self, form: str) -> None:
        """The same disk by QEMU's program."""
        target = self._cluster.nodes[1].paths.below("/srv/ganeti/copy")
        words = ["qemu-img", "convert", "-t", "writeback", "-O", form, str(self.disk), str(target)]
        subprocess.run(words, check=True)
        with target.open("rb") as file:
            os.fsync(file.fileno())
        target.unlink()


def seconds(act: Callable[[], object]) -> float:
    """Return the time of an act."""
    os.sync()
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def backups(size: int, rounds: int) -> dict[str, float]:
    """The ratios of jobs."""
    taken: dict[str, list[float]] = {}

    def measure(what: str, act: Callable[[], object]) -> None:
        taken.setdefault(what, []).append(seconds(act))

    with local_cluster(2) as cluster:
        jobs = Jobs(cluster, size)
        jobs.make_key()
        for _ in range(rounds):
            measure("qcow2", lambda: jobs.convert("qcow2"))
            measure("full", lambda: jobs.save(full=True))
            measure("local", lambda: jobs.save(full=True, node=NODE1))
            measure("local_restore", lambda: jobs.restore(NODE1))
            jobs.change()
            measure("compare", lambda: jobs.save(full=False))
            measure("raw", lambda: jobs.convert("raw"))
            measure("restore", jobs.restore)
            stored = jobs.stored[-2:]
            measure("encrypted", lambda: jobs.save(full=True, encrypt=True))
            measure("encrypted_restore", jobs.restore)
    best = {what: min(each) for what, each in taken.items()}
    return {
        **{f"{what}_s": round(each, 2) for what, each in best.items()},
        "full_ratio": round(best["qcow2"] / best["full"], 2),
        "restore_ratio": round(best["raw"] / best["restore"], 2),
        "local_full_ratio": round(best["qcow2"] / best["local"], 2),
        "local_restore_ratio": round(best["raw"] / best["local_restore"], 2),
        "encrypted_full_ratio": round(best["encrypted"] / best["full"], 3),
        "encrypted_restore_ratio": round(best["encrypted_restore"] / best["restore"], 3),
        "compare_ratio": round(best["compare"] / best["full"], 3),
        "compare_bytes_ratio": round(stored[1] / stored[0], 3),
    }


class Guest:
    """A real QEMU with a large disk, whose own device writes on command."""

    def __init__(self, node: Node, instance: InstanceSpec, size: int) -> None:
        self._node, self._instance, self._size = node, instance, size
        self._appended = 0

    def _log(self, begin: int = 0) -> bytes:
        """Return what QEMU has printed."""
        return self._node.files(self._instance).qemu_log.read_bytes()[begin:]

    async def write(self, count: int) -> list[float]:
        """Write to random blocks; return the seconds that QEMU took for each."""
        blocks = random.sample(range(self._size // BLOCK), count)
        return await self._write([(block * BLOCK, BLOCK, "") for block in blocks])

    async def work(self, count: int) -> list[float]:
        """Write like a database: append to a log with a flush, and overwrite; return the seconds of each."""
        records = range(LOG, LOG + int(self._size * DATABASE), RECORD)
        writes = list[tuple[int, int, str]]()
        for at in random.sample(records, count // 2):
            writes += [(self._appended, RECORD, "-f"), (at, RECORD, "")]
            self._appended = (self._appended + RECORD) % LOG
        return await self._write(writes)

    async def _write(self, writes: list[tuple[int, int, str]]) -> list[float]:
        begin = len(self._log())
        path = (
            f"/machine/peripheral/{device_id('disk', self._instance.disks[0].uuid)}/virtio-backend"
        )
        for at, length, flags in writes:
            words = f'qemu-io -d {path} "write {flags} -P 7 {at} {length}"'
            await self._node.ask(self._instance)("human-monitor-command", {"command-line": words})
        said = self._log(begin).decode(errors="replace")
        return [1 / float(ops) for ops in _OPS.findall(said)]

    async def begin(self, base: str, bitmap: str) -> Moment:
        return await self._node.driver.moments.begin(
            self._instance, base=base, bitmap=bitmap, limit_s=60
        )

    async def end(self, base: str, bitmap: str, *, keep: bool) -> None:
        await self._node.driver.moments.end(self._instance, base=base, bitmap=bitmap, keep=keep)

    async def save(
        self, moment: Moment, bitmap: str, directory: Path, point: str
    ) -> tuple[float, int]:
        """Let the node's program save a moment to a new image; return the seconds of its work and the bytes.

        The image is based on an earlier one if there is a bitmap.
        """
        disk = self._instance.disks[0].uuid
        image = ImageOrder(
            directory=str(directory),
            file=image_file(point, disk),
            backing=image_file(_FIRST, disk) if bitmap else "",
            disk=disk,
            size=self._size,
        )
        source = EndOrder(path=str(moment.socket), changes=ChangesOrder(export=disk, bitmap=bitmap))
        order = StreamOrder(source=source, sink=EndOrder(image=image), size=self._size)
        file = directory / "stream.order"
        file.write_bytes(wire.encode(order))
        words = ["-m", "ganeti.node.carrier.program", str(file)]
        program = await asyncio.create_subprocess_exec(sys.executable, *words)
        if await program.wait():
            raise RuntimeError("the program that saves the disk failed")
        written, result = directory / f"{image.file}{NEW}", file.with_suffix(".result")
        length = written.stat().st_size
        written.unlink()
        return json.loads(result.read_bytes())["seconds"], length


def prepared(directory: Path, size: int) -> tuple[Node, InstanceSpec, Path]:
    """Return a node, an instance and its disk of random data; only its devices are used, no system boots."""
    directory.chmod(0o711)
    paths, disk = Paths(directory / "a"), directory / "disk"
    paths.kvm.mkdir(parents=True)
    instance = tiny_instance(build_tiny_guest())
    instance = replace(instance, disks=(replace(instance.disks[0], size=size),))
    with disk.open("wb") as file:
        for _ in range(size):
            file.write(os.urandom(MIB))
    return Node(paths, KvmHypervisor(paths, run)), instance, disk


async def running(
    node: Node, instance: InstanceSpec, disk: Path, size: int, rounds: int
) -> dict[str, float]:
    """The ratios of a running QEMU."""
    await node.driver.start(instance, [str(disk)], paused=True)
    try:
        with tempfile.TemporaryDirectory(prefix="gnt-", dir="/dev/shm") as target:
            return await _figures(Guest(node, instance, size), Path(target), size, rounds)
    finally:
        await node.driver.stop(instance, 0)


async def _figures(guest: Guest, directory: Path, size: int, rounds: int) -> dict[str, float]:
    figures = dict[str, float]()
    for name, write in (("guest_write", guest.work), ("guest_first_write", guest.write)):
        await write(WRITES)
        alone, meanwhile, rates = list[float](), list[float](), list[float]()
        for _ in range(rounds):
            moment = await guest.begin("", name)
            begun = time.monotonic()
            full = asyncio.create_task(guest.save(moment, "", directory, _FIRST))
            while not full.done():
                meanwhile += await write(WRITES_AT_ONCE)
            taken = time.monotonic() - begun
            rates.append(size / MIB / (await full)[0])
            await guest.end("", name, keep=False)
            end = time.monotonic() + taken
            while time.monotonic() < end:
                alone += await write(WRITES_AT_ONCE)
        figures |= compared(name, alone, meanwhile)
        figures[f"{name}_full_mib_s"] = round(statistics.median(rates))
    moment = await guest.begin("", "b1")
    full_s, full_bytes = await guest.save(moment, "", directory, _FIRST)
    await guest.end("", "b1", keep=True)  # the next backup reads only what changes from here
    await guest.write(int(size // BLOCK * CHANGED))
    moment = await guest.begin("b1", "b2")
    if not moment.has_changes:
        raise RuntimeError("QEMU has no bitmap of the changes")
    changed_s, changed_bytes = await guest.save(moment, "b1", directory, _SECOND)
    await guest.end("b1", "b2", keep=True)
    return {
        **figures,
        "live_full_mib_s": round(size / MIB / full_s),
        "incremental_ratio": round(changed_s / full_s, 3),
        "incremental_bytes_ratio": round(changed_bytes / full_bytes, 3),
    }


def compared(name: str, alone: list[float], meanwhile: list[float]) -> dict[str, float]:
    """Return how the seconds of writes during a backup compare with those without one."""

    def percentile(number: int, among: list[float]) -> float:
        return statistics.quantiles(among, n=100)[number - 1]

    main = "guest_write_latency_ratio" if name == "guest_write" else f"{name}_ratio"
    return {
        f"{name}_ms": round(1000 * statistics.mean(alone), 3),
        main: round(statistics.mean(meanwhile) / statistics.mean(alone), 2),
        **{
            f"{name}_p{number}_ratio": round(
                percentile(number, meanwhile) / percentile(number, alone), 2
            )
            for number in (50, 99)
        },
    }


async def boots(directory: Path, rounds: int) -> dict[str, float]:
    """The time of a boot above a backup, and of an ordinary one."""
    guest, taken = build_tiny_guest(), {"live": list[float](), "own": list[float]()}
    for number in range(rounds):
        nodes = [_node(directory / f"{number}{name}") for name in "ab"]
        for node in nodes:
            await node.driver.upkeep.warm_up()
        instance = on_backed_disk(tiny_instance(guest))
        disk = make_disk(directory / f"{number}a" / "disk")
        install(guest, disk, instance.name)
        for what, real in (("own", disk), ("live", make_disk(directory / f"{number}b" / "disk"))):
            live = restorable(nodes, instance, disk, real) if what == "live" else None
            begun = time.perf_counter()
            if live is None:
                await nodes[0].driver.start(instance, [str(real)])
            else:
                await live.begin()
            await wait_for_text(nodes[0].console(instance), READY)
            taken[what].append(time.perf_counter() - begun)
            await (live.close() if live else nodes[0].driver.stop(instance, 0))
            nodes[0].console(instance).unlink(missing_ok=True)
    return {
        "own_boot_s": round(min(taken["own"]), 2),
        "live_restore_boot_s": round(min(taken["live"]), 2),
        "live_restore_boot_ratio": round(min(taken["live"]) / min(taken["own"]), 2),
    }


def _node(directory: Path) -> Node:
    paths = Paths(directory)
    paths.kvm.mkdir(parents=True)
    return Node(paths, KvmHypervisor(paths, run))


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller disk, one round")
    quick = parser.parse_args().quick
    size, rounds = (256, 1) if quick else (2048, 2)
    with tempfile.TemporaryDirectory(prefix="gnt-", dir="/var/tmp") as name:
        live = asyncio.run(running(*prepared(Path(name), size), size * MIB, rounds))
    with tempfile.TemporaryDirectory(prefix="gnt-", dir="/var/tmp") as name:
        Path(name).chmod(0o711)
        live |= asyncio.run(boots(Path(name), 1 + rounds))
    figures = {"size_mib": size, **backups(size, rounds), **live}
    print(json.dumps({**figures, "sync_ms": sync_ms(Path.cwd()), "spin_ms": spin_ms()}))


if __name__ == "__main__":
    main()
