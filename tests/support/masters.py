"""Who is the master of a virtual cluster, what it promises, and whether that is kept."""

import contextlib
import functools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from ganeti.base.errors import GanetiError, NotMaster
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import RAPI
from ganeti.clients.luxi import LuxiClient
from ganeti.store.stored_tail import read_stored_tail
from tests.support.etcd_servers import require_etcd
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.patience import patience

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0, "no_locks": True}
NOT_MASTER = 11
"""How commands end on a node that is a follower."""
NODES = (1, 2, 3)
FAILOVER_S = 15.0
"""When another node is the master, where the state is in etcd (G19)."""
BUSY_S = 45.0
"""How much later things may be on a machine whose processors have other work too."""


def job_ids(paths: Paths) -> set[int]:
    """All jobs that the master on a node knows."""
    with LuxiClient(paths, timeout_s=20) as client:
        return {int(row[0]) for row in client.call("QueryJobs", None, ["id"])}


def serves(cluster: LocalCluster, node: int) -> bool:
    """Whether a node says that it is the master."""
    return _answer(cluster, node) == 0


def is_follower(cluster: LocalCluster, node: int) -> bool:
    """Whether the daemon of a node says that another one is the master."""
    return _answer(cluster, node) == NOT_MASTER


def _answer(cluster: LocalCluster, node: int) -> int:
    """How `gnt-cluster master-ping` would end there; 1 without a daemon. A program each time would cost more."""
    try:
        with LuxiClient(cluster.node(node).paths, timeout_s=20) as client:
            client.config_values("cluster_name")
    except NotMaster as err:
        return 1 if isinstance(err.__cause__, OSError) else NOT_MASTER
    except (GanetiError, OSError):
        return 1
    return 0


def fail_over(cluster: LocalCluster, node: int, *options: str) -> str:
    """Make a node the master within the time that is promised (G19); what was said."""
    begun = time.monotonic()
    done = cluster.run("gnt-cluster", "master-failover", *options, node=node)
    assert done.status == 0, done.out + done.err
    assert time.monotonic() - begun < 60 * patience()
    return done.out


class FrozenMaster:
    """Clients of a master that is about to be frozen, connected before that."""

    def __init__(self, cluster: LocalCluster, node: int) -> None:
        self._clients = [LuxiClient(cluster.node(node).paths, timeout_s=30) for _ in range(4)]
        for client in self._clients:
            client.config_values("cluster_name")
        self._asking: list[threading.Thread] = []
        self.stale: list[set[int]] = []

    def ask(self, new_job: int) -> None:
        """Have each client ask again and again; their first requests wait for a master that is frozen now."""
        self._asking = [
            threading.Thread(target=self._ask, args=(client, new_job)) for client in self._clients
        ]
        for thread in self._asking:
            thread.start()

    def _ask(self, client: LuxiClient, new_job: int) -> None:
        with contextlib.suppress(GanetiError, OSError), client:
            while True:
                found = {int(row[0]) for row in client.call("QueryJobs", None, ["id"])}
                if new_job not in found:
                    self.stale.append(found)

    def judge(self) -> None:
        """Fail if one was answered without a job that another master had taken by then."""
        for thread in self._asking:
            thread.join(60)
        assert not self.stale, f"stale answers, of jobs {self.stale[:3]}"


def have_one_history(cluster: LocalCluster, *nodes: int) -> bool:
    """Whether the states of these nodes end alike."""
    found = [read_stored_tail(cluster.node(node).paths.state) for node in nodes]
    return all(one is not None and one == found[0] for one in found)


def lose_state(cluster: LocalCluster, node: int) -> None:
    """The database of a node whose master daemon is down is gone; its register stays."""
    path = cluster.node(node).paths.state
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def master_of(cluster: LocalCluster, *nodes: int) -> int:
    """The node that serves as the master, once there is one."""
    found: list[int] = []

    def is_so() -> bool:
        found[:] = [node for node in nodes or NODES if serves(cluster, node)]
        return bool(found)

    wait_until(is_so, "a master is elected", FAILOVER_S + BUSY_S)
    return found[0]


def first_job(cluster: LocalCluster, *nodes: int) -> int:
    """Return once one of the nodes has acknowledged a job; which one."""
    found: list[int] = []

    def is_so() -> bool:
        for node in nodes:
            with (
                contextlib.suppress(GanetiError, OSError),
                LuxiClient(cluster.node(node).paths, timeout_s=5) as client,
            ):
                client.call("SubmitJob", [DELAY])
                found.append(node)
                return True
        return False

    wait_until(is_so, "a master takes a job", FAILOVER_S + BUSY_S)
    return found[0]


def verified(cluster: LocalCluster) -> None:
    """The check of the whole cluster finds nothing, soon."""

    def is_so() -> bool:
        done = cluster.run("gnt-cluster", "verify", node=master_of(cluster))
        return done.status == 0 and "etcd server" not in done.out  # nor has one yet to get its vote

    wait_until(is_so, "verify finds nothing", BUSY_S)


@contextlib.contextmanager
def etcd_cluster(*options: str) -> Iterator[LocalCluster]:
    """Three nodes whose servers of etcd vote; skips the test where etcd is not installed."""
    require_etcd()
    with local_cluster("--state", "etcd", *options, nodes=3) as made:
        verified(made)
        yield made


class Client(threading.Thread):
    """Submits jobs to whoever is the master, until it is told to end; remembers what was promised."""

    def __init__(self, paths: list[Paths], choose: Callable[[int], int], pause_s: float) -> None:
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
        self.join(BUSY_S)
        assert not self.is_alive(), "a client waits for an answer that does not come"
        return self.acknowledged


class Load:
    """Clients that submit jobs to whoever of some nodes is the master, for as long as the block runs."""

    def __init__(
        self,
        cluster: LocalCluster,
        nodes: Sequence[int] = NODES,
        *,
        count: int = 3,
        pause_s: float = 0.005,
        seed: int = 0,
    ) -> None:
        self._cluster = cluster
        paths = [cluster.node(node).paths for node in nodes]
        self._clients = [
            Client(paths, random.Random(seed + number).randrange, pause_s)
            for number in range(count)
        ]

    def __enter__(self) -> Self:
        for client in self._clients:
            client.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.end()

    def end(self) -> list[int]:
        """All that was promised; may be repeated. The ids that each client was given grow."""
        promised = [client.end() for client in self._clients]
        for one in promised:
            assert one == sorted(set(one))
        together = [job for one in promised for job in one]
        assert len(together) == len(set(together))
        return together

    def judge(self, master: int) -> None:
        """Every client is served, and what was acknowledged is kept; ends the clients."""
        are_served = functools.partial(all, [client.acknowledged for client in self._clients])
        wait_until(are_served, "every client is served", BUSY_S)
        promised = set(self.end())
        lost = promised - job_ids(self._cluster.node(master).paths)
        assert not lost, f"acknowledged and lost: {sorted(lost)[:10]}"


@contextlib.contextmanager
def rest_cluster(users: str) -> Iterator[LocalCluster]:
    """Three candidates that serve REST for these lines of a users file, whichever is the master."""
    with local_cluster("--rapi") as made:
        for number in (1, 2, 3):
            path = made.node(number).paths.rapi_users
            path.write_text(users)
            path.chmod(0o600)
        assert made.run("gnt-cluster", "redist-conf", node=1).status == 0
        wait_until(lambda: made.runs(RAPI), "the REST server runs")
        yield made
