import itertools
from collections import Counter

import msgspec
import numpy as np
import placement_clusters as clusters
import pytest

from ganeti.base.errors import PrereqError
from ganeti.placement import redundancy
from ganeti.placement.allocate import ArraySearch, allocate, allocate_on
from ganeti.placement.capacity import fill, open_nodes, shrinks, tiers
from ganeti.placement.description import Cluster, Failure, Instance
from ganeti.placement.places import Rules
from ganeti.placement.redundancy import (
    can_be_lost,
    is_redundant,
    unrecoverable_for_room,
    unrecoverable_in_arrays,
    unrecoverable_nodes,
)
from ganeti.placement.small.cluster import Small
from ganeti.placement.state import State
from ganeti.placement.trials import can_try, first_size
from tests.support.exclusive_clusters import crowded
from tests.support.generated_clusters import Kind, cluster
from tests.support.htools_fixtures import fixture_cluster

# What Debian's hspace 3.0.2 says of the standard size.
FIT = [
    ("partly-used.data", 312),
    ("hspace-tiered.data", 4),
    ("clean-nonzero-score.data", 184),
    ("hbal-split-insts.data", 376),
    ("hbal-excl-tags.data", 87),
    ("hbal-dyn.data", 246),
    ("hroller-online.data", 249),
    ("hbal-evac.data", 29),
    ("hspace-existing.data", 0),
]


def sized(spec: dict[str, int], template: str) -> Instance:
    disk = spec["disk-size"]
    return Instance(
        *("new", spec["memory-size"], disk, spec["cpu-count"]),
        template=template,
        spindles=spec["spindle-use"],
        disks=(disk,),
    )


@pytest.mark.sampled(1)
@pytest.mark.requirement("S187")
@pytest.mark.parametrize(("name", "number"), FIT)
def test_as_many_fit_as_hspace_reports(name: str, number: int) -> None:
    cluster = fixture_cluster(name)
    wanted = sized(cluster.policy["std"], cluster.policy["disk-templates"][0])
    assert len(fill(State(cluster), wanted, Rules()).nodes) == number


# Memory and number of each size that Debian's hspace 3.0.2 finds, the largest first.
TIERS = [
    ("clean-nonzero-score.data", [(32768, 4)]),
    ("hbal-dyn.data", [(32768, 2)]),
    ("hspace-tiered.data", [(131072, 3), (129984, 1)]),
    # Instances without disks move in their order, not the largest first.
    ("hroller-online.data", [(32768, 6), (25728, 1), (25600, 2)]),
    ("hbal-split-insts.data", [(32768, 12), (30272, 6)]),
]


@pytest.mark.sampled(2)
@pytest.mark.requirement("S187")
@pytest.mark.parametrize(("name", "sizes"), TIERS)
def test_shrinking_sizes_fit_as_often_as_hspace_reports(
    name: str, sizes: list[tuple[int, int]]
) -> None:
    cluster = fixture_cluster(name)
    largest = cluster.policy["minmax"][-1]["max"]
    wanted = sized(largest, cluster.policy["disk-templates"][0])
    found = tiers(State(cluster), [wanted], Rules()).instances
    assert list(Counter(int(one.memory) for one in found).items()) == sizes


# The same on generated clusters: 5 nodes, by seed and template.
SHRUNK = [
    (1, "plain", [(16384, 4), (9280, 1), (2624, 1), (576, 1), (320, 1)]),
    (2, "plain", [(16384, 3), (12864, 1), (8256, 1), (3136, 1)]),
    # Fewer than hspace says, which does not ask whether the others could still lose a node.
    (3, "drbd", [(16384, 2), (14976, 1), (7808, 1), (2560, 1), (128, 2)]),
]


