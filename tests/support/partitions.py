"""A virtual cluster whose nodes live in network namespaces, with cables that can be pulled."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

from ganeti.bootstrap.daemons import MASTERD
from ganeti.vcluster.network import host_end
from tests.support.local_cluster import LocalCluster, local_cluster


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
        yield made
