"""The answer of QueryHaStatus, and its figures."""

from ganeti.api.ha_status import HaStatus
from ganeti.recovery.status import RecoveryStatus
from tests.support.recovery_status import stuck_status
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