@pytest.mark.sampled(0)
@pytest.mark.timeout(60)
@pytest.mark.requirement("S187")
@pytest.mark.parametrize(("seed", "template", "sizes"), SHRUNK)
def test_each_size_is_tried_that_leaves_the_cluster_redundant(
    seed: int, template: str, sizes: list[tuple[int, int]]
) -> None:
    wanted = sized(clusters.POLICY["minmax"][0]["max"], template)
    found = tiers(State(clusters.cluster(5, seed)), [wanted], Rules()).instances
    assert list(Counter(int(one.memory) for one in found).items()) == sizes


@pytest.mark.sampled(0)
@pytest.mark.timeout(60)
@pytest.mark.requirement("S187")
def test_a_size_that_is_not_redundant_does_not_hide_a_larger_one_that_is() -> None:
    wanted = sized(clusters.POLICY["minmax"][0]["max"], "drbd")
    found = tiers(State(clusters.cluster(10, 1)), [wanted], Rules()).instances
    assert [int(one.disk) for one in found][-4:] == [140032, 131840, 124672, 34560]


def one_by_one(given: Cluster, wanted: Instance) -> int:
    """How many `hail` places, each on what the ones before left."""
    state = State(given)
    for number in itertools.count():
        try:
            place, _places = allocate(state, wanted, Rules())
        except PrereqError:
            return number
        state.append(msgspec.structs.replace(wanted, name=f"new-{number}"), *place.pair)
    raise AssertionError


@pytest.mark.sampled(2)
@pytest.mark.requirement("S187")
@pytest.mark.parametrize("template", ["drbd", "plain"])
@pytest.mark.parametrize("seed", range(8))
def test_hspace_promises_what_hail_places_one_by_one(seed: int, template: str) -> None:
    kind = Kind(fullest=(0.3, 0.5, 0.7)[seed % 3], stopped=0.3 * (seed % 4 == 0))
    given = cluster(seed, kind) if seed % 2 else clusters.cluster(4 + seed % 5, seed)
    wanted = sized(clusters.POLICY["std"], template)
    assert len(fill(State(given), wanted, Rules()).nodes) == one_by_one(given, wanted)


@pytest.mark.requirement("S187")
def test_instances_without_a_mirror_keep_the_memory_that_they_would_need() -> None:
    """Four nodes, one of which has instances that only the memory of the others could take."""
    wanted = sized(clusters.POLICY["std"], "drbd")
    given = clusters.cluster(4, 1)
    checked, unchecked = (
        len(fill(State(given), wanted, Rules(capacity=capacity)).nodes)
        for capacity in (True, False)
    )
    assert checked == one_by_one(given, wanted) == 10
    assert unchecked == 11


@pytest.mark.sampled(2)
@pytest.mark.requirement("S187")
@pytest.mark.parametrize("template", ["drbd", "plain"])
@pytest.mark.parametrize("seed", range(6))
def test_each_of_the_shrinking_sizes_is_placed_where_hail_places_it(
    seed: int, template: str
) -> None:
    kind = Kind(fullest=(0.3, 0.5, 0.7)[seed % 3], templates=("drbd", "plain"))
    given = cluster(seed, kind) if seed % 2 else clusters.cluster(4 + seed, seed)
    largest = sized(clusters.POLICY["minmax"][0]["max"], template)
    filled = tiers(State(given), [largest], Rules())
    state = State(given)
    for one, nodes in zip(filled.instances, filled.nodes, strict=True):
        place, _places = allocate(state, one, Rules())
        assert place.nodes == nodes
        state.append(one, *place.pair)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("template", ["drbd", "plain"])
