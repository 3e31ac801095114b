"""The search that does not look at all pairs finds what the one that does finds."""

import numpy as np
import placement_clusters as clusters
import pytest
from msgspec.structs import replace

from ganeti.placement import pairs
from ganeti.placement.allocate import ArraySearch, allocate_on
from ganeti.placement.capacity import fill
from ganeti.placement.description import Instance
from ganeti.placement.places import Rules
from ganeti.placement.state import State
from tests.support.generated_clusters import Kind, cluster

UNCHECKED = Rules(capacity=False, dedicated=False, all_scores=True)
QUICK = replace(UNCHECKED, all_scores=False)


def wanted(memory_gib: int) -> Instance:
    disk = 20 * 1024.0
    return Instance("new", memory_gib * 1024, disk, 2, template="drbd", spindles=1, disks=(disk,))


@pytest.mark.parametrize("memory_gib", [1, 4, 12])
@pytest.mark.parametrize("seed", range(4))
def test_each_of_many_allocations_is_where_looking_at_all_pairs_puts_it(
    seed: int, memory_gib: int
) -> None:
    state = State(clusters.cluster(70, seed))
    open_ = np.ones(70, dtype=bool)
    open_[seed] = False
    for number in range(12):
        one = replace(wanted(memory_gib), name=f"new{number}")
        every = allocate_on(state, one, open_, UNCHECKED)
        quick = allocate_on(state, one, open_, QUICK)
        assert quick.nodes == every.nodes
        assert (quick.successes, +quick.failures) == (every.successes, +every.failures)
        assert quick.score == pytest.approx(every.score, abs=1e-9)
        if not every.nodes:
            break
        state.append(one, *every.pair)


@pytest.mark.parametrize("seed", range(6))
def test_groups_that_are_full_of_trouble_are_searched_alike(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs are of one group, and nodes that fail N+1 or are closed leave the search to the whole look."""
    monkeypatch.setattr(pairs, "FEWEST_NODES", 2)
    kind = Kind(groups=3, fullest=0.3, templates=("drbd", "plain"), closed=0.2 * (seed % 2))
    state = State(cluster(seed, kind))
    for number in range(8):
        one = replace(wanted(2), name=f"new{number}")
        every = allocate_on(state, one, ~state.offline, UNCHECKED)
        quick = allocate_on(state, one, ~state.offline, QUICK)
        assert quick.nodes == every.nodes
        if not every.nodes:
            assert quick.failures == every.failures
            break
        state.append(one, *every.pair)


@pytest.mark.parametrize("template", ["drbd", "plain"])
@pytest.mark.parametrize("seed", range(6))
def test_places_are_counted_as_looking_at_each_does(seed: int, template: str) -> None:
    """Also those of nodes that fail N+1, are closed, or hold memory for the primaries of others."""
    kind = Kind(groups=3, fullest=0.3 + 0.2 * (seed % 3), templates=("drbd", "plain"), closed=0.1)
    state = State(cluster(seed, kind))
    for memory_gib in (1, 4, 8, 14):
        state.admit([replace(wanted(memory_gib), template=template)])
        for force in (False, True):
            rules = replace(UNCHECKED, ignore_soft_errors=force)
            every = ArraySearch(state, state.descriptions[-1], ~state.offline, rules, {}).run()
            counted = ArraySearch(state, state.descriptions[-1], ~state.offline, rules, {}).tally()
            assert +counted.failures == +every.failures
            assert counted.successes == every.successes
        state.dismiss()


@pytest.mark.parametrize("seed", range(4))
def test_a_checked_pair_is_the_one_that_looking_at_all_pairs_finds(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "FEWEST_NODES", 2)
    state = State(clusters.cluster(14, seed))
    rules = Rules(dedicated=False)
    for number in range(20):
        one = replace(wanted(8 - number % 8), name=f"new{number}")
        every = allocate_on(state, one, ~state.offline, replace(rules, all_scores=True))
        quick = allocate_on(state, one, ~state.offline, rules)
        assert quick.nodes == every.nodes
        assert (quick.successes, +quick.failures) == (every.successes, +every.failures)
        if not every.nodes:
            assert quick.failures == every.failures
            break
        state.append(one, *every.pair)


def test_equal_nodes_are_filled_from_the_last() -> None:
    empty = clusters.cluster(70)
    first = empty.nodes[0]
    nodes = [
        replace(first, name=one.name, is_master=False, free_memory=first.total_memory, free_disk=first.total_disk)
        for one in empty.nodes
    ]  # fmt: skip
    state = State(replace(empty, nodes=nodes, instances=[]))
    filled = fill(state, wanted(4), Rules(capacity=False), 2)
    assert filled.nodes[0] == (69, 68)
