"""Instances leave nodes before these are rebooted."""

import placement_clusters as clusters
import pytest

from ganeti.base.errors import PrereqError
from ganeti.placement.capacity import fill
from ganeti.placement.clearing import cleared, split_by_room
from ganeti.placement.description import Instance
from ganeti.placement.places import NO_NODE, Rules
from ganeti.placement.rolling import reboot_groups, without_failover
from ganeti.placement.score import everywhere
from ganeti.placement.state import State
from tests.support.htools_fixtures import fixture_state

SMALL = Instance("small", 512, 1024, 1, template="plain", disks=(1024,))
LARGE = Instance("large", 8192, 10240, 1, template="plain", disks=(10240,))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_what_leaves_is_on_other_nodes_and_no_node_has_too_much(seed: int, full: bool) -> None:
    state = State(clusters.cluster(8, seed))
    before = state.primary.copy()
    for group, moves in split_by_room(state, reboot_groups(state, everywhere(state)), full=full):
        after = state.copy()
        for index, primary, secondary in moves:
            after.settle_at(index, primary, secondary)
            assert not {primary, secondary} & set(group)
        alone = without_failover(state)
        left = [
            index
            for index, node in enumerate(after.primary)
            if node in group or (full and after.secondary[index] in group)
        ]
        assert not [index for index in left if full or alone[index]]
        assert (after.free > 0).all()
        assert (after.free_disk > 0).all()
    assert (state.primary == before).all()


def test_mirrored_instances_stay_unless_all_are_to_leave() -> None:
    state = fixture_state("hroller-online.data")
    assert cleared(state, [0, 3]) == []
    moves = cleared(state, [0, 3], full=True)
    assert [(state.names[one.instance], one.primary, one.secondary) for one in moves] == [
        ("new-0", 1, 2),
        ("new-2", 2, 1),
    ]
    assert all(one.secondary != NO_NODE for one in moves)


def test_a_full_cluster_is_reported_as_full() -> None:
    state = fill(State(clusters.cluster(4)), LARGE, Rules(capacity=False)).state
    state = fill(state, SMALL, Rules(capacity=False, ignore_soft_errors=True)).state
    with pytest.raises(PrereqError, match=r"Not enough capacity to move .* has room"):
        split_by_room(state, [[0]])


def test_groups_shrink_to_what_there_is_room_for() -> None:
    state = State(clusters.cluster(8))
    found = split_by_room(state, [list(range(8))])
    assert [node for group, _moves in found for node in group] == list(range(8))
    assert len(found) > 1
