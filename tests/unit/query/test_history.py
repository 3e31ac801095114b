"""The history of an object: parts of several nodes, joined by time."""

from dataclasses import replace as with_tables

import pytest
from msgspec.structs import replace

from ganeti.base.errors import InputError, PrereqError
from ganeti.config.snapshot import Snapshot
from ganeti.model.figures import FIGURES, RINGS, Range, Values
from ganeti.model.objects import Instance
from ganeti.query.history import DEFAULT_S, RECENT_S, HistorySource, joined
from ganeti.rpc.procedures.figures import HistoryPart
from tests.support.predictable import FrozenClock
from tests.unit.query.cluster import INSTANCE_UUIDS, NODE_UUIDS, FakeNodes, snapshot

NOW = int(FrozenClock().time())
MINUTE = NOW - NOW % 60
FINE, MINUTES, QUARTERS = RINGS


def of(value: float | None) -> Values:
    return (value,) * len(FIGURES)


def part(*pairs: tuple[int, float]) -> HistoryPart:
    return HistoryPart(times=[time for time, _ in pairs], rows=[of(value) for _, value in pairs])


def source(nodes: FakeNodes) -> HistorySource:
    return HistorySource(nodes, FrozenClock())


def asked(nodes: FakeNodes) -> list[str]:
    return [node for procedure, node in nodes.calls if procedure == "history"]


def with_secondary() -> Snapshot:
    found = snapshot()
    uuid = INSTANCE_UUIDS[0]
    one = replace(found.instances[uuid], secondary_nodes=(NODE_UUIDS[1],))
    return with_tables(found, tables={**found.tables, Instance: {**found.instances, uuid: one}})


async def test_the_default_is_the_last_hour_in_the_finest_resolution() -> None:
    nodes = FakeNodes()
    found = await source(nodes).history(snapshot(), "instance", "web1", Range())
    assert found["step"] == FINE.step
    assert found["times"] == []
    [args, *_] = nodes.asked
    assert (args.uuid, args.end - args.start, args.step) == (INSTANCE_UUIDS[0], DEFAULT_S, 5)


@pytest.mark.parametrize(
    ("age", "step"), [(60, 5), (DEFAULT_S, 5), (86_400, 60), (31 * 86_400, 900), (10**9, 900)]
)
async def test_the_resolution_follows_the_range_and_the_range_its_ring(age: int, step: int) -> None:
    nodes = FakeNodes()
    found = await source(nodes).history(snapshot(), "node", "node1", Range(start=NOW - age))
    assert found["step"] == step
    [args] = nodes.asked
    ring = next(one for one in RINGS if one.step == step)
    assert args.uuid == ""
    assert NOW - args.start <= ring.lasts_s + 1
    assert args.end <= NOW + 1


async def test_parts_of_several_nodes_are_joined_and_the_primary_node_counts_first() -> None:
    nodes = FakeNodes(
        histories={
            "node1": part((MINUTE - 60, 1.0), (MINUTE - 120, 1.0)),
            "node2": part((MINUTE - 120, 2.0), (MINUTE - 180, 2.0)),
        }
    )
    found = await source(nodes).history(
        snapshot(), "instance", "web1", Range(start=MINUTE - 3000, step=60)
    )
    assert found["times"] == [MINUTE - 180, MINUTE - 120, MINUTE - 60]
    assert found["figures"]["cpu"] == [2.0, 1.0, 1.0]
    assert list(found["figures"]) == [one.name for one in FIGURES]


async def test_a_short_range_asks_only_the_nodes_that_the_instance_has() -> None:
    nodes = FakeNodes()
    await source(nodes).history(with_secondary(), "instance", "web1", Range(start=NOW - RECENT_S))
    assert sorted(asked(nodes)) == ["node1", "node2"]
    nodes = FakeNodes()
    await source(nodes).history(snapshot(), "instance", "web1", Range(start=NOW - RECENT_S))
    assert asked(nodes) == ["node1"]


async def test_a_node_that_does_not_answer_is_named_and_an_offline_one_is_not_asked() -> None:
    nodes = FakeNodes(silent={"node1"}, histories={"node2": part((MINUTE - 60, 1.0))})
    found = await source(nodes).history(snapshot(), "instance", "web1", Range(step=60))
    assert found["silent"] == ["node1.example.com"]
    assert found["times"] == [MINUTE - 60]
    assert "node3" not in asked(nodes)
    nodes = FakeNodes()
    found = await source(nodes).history(snapshot(), "node", "node3", Range())
    assert (found["times"], asked(nodes)) == ([], [])


@pytest.mark.requirement("A32")
async def test_a_node_cannot_send_what_is_no_history() -> None:
    lies = HistoryPart(
        times=[MINUTE - 60, MINUTE - 59, MINUTE + 60, MINUTE - 10**6, MINUTE - 120],
        rows=[(1.0,), of(1.0), of(1.0), of(1.0), of(3.0)],
    )
    flood = part(*((MINUTE - 60 * one, 1.0) for one in range(10_000)))
    nodes = FakeNodes(histories={"node1": lies})
    found = await source(nodes).history(snapshot(), "node", "node1", Range(step=60))
    assert found["times"] == [MINUTE - 120]
    nodes = FakeNodes(histories={"node1": flood})
    wanted = Range(start=0, step=60)
    found = await source(nodes).history(snapshot(), "node", "node1", wanted)
    assert len(found["times"]) <= MINUTES.slots


@pytest.mark.parametrize(
    ("kind", "name", "wanted", "error"),
    [
        ("instance", "unknown", Range(), PrereqError),
        ("node", "unknown", Range(), PrereqError),
        ("group", "default", Range(), InputError),
        ("node", "node1", Range(step=7), InputError),
    ],
)
async def test_wrong_requests_are_refused(
    kind: str, name: str, wanted: Range, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await source(FakeNodes()).history(snapshot(), kind, name, wanted)


async def test_a_range_that_ends_before_it_begins_is_empty() -> None:
    nodes = FakeNodes(histories={"node1": part((MINUTE - 60, 1.0))})
    wanted = Range(start=MINUTE, end=MINUTE - 100, step=60)
    found = await source(nodes).history(snapshot(), "node", "node1", wanted)
    assert found["times"] == []


def test_values_are_rounded_as_people_see_them() -> None:
    [cpu, *_] = FIGURES
    found = joined([{60: (0.12345, 64.6, None, *[7.77] * 8)}])["figures"]
    assert (found["cpu"], found["memory"], found["guest_memory"]) == ([0.123], [65], [None])
    assert (found["net_in"], found["net_in_packets"]) == ([8], [7.8])
    assert cpu.digits == 3
