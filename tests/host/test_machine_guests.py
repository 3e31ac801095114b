"""A guest of KVM in nodes that are machines, on a real DRBD disk: it moves live, and loses no write that was acknowledged."""

from collections.abc import Iterator

import pytest

from tests.support.local_cluster import wait_until
from tests.support.machine_cluster import MachineCluster, machine_cluster
from tests.support.machine_guests import (
    BOOT_S,
    Attendant,
    add_guest,
    attend,
    wait_serves,
)
from tests.support.twins import uuids

pytestmark = [pytest.mark.host, pytest.mark.soak, pytest.mark.timeout(7200)]

WEB = "web1.example.com"


@pytest.fixture(scope="module")
def cluster() -> Iterator[MachineCluster]:
    with machine_cluster(2, "kvm") as made:
        yield made


def test_guest_on_a_mirrored_disk_moves_live_and_loses_no_write(cluster: MachineCluster) -> None:
    add_guest(cluster, WEB, "node2:node3", "recovery=none")
    for number in cluster.numbers:
        attend(cluster, number)
    attendant = Attendant(cluster, uuids(cluster))
    wait_serves(attendant, WEB)
    before = attendant.last[WEB]
    cluster.ok("gnt-instance", "migrate", "-f", WEB, timeout_s=BOOT_S)
    wait_serves(attendant, WEB)
    assert attendant.present[WEB] == {3}
    assert attendant.first.get(WEB, 0) <= before  # it has not booted again
    cluster.ok("gnt-instance", "shutdown", "--timeout=0", WEB, timeout_s=BOOT_S)
    wait_until(lambda: _is_off(attendant), "the guest has ended", BOOT_S)
    last = attendant.last_before[WEB]
    cluster.ok("gnt-instance", "startup", WEB, timeout_s=BOOT_S)
    wait_serves(attendant, WEB)
    # An entry may be on the disk although its end was not told.
    assert before < last < attendant.first[WEB] <= last + 2


def _is_off(attendant: Attendant) -> bool:
    attendant.catch_up()
    return not attendant.present[WEB]
