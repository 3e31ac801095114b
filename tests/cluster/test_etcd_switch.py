"""The state of a running cluster moves to etcd and back, under load; the command may die at any moment."""

import subprocess
import time
from collections.abc import Iterator

import pytest

from ganeti.store.settings import state_settings
from tests.support.etcd_servers import require_etcd
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.masters import NODES, NOT_MASTER, Load, is_follower, master_of

pytestmark = [pytest.mark.cluster, pytest.mark.in_turn, pytest.mark.timeout(500)]
SETTLED_S = 90.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    require_etcd()
    with local_cluster(nodes=3) as made:
        yield made


def kinds(cluster: LocalCluster) -> set[str]:
    """Where the candidates think that the state is."""
    return {state_settings(cluster.node(node).paths).kind for node in NODES}


def moved(cluster: LocalCluster, kind: str) -> None:
    """Move the state, on the master, and wait until all candidates have it there."""
    master = master_of(cluster)
    done = cluster.run("gnt-cluster", "modify", f"--state={kind}", node=master, timeout_s=200)
    assert done.status == 0, done.out + done.err
    wait_until(
        lambda: kinds(cluster) == {kind}, "all candidates know where the state is", SETTLED_S
    )
    for node in NODES:
        if node != master:
            wait_until(
                lambda one=node: is_follower(cluster, one),  # type: ignore[misc] # a default
                "it follows",
                SETTLED_S,
            )


def at_the_head(cluster: LocalCluster) -> int | None:
    """The node that follows no other, if there is one at this moment."""

    def follows(node: int) -> bool:
        # As a command says it, which also knows the master where a daemon is being started.
        return cluster.run("gnt-cluster", "master-ping", node=node).status == NOT_MASTER

    return next((node for node in NODES if not follows(node)), None)


def killed_after(cluster: LocalCluster, kind: str, seconds: float) -> None:
    """Begin to move the state, and die."""
    node = cluster.node(master_of(cluster))
    with subprocess.Popen(
        node.words(["gnt-cluster", "modify", f"--state={kind}"]),
        env=node.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        time.sleep(seconds)
        process.kill()


@pytest.mark.requirement("G1", "G2", "G8")
@pytest.mark.parametrize("seconds", [pytest.param(0.0, marks=pytest.mark.soak), 2.5])
def test_the_state_moves_to_etcd_and_back_under_load(cluster: LocalCluster, seconds: float) -> None:
    for kind in ("etcd", "embedded"):
        with Load(cluster, count=2) as load:
            if seconds:
                killed_after(cluster, kind, seconds)
                # For a moment all may follow: a master is being elected.
                wait_until(lambda: at_the_head(cluster) is not None, "a node leads", SETTLED_S)
                master = at_the_head(cluster) or NODES[0]
                done = cluster.run(
                    "gnt-cluster", "modify", f"--state={kind}", node=master, timeout_s=200
                )
                assert done.status == 0, done.out + done.err
                said = cluster.run("gnt-cluster", "queue", "info", node=master).out
                assert "unset" in said, "the repeated command leaves the queue drained"
            moved(cluster, kind)
            load.judge(master_of(cluster))
        done = cluster.run("gnt-cluster", "verify", node=master_of(cluster), timeout_s=120)
        assert done.status == 0, done.out + done.err


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.requirement("G1", "G2", "G8")
@pytest.mark.parametrize("tenths", range(5, 65, 5))
def test_the_state_moves_though_the_command_dies_at_any_moment(
    cluster: LocalCluster, tenths: int
) -> None:
    test_the_state_moves_to_etcd_and_back_under_load(cluster, tenths / 10)
