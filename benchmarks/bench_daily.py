"""Daily work: the clone of an instance against `cp --sparse=always` of its disk.

`clone_1g_ratio`: seconds of a whole `gnt-instance clone` of an instance that is down, within a node, over those of
`cp` to the same file system. The disk has 1 GiB: random data; every eighth part of 16 MiB is a hole. Both are synced at the
end. The fastest of some of each, in turns. `clone_nodes_ratio`: the same for a clone on another node of this host.
"""

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from local_cluster import local_cluster, run_job
from machine import spin_ms, sync_ms

from ganeti.vcluster.layout import VirtualCluster

MIB, PART = 1024 * 1024, 16
NAME, CLONE = "source.example.com", "clone.example.com"
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


def seconds(act: Callable[[], object], undo: Callable[[], object]) -> float:
    """Return the time of an act, which is undone."""
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


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller disk, one round")
    quick = parser.parse_args().quick
    size, rounds = (256, 1) if quick else (1024, 4)
    figures = {"size_mib": size, **clones(size, rounds)}
    print(json.dumps({**figures, "sync_ms": sync_ms(Path.cwd()), "spin_ms": spin_ms()}))


if __name__ == "__main__":
    main()
