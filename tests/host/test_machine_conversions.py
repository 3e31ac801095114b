"""A guest in a node machine runs on while its disk moves between real DRBD, LVM and a file, under a real master."""

from collections.abc import Iterator

import pytest

from tests.support.machine_cluster import MachineCluster, machine_cluster
from tests.support.machine_guests import Attendant, add_guest, attend, wait_serves
from tests.support.twins import uuids

pytestmark = [pytest.mark.host, pytest.mark.soak, pytest.mark.timeout(7200)]

WEB = "web1.example.com"
LONG_S = 1800
TEMPLATES = "--enabled-disk-templates=drbd,plain,diskless,file"


@pytest.fixture(scope="module")
def cluster() -> Iterator[MachineCluster]:
    with machine_cluster(2, "kvm") as one:
        one.ok("gnt-cluster", "modify", TEMPLATES)
        add_guest(one, WEB, "node2:node3", "recovery=none")
        for number in one.numbers:
            attend(one, number)
        yield one


@pytest.mark.requirement("G1", "G11")
@pytest.mark.parametrize(
    "words", [("plain",), ("file",), ("drbd", "--node=node3")], ids=lambda words: words[0]
)
def test_disk_of_a_running_guest_moves(cluster: MachineCluster, words: tuple[str, ...]) -> None:
    attendant = Attendant(cluster, uuids(cluster))
    wait_serves(attendant, WEB)
    before = attendant.last[WEB]
    done = cluster.ok("gnt-instance", "modify", "-t", *words, WEB, timeout_s=LONG_S)
    assert "the guest was paused for" in done.out
    wait_serves(attendant, WEB)
    assert attendant.first.get(WEB, 0) <= before  # it has not booted again
    assert cluster.value("instance", WEB, "disk_template") == words[0]
    if words[0] == "drbd":
        said = cluster.ok("gnt-instance", "disk-status", WEB).out
        assert said.count("UpToDate, peer") == 2
