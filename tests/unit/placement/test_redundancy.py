"""Whatever is wrong before, no answer makes it worse: counted for each node, by cause."""

from collections.abc import Collection
from typing import Any

import numpy as np
import placement_clusters as clusters
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ganeti.placement.answers import Settings, answer
from ganeti.placement.description import Cluster, Group, Instance, Node
from ganeti.placement.load.message import read, wanted_instance
from ganeti.placement.places import NO_NODE, Rules
from ganeti.placement.redundancy import (
    Unplaced,
    can_be_lost,
    is_redundant,
    unplaced_by_loss,
    unrecoverable_in_arrays,
    unrecoverable_nodes,
)
from ganeti.placement.state import State
from tests.support.generated_clusters import Kind, cluster

AS_FOUND = (Phase.explicit, Phase.generate)
"""A cluster is shown as it was found: a smaller one takes minutes to find."""

kinds = st.builds(
    Kind,
    groups=st.integers(1, 4),
    closed=st.sampled_from([0.0, 0.2, 0.4]),
    stopped=st.sampled_from([0.0, 0.3]),
    tags=st.sampled_from([0.0, 0.0, 0.5]),
    fullest=st.sampled_from([0.3, 0.5, 0.9]),
)


def ask(given: Cluster, request: dict[str, Any], **rules: Any) -> dict[str, Any]:
    message = clusters.encoded(clusters.message(given, request))
    return answer(message, Settings(Rules(**rules)))


def as_read(given: Cluster, request: dict[str, Any]) -> tuple[State, dict[str, Any]]:
    found, read_request = read(clusters.encoded(clusters.message(given, request)))
    return State(found), read_request


def assert_no_worse(before: State, after: State, left: Collection[int] = ()) -> None:
    """In groups that an instance `left`, one that now fails over may take the room of another one."""
    assert not (State(after.described()).fails & ~before.fails).any()
    for node in unrecoverable_nodes(after):
        now, then = unplaced_by_loss(after, node), unplaced_by_loss(before, node)
        assert now <= then or (after.group[node] in left and now.total() <= then.total())


def indices(state: State, names: list[str]) -> tuple[int, int]:
    known = [one.name for one in state.nodes]
    first, *rest = (known.index(name) for name in names)
    return first, rest[0] if rest else NO_NODE


@pytest.mark.requirement("S168")
@settings(max_examples=25, deadline=None, phases=AS_FOUND)
@given(st.integers(0, 10_000), kinds, st.sampled_from(["drbd", "plain"]), st.booleans())
def test_an_allocation_makes_nothing_worse(
    seed: int, kind: Kind, template: str, has_group: bool
) -> None:
    request = clusters.allocation(template) | ({"group_name": "group0"} if has_group else {})
    found = ask(cluster(seed, kind), request)
    if not found["success"]:
        return
    before, request = as_read(cluster(seed, kind), request)
    after = before.copy()
    after.append(wanted_instance(request), *indices(after, found["result"]))
    assert_no_worse(before, after)


@pytest.mark.sampled(0)
@pytest.mark.requirement("S168", "S175")
@settings(max_examples=10, deadline=None, phases=AS_FOUND)
@given(st.integers(0, 10_000), kinds)
def test_several_allocations_make_nothing_worse(seed: int, kind: Kind) -> None:
    wanted = [
        clusters.allocation(template) | {"name": f"new{number}"}
        for number, template in enumerate(["drbd", "plain", "plain"])
    ]
    request = {"type": "multi-allocate", "instances": wanted}
    found = ask(cluster(seed, kind), request)
    before, _request = as_read(cluster(seed, kind), request)
    after = before.copy()
    for name, nodes in found["result"][0]:
        one = next(each for each in wanted if each["name"] == name)
        after.append(wanted_instance(one), *indices(after, nodes))
    assert_no_worse(before, after)


@pytest.mark.requirement("S168", "S174")
@settings(max_examples=10, deadline=None, phases=AS_FOUND)
@given(st.integers(0, 10_000), kinds.filter(lambda kind: kind.groups > 1))
def test_a_change_of_group_makes_nothing_worse_there(seed: int, kind: Kind) -> None:
    given = cluster(seed, kind)
    names = [one.name for one in given.instances if one.template != "plain" and not one.tags][:2]
    request = {"type": "change-group", "instances": names, "target_groups": []}
    found = ask(given, request)
    if not found["success"]:
        return
    before, _request = as_read(given, request)
    after = before.copy()
    for name, _group, nodes in found["result"][0]:
        after.settle_at(after.names.index(name), *indices(after, nodes))
    moved = [before.names.index(name) for name, _group, _nodes in found["result"][0]]
    assert_no_worse(before, after, {int(before.group[before.primary[one]]) for one in moved})


