from pathlib import Path

import pytest

from ganeti.vcluster import network
from ganeti.vcluster.layout import VirtualCluster, plan
from ganeti.vcluster.lifecycle import init_command


def planned(
    monkeypatch: pytest.MonkeyPatch, uid: int, hypervisor: str, *, netns: bool
) -> VirtualCluster:
    monkeypatch.setattr("os.geteuid", lambda: uid)
    return plan(Path("/tmp/x"), 2, hypervisor=hypervisor, netns=netns, guest=None)


@pytest.mark.parametrize("netns", [False, True])
def test_guests_of_kvm_have_a_bridge_which_is_the_default_link(
    monkeypatch: pytest.MonkeyPatch, netns: bool
) -> None:
    cluster = planned(monkeypatch, 0, "kvm", netns=netns)
    bridge = cluster.guest_bridge
    assert 0 < len(bridge) <= 15
    assert bridge != cluster.bridge
    made = [" ".join(words) for words in network.guest_bridges(cluster)]
    add = f"link add {bridge} type bridge"
    assert [one for one in made if add in one] == (
        [f"ip -n {node.namespace} {add}" for node in cluster.nodes] if netns else [f"ip {add}"]
    )
    assert f"--nic-parameters=link={bridge}" in init_command(cluster)
    assert ["ip", "link", "del", bridge] in network.teardown(cluster)


@pytest.mark.parametrize(("uid", "hypervisor"), [(0, "fake"), (1000, "kvm")])
def test_there_is_no_bridge_where_none_is_used_or_can_be_made(
    monkeypatch: pytest.MonkeyPatch, uid: int, hypervisor: str
) -> None:
    cluster = planned(monkeypatch, uid, hypervisor, netns=False)
    assert network.guest_bridges(cluster) == network.teardown(cluster) == []
    assert not any("nic-parameters" in word for word in init_command(cluster))
