"""What automatic recovery cannot do, for its status and for verify."""

import pytest
from msgspec.structs import replace

from ganeti.config.snapshot import Snapshot
from ganeti.units.cluster.recovery_findings import recovery_limits
from tests.unit.units.test_cluster_verify import instance, node, snapshot

PROTECTED = {"recovery": "failover"}


def limits(found: Snapshot, *, elects_master: bool = False) -> list[str]:
    return list(recovery_limits(found, elects_master=elects_master))


@pytest.mark.requirement("D10")
def test_embedded_state_needs_an_administrator_for_the_node_of_the_master() -> None:
    nodes = [node(number) for number in (1, 2, 3)]
    protected = replace(instance(), beparams=PROTECTED)
    (found,) = limits(snapshot([protected], nodes=nodes))
    assert "node1.example.com is the master" in found
    assert "gnt-cluster master-failover" in found
    assert limits(snapshot([protected], nodes=nodes), elects_master=True) == []


@pytest.mark.requirement("D10", "D11")
@pytest.mark.parametrize("elects_master", [False, True])
def test_two_nodes_have_no_automatic_failover(elects_master: bool) -> None:
    nodes = [node(1), node(2), replace(node(3), offline=True)]
    protected = replace(instance(), beparams=PROTECTED)
    (found,) = limits(snapshot([protected], nodes=nodes), elects_master=elects_master)
    assert found.startswith("the cluster has 2 online nodes, and automatic failover needs 3")


def test_cluster_without_failover_has_no_limits() -> None:
    restarted = replace(instance(), beparams={"recovery": "restart"})
    assert limits(snapshot([restarted], nodes=[node(1)])) == []
    assert limits(snapshot([instance()], nodes=[node(1)])) == []
