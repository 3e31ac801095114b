"""A virtual cluster whose nodes live in network namespaces, with cables that can be pulled."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

from ganeti.base.errors import GanetiError
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import MASTERD
from ganeti.clients.luxi import LuxiClient
from ganeti.store.register import RegisterFile
from ganeti.store.stored_tail import read_stored_tail
from ganeti.vcluster.network import host_end
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0, "no_locks": True}
NOT_MASTER = 11


def cable(cluster: LocalCluster, node: int, state: str) -> None:
    """`down` pulls the cable of a node, `up` puts it back."""
    command = ["ip", "link", "set", host_end(cluster.node(node)), state]
    subprocess.run(command, check=True, capture_output=True)


def start_inside(cluster: LocalCluster, node: int) -> None:
    """Start the master daemon of a node in its namespace, as its service manager would."""
    one = cluster.node(node)
    subprocess.run(
        ["setsid", "--fork", *one.words([MASTERD])],
        check=True,
        env=one.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def all_in_sync_set(cluster: LocalCluster, count: int, node: int = 1) -> None:
    """Wait until the last registered sync set has as many members as that."""

    def is_so() -> bool:
        register = RegisterFile(cluster.node(node).paths.register).read()
        accepted = register.accepted if register else None
        return accepted is not None and len(accepted.sync_set) == count

    wait_until(is_so, f"{count} members in the sync set", 60)


def job_ids(paths: Paths) -> set[int]:
    """All jobs that the master on a node knows."""
    with LuxiClient(paths, timeout_s=20) as client:
        return {int(row[0]) for row in client.call("QueryJobs", None, ["id"])}


def serves(cluster: LocalCluster, node: int) -> bool:
    """Whether a node says that it is the master."""
    return cluster.run("gnt-cluster", "master-ping", node=node).status == 0


def have_one_history(cluster: LocalCluster, *nodes: int) -> bool:
    """Whether the states of these nodes end alike."""
    found = [read_stored_tail(cluster.node(node).paths.state) for node in nodes]
    return all(one is not None and one == found[0] for one in found)


class Client(threading.Thread):
    """Submits jobs to whoever is the master, until it is told to end; remembers what was promised."""

    def __init__(self, paths: list[Paths], choose: Callable[[int], int]) -> None:
        super().__init__(daemon=True)
        self._paths, self._choose = paths, choose
        self._ends = threading.Event()
        self.acknowledged: list[int] = []

    def run(self) -> None:
        while not self._ends.is_set():
            paths = self._paths[self._choose(len(self._paths))]
            with (
                contextlib.suppress(GanetiError, OSError),
                LuxiClient(paths, timeout_s=5) as client,
            ):
                while not self._ends.is_set():
                    self.acknowledged.append(int(client.call("SubmitJob", [DELAY])))
                    time.sleep(0.02)
            time.sleep(0.05)

    def end(self) -> list[int]:
        self._ends.set()
        self.join(30)
        return self.acknowledged


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Processes that hang (SIGSTOP) for as long as the block runs."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def cluster_with_cables(nodes: int = 3) -> Iterator[LocalCluster]:
    """A cluster in network namespaces (root), all of its nodes candidates of one sync set."""
    with local_cluster("--netns", nodes=nodes) as made:
        all_in_sync_set(made, min(nodes, 3))
        yield made
