"""When instances were down, and the reason of each second."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.whatif.history import (
    GuestChange,
    GuestState,
    History,
    JobRecord,
    NodeChange,
    OpRecord,
)
from ganeti.whatif.outages import Outage, Reason, outages
from tests.unit.whatif import histories

PROTECTED = frozenset({"web1", "web2", "web3"})


def by_instance() -> dict[str, Outage]:
    return {one.instance: one for one in outages(histories.history(), PROTECTED)}


def test_recovered_instance_has_a_reason_for_each_second() -> None:
    web1 = by_instance()["web1"]
    assert (web1.began, web1.ended, web1.node, web1.new_node) == (100.0, 157.0, "node1", "node2")
    assert web1.by_reason() == {
        "detection": 10.0,
        "fencing": 20.0,
        "waiting for its turn": 2.0,
        "job queue": 0.5,
        "locks": 0.5,
        "work of its job": 2.0,
        "start": 2.0,
        "boot": 20.0,
    }


def test_instance_waits_for_its_turn_while_others_are_recovered() -> None:
    assert by_instance()["web2"].by_reason()["waiting for its turn"] == 10.0


def test_instance_without_room_waits_for_another_attempt_to_the_end() -> None:
    web3 = by_instance()["web3"]
    assert not web3.is_over
    assert web3.parts[-1].reason is Reason.RETRY
    assert web3.parts[-1].ended == 600.0


def test_unprotected_instance_waits_for_its_node() -> None:
    assert by_instance()["web4"].by_reason() == {"its node is down": 500.0}


def test_instance_of_a_node_that_is_back_waits_for_the_watcher() -> None:
    history = histories.history()
    history.nodes.append(NodeChange(300.0, "node1", "up"))
    found = {one.instance: one for one in outages(history, PROTECTED)}
    assert found["web4"].by_reason() == {
        "its node is down": 200.0,
        "waiting for the watcher": 300.0,
    }


def test_guest_that_its_node_ends_without_a_lease_has_that_reason() -> None:
    history = History(ended=100.0, before=(), after=())
    history.guests += [
        GuestChange(0.0, "web1", "node1", GuestState.UP),
        GuestChange(10.0, "web1", "node1", GuestState.DOWN),
    ]
    history.nodes.append(NodeChange(10.0, "node1", "lease over"))
    [outage] = outages(history, PROTECTED)
    assert outage.by_reason() == {"the lease of its node was over": 90.0}


def test_live_migration_is_no_outage() -> None:
    history = History(ended=100.0, before=(), after=())
    history.guests += [
        GuestChange(0.0, "web1", "node1", GuestState.UP),
        GuestChange(50.0, "web1", "node2", GuestState.MOVED),
    ]
    assert outages(history, frozenset()) == []


def test_guest_that_ends_while_it_boots_makes_one_outage() -> None:
    history = History(ended=100.0, before=(), after=())
    history.guests += [
        GuestChange(0.0, "web1", "node1", GuestState.UP),
        GuestChange(10.0, "web1", "node1", GuestState.DOWN),
        GuestChange(20.0, "web1", "node2", GuestState.STARTS, 2.0),
        GuestChange(25.0, "web1", "node2", GuestState.DOWN),
        GuestChange(40.0, "web1", "node3", GuestState.STARTS, 2.0),
        GuestChange(60.0, "web1", "node3", GuestState.UP),
    ]
    [outage] = outages(history, frozenset())
    assert (outage.began, outage.ended, outage.new_node) == (10.0, 60.0, "node3")


@given(
    times=st.lists(st.floats(0, 500), min_size=8, max_size=8),
    states=st.lists(
        st.sampled_from(["failed", "cut off", "up", "fencing", "fenced", "stuck"]), max_size=5
    ),
    is_protected=st.booleans(),
)
def test_parts_cover_every_outage_exactly(
    times: list[float], states: list[str], is_protected: bool
) -> None:
    ordered = sorted(times)
    history = History(ended=600.0, before=(), after=())
    history.guests += [
        GuestChange(-60.0, "web1", "node1", GuestState.UP),
        GuestChange(ordered[0], "web1", "node1", GuestState.DOWN),
        GuestChange(ordered[6], "web1", "node2", GuestState.STARTS, 2.0),
    ]
    history.nodes += [
        NodeChange(at, "node1", state) for at, state in zip(ordered, states, strict=False)
    ]
    op = OpRecord("INSTANCE_FAILOVER(web1)", "success", ordered[3], ordered[4], ordered[5])
    history.jobs.append(JobRecord(1, "success", ordered[2], (op,), ordered[5]))
    [outage] = outages(history, frozenset({"web1"} if is_protected else ()))
    assert outage.parts[0].began == outage.began
    assert outage.parts[-1].ended == outage.ended
    for one, following in zip(outage.parts, outage.parts[1:], strict=False):
        assert one.ended == following.began
        assert one.reason is not following.reason
    assert sum(one.length for one in outage.parts) == pytest.approx(outage.length)
