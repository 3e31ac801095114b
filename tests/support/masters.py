"""Who is the master of a virtual cluster, what it promises, and whether that is kept."""

import contextlib
import threading
import time
from collections.abc import Callable

from ganeti.base.errors import GanetiError
from ganeti.base.paths import Paths
from ganeti.clients.luxi import LuxiClient
from ganeti.store.register import RegisterFile
from ganeti.store.stored_tail import read_stored_tail
from tests.support.local_cluster import LocalCluster, wait_until

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0, "no_locks": True}
NOT_MASTER = 11
"""How commands end on a node that is a follower."""


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


def is_follower(cluster: LocalCluster, node: int) -> bool:
    """Whether a node says that another one is the master."""
    return cluster.run("gnt-cluster", "master-ping", node=node).status == NOT_MASTER


def fail_over(cluster: LocalCluster, node: int, *options: str) -> str:
    """Make a node the master within the time that is promised (G19); what was said."""
    begun = time.monotonic()
    done = cluster.run("gnt-cluster", "master-failover", *options, node=node, timeout_s=95)
    assert done.status == 0, done.out + done.err
    assert time.monotonic() - begun < 60
    return done.out


def have_one_history(cluster: LocalCluster, *nodes: int) -> bool:
    """Whether the states of these nodes end alike."""
    found = [read_stored_tail(cluster.node(node).paths.state) for node in nodes]
    return all(one is not None and one == found[0] for one in found)


def lose_state(cluster: LocalCluster, node: int) -> None:
    """The database of a node whose master daemon is down is gone; its register stays."""
    path = cluster.node(node).paths.state
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


class Client(threading.Thread):
    """Submits jobs to whoever is the master, until it is told to end; remembers what was promised."""

    def __init__(
        self,
        paths: list[Paths],
        choose: Callable[[int], int] = lambda count: 0,
        pause_s: float = 0.02,
    ) -> None:
        super().__init__(daemon=True)
        self._paths, self._choose, self._pause_s = paths, choose, pause_s
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
                    time.sleep(self._pause_s)
            time.sleep(0.05)

    def end(self) -> list[int]:
        self._ends.set()
        self.join(30)
        return self.acknowledged
