"""What automatic recovery cannot do, for its status and for verify."""

import pytest
from msgspec.structs import replace

from ganeti.config.snapshot import Snapshot
from ganeti.model.opcodes.cluster import OpClusterVerifyConfig
from ganeti.model.recovery import FenceMethod
from ganeti.recovery.status import NodeStatus, RecoveryStatus
from ganeti.units.cluster.findings import Finding
from ganeti.units.cluster.recovery_findings import recovery_findings, recovery_limits
from tests.support.recovery_status import FakeRecovery, node_status
from tests.support.units_cluster import NODES, Master, said
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


def findings(found: Snapshot, *nodes: NodeStatus) -> list[Finding]:
    status = RecoveryStatus(nodes)
    return list(recovery_findings(found, status, elects_master=True))


HOST = replace(instance(), primary_node=NODES[1], disk_template="sharedfile", beparams=PROTECTED)
THREE = [node(number) for number in (1, 2, 3)]


@pytest.mark.requirement("D7")
def test_node_without_a_working_method_is_an_error_with_the_remedy() -> None:
    unarmed = node_status(2, is_armed=False, why_unarmed="load the module softdog")
    (found,) = findings(snapshot([HOST], nodes=THREE), unarmed, node_status(3))
    assert (found.code, found.name, found.is_error) == ("ENODEFENCE", "node2.example.com", True)
    assert found.text.startswith("if it is lost, 1 of its instances stay down until")
    assert "its watchdog is not armed (load the module softdog)" in found.text
    assert "gnt-node modify --node-parameters fence_agent=AGENT" in found.text


@pytest.mark.requirement("D7")
def test_one_working_method_is_enough() -> None:
    by_power = node(2, ndparams={"fence_agent": "fence_ipmilan"})
    with_power = snapshot([HOST], nodes=[node(1), by_power, node(3)])
    assert findings(with_power, node_status(2, is_armed=False)) == []
    assert findings(snapshot([HOST], nodes=THREE), node_status(2)) == []
    only = node_status(2, methods=(FenceMethod.WATCHDOG,))
    assert findings(snapshot([HOST], nodes=THREE), only) == []


def test_node_that_is_never_fenced_is_a_warning() -> None:
    (found,) = findings(snapshot([HOST], nodes=THREE), node_status(2, methods=(), is_armed=False))
    assert not found.is_error
    assert "fence_methods is none" in found.text
    restarted = replace(HOST, beparams={"recovery": "restart"})
    assert findings(snapshot([restarted], nodes=THREE), node_status(2, methods=())) == []


@pytest.mark.requirement("D10")
def test_node_of_the_master_is_not_reported_because_it_never_fences_itself() -> None:
    on_master = replace(HOST, primary_node=NODES[0])
    assert findings(snapshot([on_master], nodes=THREE), node_status(1, methods=())) == []


@pytest.mark.parametrize(
    ("template", "count"), [("file", 1), ("plain", 1), ("drbd", 0), ("sharedfile", 0)]
)
def test_failover_without_effect_is_a_warning(template: str, count: int) -> None:
    guest = replace(HOST, disk_template=template)
    found = findings(snapshot([guest], nodes=THREE), node_status(2))
    assert [(one.code, one.is_error) for one in found] == [("EINSTANCELAYOUT", False)] * count


@pytest.mark.virtual_time
@pytest.mark.requirement("D7", "D13")
async def test_verify_reports_what_waits_for_an_administrator(master: Master) -> None:
    view = await master.run(OpClusterVerifyConfig(error_codes=True))
    assert "automatic recovery" not in said(view)
    object.__setattr__(master.services, "recovery", FakeRecovery())
    view = await master.run(OpClusterVerifyConfig(error_codes=True))
    assert "ERROR:ENODEFENCE:node:node2.example.com:is lost and not fenced" in said(view)
    assert "gnt-node fenced --confirm node2.example.com" in said(view)
    assert "ERROR:EINSTANCEDOWN:instance:db1.example.com:automatic recovery has given it" in said(
        view
    )
    assert "gnt-instance start db1.example.com" in said(view)