@pytest.mark.sampled(0)
@settings(max_examples=15, deadline=None, phases=AS_FOUND)
@given(st.integers(0, 10_000), kinds)
def test_a_node_can_be_lost_if_it_strands_no_instance(seed: int, kind: Kind) -> None:
    state = State(cluster(seed, kind))
    unrecoverable = set(unrecoverable_nodes(state))
    for node in range(len(state.nodes)):
        assert can_be_lost(state, node) == (not unplaced_by_loss(state, node))
        assert (node in unrecoverable) == bool(unplaced_by_loss(state, node))


def test_a_group_with_a_drained_node_is_still_looked_after() -> None:
    """What fits nowhere on a drained node keeps nobody else from being counted."""
    kind = Kind(groups=2, fullest=0.5, templates=("plain",))
    refused = 0
    for seed in range(30):
        given = cluster(seed, kind)
        state, request = as_read(given, clusters.allocation("plain") | {"memory": 20 * 1024})
        found = ask(given, request)
        open_ = [node for node in range(len(state.nodes)) if state.free[node] > 20 * 1024]
        refused += bool(open_) and not found["success"]
    assert refused


def test_one_group_must_be_redundant_before_as_upstream_has_it() -> None:
    kind = Kind(groups=1, fullest=0.9, templates=("plain",))
    seen = 0
    for seed in range(20):
        given = cluster(seed, kind)
        state, request = as_read(given, clusters.allocation("plain"))
        if not is_redundant(state):
            seen += 1
            assert not ask(given, request)["success"]
    assert seen


def test_the_node_whose_loss_speaks_against_a_place_is_named() -> None:
    kind = Kind(groups=1, fullest=0.9, templates=("plain",))
    told = [ask(cluster(seed, kind), clusters.allocation("plain"))["info"] for seed in range(20)]
    assert any("the instances of node0" in info for info in told)
    assert not any("of some node would" in info for info in told)


def test_the_causes_are_distinguished() -> None:
    found: set[Unplaced] = set()
    for seed in range(10):
        state = State(cluster(seed, Kind(groups=2, fullest=0.95)))
        for node in np.arange(len(state.nodes)):
            found |= set(unplaced_by_loss(state, int(node)))
    assert {Unplaced.FAILOVER, Unplaced.ROOM} <= found


@pytest.mark.requirement("S174")
def test_an_instance_whose_nodes_are_both_drained_can_change_group() -> None:
    given = cluster(3, Kind(groups=2, fullest=0.3, templates=("drbd",)))
    one = next(one for one in given.instances if one.name.startswith("node00"))
    request = {"type": "change-group", "instances": [one.name], "target_groups": ["uuid-1"]}
    message = clusters.message(given, request)
    for name in (one.primary, one.secondary):
        message["nodes"][name]["drained"] = True
    found = answer(clusters.encoded(message))
    [[name, group, _nodes]], failed, [job] = found["result"]
    assert (name, group, failed) == (one.name, "group1", [])
    words = [opcode["OP_ID"].removeprefix("OP_INSTANCE_") for opcode in job]
    assert words == ["REPLACE_DISKS", "MIGRATE", "REPLACE_DISKS"]


@pytest.mark.parametrize("disk", [300, 1000])
def test_room_for_copies_is_counted_after_the_failover(disk: int) -> None:
    """A node whose loss is found harmless without a search is harmless for the search, too; at every edge of the room."""
    outcomes = set()
    for first in range(100, 600, 50):
        for second in (99, 100, 101, 201, 301, 401):
            state = State(_three_nodes(first, second, disk))
            harmless = not unplaced_by_loss(state, 0)
            assert (0 not in unrecoverable_in_arrays(state)) == harmless
            assert (0 not in unrecoverable_nodes(state)) == harmless
            outcomes.add(harmless)
    assert outcomes == {True, False}


def _three_nodes(first: int, second: int, disk: int) -> Cluster:
    """A node with two mirrored instances and three others, and the free memory of the nodes that take them over."""
    nodes = [
        Node(name, "g", 1000, 0, free, disk + 500, disk, 16)
        for name, free in (("lost", 500), ("first", first), ("second", second))
    ]
    instances = [
        Instance(f"mirrored{number}", 100, 10, 1, primary="lost", secondary="first",
                 template="drbd", disks=(10,))
        for number in range(2)
    ] + [
        Instance(f"plain{number}", 100, 100, 1, primary="lost", disks=(100,)) for number in range(3)
    ]  # fmt: skip
    return Cluster([Group("default", "g")], nodes, instances)