@pytest.mark.parametrize("seed", range(8))
def test_many_sizes_at_once_give_the_first_that_one_after_the_other_does(
    seed: int, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = Kind(
        groups=1 + seed % 2, fullest=(0.3, 0.5, 0.7)[seed % 3], templates=("drbd", "plain"),
        closed=0.2 * (seed % 3 == 0), stopped=0.3 * (seed % 4 == 1),
    )  # fmt: skip
    state = State(cluster(seed, kind) if seed % 4 else clusters.cluster(7, seed))
    largest = sized(clusters.POLICY["minmax"][0]["max"], template)
    full = fill(state, largest, Rules()).state
    sizes = [largest, *itertools.islice(shrinks(largest, Failure.MEMORY), 5, None, 10)]
    monkeypatch.setattr(Small, "of", classmethod(lambda *_words: None))
    assert_first_size_is_that_of_trials_in_turn(full, sizes)


@pytest.mark.parametrize("template", ["drbd", "plain"])
def test_many_sizes_on_exclusive_storage_give_the_first_that_one_after_the_other_does(
    template: str,
) -> None:
    for seed in (*range(24), 45, 302, 307, 310):
        state = State(crowded(seed))
        if not redundancy.is_redundant(state):
            continue
        largest = sized(clusters.POLICY["std"] | {"memory-size": 8192, "spindle-use": 5}, template)
        too_large, *sizes = [largest, *shrinks(largest, Failure.SPINDLES)]
        for run in ([too_large], sizes):  # the policy forbids the first and allows the others
            assert_first_size_is_that_of_trials_in_turn(state, run)


def assert_first_size_is_that_of_trials_in_turn(state: State, sizes: list[Instance]) -> None:
    open_, rules = open_nodes(state), Rules(dedicated=False)
    assert can_try(state, sizes[0], rules)
    one_after_the_other = (
        n for n, one in enumerate(sizes) if allocate_on(state, one, open_, rules).nodes
    )
    assert first_size(state, sizes, open_, rules) == next(one_after_the_other, None)


def test_sizes_shrink_in_what_is_scarce() -> None:
    cluster = fixture_cluster("hspace-tiered.data")
    wanted = sized(cluster.policy["minmax"][0]["max"], "plain")
    filled = tiers(State(cluster), [wanted], Rules())
    found = [(one.memory, one.disk) for one in filled.instances]
    assert found == [(131072, 1048576)] * 3 + [(129984, 1048320)]


def test_the_cluster_is_full_and_redundant_at_the_end() -> None:
    state = State(clusters.cluster(5))
    filled = fill(state, sized(clusters.POLICY["std"], "plain"), Rules())
    assert filled.main_failure in (Failure.MEMORY, Failure.REDUNDANCY)
    assert is_redundant(filled.state)
    assert len(state.names) == 50
    again = fill(filled.state, sized(clusters.POLICY["std"], "plain"), Rules())
    assert again.nodes == []


def test_a_limit_is_kept() -> None:
    filled = fill(State(clusters.cluster(5)), sized(clusters.POLICY["std"], "drbd"), Rules(), 3)
    assert [one.name for one in filled.instances] == ["new-0", "new-1", "new-2"]
    assert all(len(nodes) == 2 for nodes in filled.nodes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(6))
def test_counting_never_calls_a_node_losable_that_is_not(seed: int) -> None:
    state = State(clusters.cluster(5, seed))
    wanted = sized(clusters.POLICY["std"], "plain")
    full = fill(state, wanted, Rules(capacity=False)).state
    unrecoverable = set(unrecoverable_nodes(full))
    assert unrecoverable == {node for node in range(5) if not can_be_lost(full, node)}
    assert unrecoverable


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("template", ["plain", "drbd"])
def test_looking_at_many_lost_nodes_at_once_agrees_with_one_after_the_other(
    seed: int, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = sized(clusters.POLICY["minmax"][0]["max"], template)
    full = fill(State(clusters.cluster(7, seed)), wanted, Rules(capacity=False)).state
    together = [can_be_lost(full, node) for node in range(7)]
    monkeypatch.setattr(redundancy, "needs_all_rules", lambda _state: True)
    assert [can_be_lost(full, node) for node in range(7)] == together


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(6))
def test_nodes_short_of_room_are_unrecoverable(seed: int) -> None:
    wanted = sized(clusters.POLICY["std"], "plain")
    full = fill(State(clusters.cluster(5, seed)), wanted, Rules(capacity=False)).state
    surely = set(unrecoverable_for_room(full))
    assert surely
    assert surely <= set(unrecoverable_nodes(full))
    assert not set(unrecoverable_for_room(State(clusters.cluster(5, seed))))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("capacity", [True, False])
@pytest.mark.parametrize("template", ["plain", "drbd"])
@pytest.mark.parametrize("seed", range(3))
def test_a_node_for_each_instance_is_enough_and_never_too_much(
    seed: int, template: str, capacity: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = sized(clusters.POLICY["minmax"][0]["max"], template)
    full = fill(State(clusters.cluster(20, seed)), wanted, Rules(capacity=capacity)).state
    quick, lacking = set(unrecoverable_in_arrays(full)), set(unrecoverable_for_room(full))
    assert quick == {node for node in range(20) if not can_be_lost(full, node)}
    monkeypatch.setattr(
        redundancy, "_a_node_each", lambda _state, nodes, *_rest: np.zeros(len(nodes), dtype=bool)
    )
    monkeypatch.setattr(redundancy._Losses, "clear", np.zeros(20, dtype=bool))
    assert (set(unrecoverable_in_arrays(full)), set(unrecoverable_for_room(full))) == (
        quick,
        lacking,
    )


@pytest.mark.parametrize("template", ["plain", "drbd"])
@pytest.mark.parametrize("seed", range(4))
def test_instances_placed_together_are_where_they_are_one_by_one(seed: int, template: str) -> None:
    kind = Kind(groups=2 + seed % 2, fullest=0.5, closed=0.1, tags=0.3 * (seed % 2))
    state = State(cluster(seed, kind))
    wanted = sized(clusters.POLICY["std"], template)
    if seed == 3:
        wanted = msgspec.structs.replace(wanted, tags=("service:a",))
    rules, open_ = Rules(capacity=False, dedicated=False, best_only=True), ~state.offline
    together, nodes = state.copy(), []
    together.admit([wanted])
    places = ArraySearch(together, wanted, open_, rules, {}).repeat(None)
    together.dismiss()
    while True:
        state.admit([wanted])
        place = ArraySearch(state, wanted, open_, rules, {}).run()
        state.dismiss()
        if not place.nodes:
            break
        nodes.append(place.pair)
        state.append(wanted, *place.pair)
    assert places == nodes
    together.record([wanted] * len(places), places)
    assert np.array_equal(together.peers, state.peers)
    for name, value in vars(state).items():
        if isinstance(value, np.ndarray):
            assert np.array_equal(getattr(together, name), value), name


@pytest.mark.parametrize("template", ["plain", "drbd"])
def test_a_place_that_was_tried_leaves_no_trace(template: str) -> None:
    state = State(cluster(1, Kind(groups=2, fullest=0.5, tags=0.6)))
    wanted = sized(clusters.POLICY["std"], template)
    state.admit([msgspec.structs.replace(wanted, tags=("service:a",))])
    before = state.copy()
    for primary, secondary in itertools.permutations(range(len(state.nodes)), 2):
        other = secondary if template == "drbd" else -1
        with state.placed(len(state.names) - 1, primary, other):
            assert state.primaries[primary] == before.primaries[primary] + 1
    for name, value in vars(before).items():
        if isinstance(value, np.ndarray):
            assert np.array_equal(getattr(state, name), value), name
    assert np.array_equal(state.peers, before.peers)
    assert np.array_equal(state.tags.counts, before.tags.counts)


@pytest.mark.parametrize("scarce", [Failure.MEMORY, Failure.DISK, Failure.CPU, Failure.SPINDLES])
def test_shrinking_ends(scarce: Failure) -> None:
    one = Instance("new", 1024, 1024, 4, spindles=3, disks=(512, 512))
    smaller = list(shrinks(one, scarce))
    assert smaller
    assert smaller[-1].memory >= 64
    assert min(smaller[-1].disks) >= 256
    assert smaller[-1].vcpus >= 1
    assert list(shrinks(one, Failure.TAGS)) == []


def test_closed_groups_take_nothing() -> None:
    state = State(clusters.cluster(3))
    assert open_nodes(state).all()
    assert not open_nodes(state, [0]).any()
