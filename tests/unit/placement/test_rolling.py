import numpy as np
import placement_clusters as clusters
import pytest

from ganeti.placement.rolling import conflicts, reboot_groups
from ganeti.placement.score import everywhere
from ganeti.placement.state import State
from tests.support.htools_fixtures import fixture_state


def test_nodes_are_grouped_as_hroller_does() -> None:
    state = fixture_state("hroller-online.data")
    groups = reboot_groups(state, everywhere(state))
    names = [[state.nodes[node].name[-3:] for node in group] for group in groups]
    assert names == [["001", "004"], ["002"], ["003"]]


@pytest.mark.parametrize("is_offline", [False, True])
def test_no_two_nodes_of_a_group_depend_on_each_other(is_offline: bool) -> None:
    state = State(clusters.cluster(12))
    apart = conflicts(state, is_offline=is_offline)
    groups = reboot_groups(state, everywhere(state), is_offline=is_offline)
    assert sorted(node for group in groups for node in group) == list(range(12))
    for group in groups:
        assert not apart[np.ix_(group, group)].any()
    assert groups[-1][-1] == 0  # the master
