"""The answer of QueryHaStatus, and its figures."""

from ganeti.api.ha_status import HaStatus
from ganeti.model.recovery import NodeState, Recovery
from ganeti.recovery.status import RecoveryStatus
from tests.support.recovery_status import instance_status, node_status, stuck_status
from tests.unit.query.cluster import snapshot


def of(status: RecoveryStatus) -> HaStatus:
    return HaStatus(snapshot, lambda: status, elects_master=False)


def test_figures_have_one_series_for_each_state() -> None:
    figures, nothing = of(stuck_status()).figures(), of(RecoveryStatus()).figures()
    assert figures["recovery_nodes"]["stuck"] == 1
    assert figures["recovery_nodes"]["healthy"] == 2
    assert figures["recovery_instances"]["given up"] == 1
    assert (figures["recovery_alarms"], figures["recovery_unarmed_nodes"]) == (1, 1)
    assert {name: len(one) for name, one in nothing.items() if isinstance(one, dict)} == {
        "recovery_nodes": 6,
        "recovery_instances": 5,
    }


def test_answer_is_sorted_by_name() -> None:
    found = of(stuck_status()).answer()
    assert [one["name"] for one in found["nodes"]] == [f"node{n}.example.com" for n in (1, 2, 3)]
    assert [one["name"] for one in found["instances"]] == ["db1.example.com", "web1.example.com"]


def test_instances_of_a_lost_node_say_what_they_wait_for() -> None:
    nodes = (node_status(2, state=NodeState.STUCK), node_status(3, state=NodeState.FENCED))
    guests = (
        instance_status("a", node=nodes[0].name),
        instance_status("b", node=nodes[0].name, recovery=Recovery.RESTART),
        instance_status("c", node=nodes[1].name),
        instance_status("d", node=nodes[0].name, why="its guest has crashed"),
    )
    found = of(RecoveryStatus(nodes, guests)).answer()["instances"]
    assert [one["why"] for one in found] == [
        "its node is stuck; it is started again when the node is fenced",
        "its node is stuck; it is started again when the node returns",
        "",
        "its guest has crashed",
    ]
