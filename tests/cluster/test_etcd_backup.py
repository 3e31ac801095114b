"""Backups go from one back end into the other: real daemons on three nodes."""

import shutil
from collections.abc import Iterator

import pytest

from ganeti.base.state_kinds import ETCD_SERVER
from ganeti.bootstrap.daemons import MASTERD
from ganeti.store.etcd.files import EtcdFiles
from ganeti.store.settings import state_settings
from tests.support.etcd_servers import require_etcd
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.masters import NODES, is_follower, master_of

pytestmark = [pytest.mark.cluster, pytest.mark.in_turn, pytest.mark.timeout(500)]
SETTLED_S = 120.0


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    require_etcd()
    with local_cluster(nodes=3) as made:
        yield made


def ok(cluster: LocalCluster, node: int, *words: str) -> str:
    done = cluster.run(*words, node=node, timeout_s=SETTLED_S)
    assert done.status == 0, f"{words}: {done.out}{done.err}"
    return done.out


def all_are(cluster: LocalCluster, kind: str, master: int) -> None:
    """Every candidate has the state there, and follows."""

    def is_so() -> bool:
        if any(state_settings(cluster.node(node).paths).kind != kind for node in NODES):
            return False
        others = [node for node in NODES if node != master]
        return all(cluster.runs(MASTERD, n) and is_follower(cluster, n) for n in others)

    wait_until(is_so, f"all candidates have the state in {kind}", SETTLED_S)


def masters_end(cluster: LocalCluster, *, last: int) -> None:
    """The master last: a new one starts the daemon on the others."""
    for node in [*[node for node in NODES if node != last], last]:
        cluster.kill(MASTERD, node)


def tags(cluster: LocalCluster, node: int) -> list[str]:
    return ok(cluster, node, "gnt-cluster", "list-tags").split()


@pytest.mark.requirement("G1", "G8")
def test_a_backup_goes_into_the_other_back_end_both_ways(cluster: LocalCluster) -> None:
    of_embedded, of_etcd = (str(cluster.directory / name) for name in ("one", "two"))
    ok(cluster, 1, "gnt-cluster", "add-tags", "embedded")
    ok(cluster, 1, "gnt-cluster", "backup", of_embedded)
    ok(cluster, 1, "gnt-cluster", "add-tags", "after")
    ok(cluster, 1, "gnt-cluster", "modify", "--state=etcd")
    all_are(cluster, "etcd", master_of(cluster))

    master = master_of(cluster)
    used = int(ok(cluster, master, "gnt-debug", "delay", "0", "--submit").split()[-1])
    masters_end(cluster, last=master)
    ok(cluster, master, "gnt-cluster", "restore", "--yes-do-it", of_embedded)
    assert master_of(cluster) == master
    assert tags(cluster, master) == ["embedded"]
    later = int(ok(cluster, master, "gnt-debug", "delay", "0", "--submit").split()[-1])
    assert later > used + 100_000
    ok(cluster, master, "gnt-cluster", "add-tags", "etcd")
    ok(cluster, master, "gnt-cluster", "backup", of_etcd)
    all_are(cluster, "etcd", master)

    # All servers of etcd are lost: the backup is the state of the embedded store from now on.
    masters_end(cluster, last=master)
    for node in NODES:
        cluster.kill(ETCD_SERVER.daemon, node)
        shutil.rmtree(EtcdFiles(cluster.node(node).paths).directory)
    cluster.node(master).paths.state_settings.unlink()
    ok(cluster, master, "gnt-cluster", "restore", "--yes-do-it", of_etcd)
    assert sorted(tags(cluster, master)) == ["embedded", "etcd"]
    assert int(ok(cluster, master, "gnt-debug", "delay", "0", "--submit").split()[-1]) > later
    all_are(cluster, "embedded", master)
