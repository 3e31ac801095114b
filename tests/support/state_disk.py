"""A cluster of one node whose state lies on a file system of its own, which a test can break."""

import contextlib
import subprocess
from collections.abc import Iterator

import pytest

from ganeti.vcluster.layout import load
from tests.support.local_cluster import LocalCluster, short_directory, vcluster

STATE = "c/node1/var/lib/ganeti"
"""Where the only node of `cluster_on` keeps its state, below the directory that is given."""
FILLER = "filler"
"""What a test fills the file system with; removed before the cluster is ended."""


@contextlib.contextmanager
def cluster_on(*words: str) -> Iterator[LocalCluster]:
    """One node whose state lies on what `mount WORDS` mounts; skips the test where that is not possible."""
    with short_directory() as parent:
        data = parent / STATE
        data.mkdir(parents=True)
        mount = ["mount", *words, str(data)]
        done = subprocess.run(mount, check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
        try:
            vcluster(parent / "c", "up", "--no-image", "--nodes", "1")
            made = load(parent / "c")
            assert made is not None
            yield LocalCluster(made)
            for path in data.glob(f"{FILLER}*"):
                path.unlink()
        finally:
            subprocess.run(["umount", "--lazy", str(data)], check=True)
            vcluster(parent / "c", "down")


@contextlib.contextmanager
def cluster_on_tmpfs(options: str) -> Iterator[LocalCluster]:
    """One node whose state lies in memory, with a limit of bytes or inodes."""
    with cluster_on("-t", "tmpfs", "-o", options, "gnt-test") as made:
        yield made
