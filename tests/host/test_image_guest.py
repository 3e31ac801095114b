"""A real guest whose disk is an image of the cluster, also of a template that is cloned."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.vcluster.layout import load
from ganeti.vcluster.lifecycle import Commands
from ganeti.vcluster.tiny_image import import_tiny
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.tiny_guest import build_tiny_guest, heartbeats, said

pytestmark = [pytest.mark.host, pytest.mark.in_turn, pytest.mark.timeout(300)]

NAME, CLONE = "web1.example.com", "web2.example.com"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    guest = build_tiny_guest()
    with local_cluster("--hypervisor", "kvm", "--guest", str(guest), nodes=2) as made:
        found = load(made.directory)
        assert found is not None
        import_tiny(found, Commands(found, print))
        yield made


def beats(cluster: LocalCluster, name: str) -> None:
    log = Path(cluster.value("instance", name, "console_log"))
    wait_until(lambda: len(heartbeats(log)) > 1, f"{name} lives: {said(log)[-300:]}", 120)


def test_guest_boots_from_an_image_on_another_node_and_as_a_clone(cluster: LocalCluster) -> None:
    small = ["-B", "memory=96m", "--no-nics"]
    assert cluster.value("image", "tiny", "node_list") == "node1.vcluster.test"
    cluster.ok(
        "gnt-instance", "add", "--image=tiny", "-t", "file", "-n", "node2", *small, NAME, timeout_s=120
    )  # fmt: skip
    beats(cluster, NAME)
    assert cluster.value("image", "tiny", "node_cnt") == "2"
    cluster.ok("gnt-instance", "shutdown", "--timeout=0", NAME)
    cluster.ok("gnt-instance", "modify", "--template=yes", NAME)
    assert "it is a template" in cluster.fails("gnt-instance", "startup", NAME)
    cluster.ok("gnt-instance", "clone", "--start", NAME, CLONE, timeout_s=120)
    beats(cluster, CLONE)
    store = cluster.node(2).paths.image_store
    (dump,) = store.glob("image-*/disk0.raw")
    with dump.open("r+b") as file:
        file.write(b"flipped")
    found = cluster.run("gnt-cluster", "verify")
    assert found.status == 1
    assert "gnt-image copy tiny node2" in found.out
    cluster.ok("gnt-image", "copy", "tiny", "node2")
    cluster.ok("gnt-cluster", "verify")
    for name in (NAME, CLONE):
        cluster.ok("gnt-instance", "remove", "-f", "--shutdown-timeout=0", name)
    cluster.ok("gnt-image", "remove", "-f", "tiny")
    assert [list(cluster.node(number).paths.image_store.iterdir()) for number in (1, 2)] == [[], []]
