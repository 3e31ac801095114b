import msgspec
import placement_clusters as clusters
import pytest

from ganeti.placement.balance import Goals, balance
from ganeti.placement.description import Cluster, Group, Instance, Node
from ganeti.placement.score import components, group_scope, score
from ganeti.placement.state import State
from tests.support.htools_fixtures import fixture_state

# What Debian's hbal 3.0.2 prints as "Initial score" of each group.
PRINTED = [
    ("clean-nonzero-score.data", 0, "1.91573994"),
    ("hbal-dyn.data", 0, "4.00000000"),
    ("hbal-evac.data", 0, "46.94539253"),
    ("hbal-excl-tags.data", 0, "3.67187500"),
    ("hbal-soft-errors.data", 0, "39.36461987"),
    ("hbal-split-insts.data", 0, "0.00585938"),
    ("hbal-split-insts.data", 1, "0.00195312"),
    ("hroller-online.data", 0, "1.84372991"),
    ("hspace-existing.data", 0, "20.00000000"),
    ("hspace-groups-one.data", 0, "11.78957167"),
    ("n1-failure.data", 0, "22.37526844"),
    ("partly-used.data", 0, "2.74131372"),
]


@pytest.mark.parametrize(("name", "group", "printed"), PRINTED)
def test_the_score_is_the_one_that_hbal_prints(name: str, group: int, printed: str) -> None:
    state = fixture_state(name)
    assert f"{score(state, group_scope(state, group)):.8f}" == printed


def test_the_score_is_the_sum_of_its_components() -> None:
    state = State(clusters.cluster(5))
    assert score(state) == pytest.approx(sum(one.value * one.weight for one in components(state)))


def tagged() -> Cluster:
    """Two nodes in one place, one in another; two instances that exclude each other, and want `site:b`."""
    nodes = [
        Node(name, "g", 1000, 0, 1000, 1000, 1000, 8, 0, total_spindles=1, tags=(tag,))
        for name, tag in (("n1", "site:a"), ("n2", "site:a"), ("n3", "site:b"))
    ]
    instances = [
        Instance(name, 100, 10, 1, primary="n1", secondary="n2", template="drbd", tags=tags)
        for name, tags in (("i1", ("dns:x", "site:b")), ("i2", ("dns:x",)))
    ]
    rules = ("htools:iextags:dns", "htools:nlocation:site", "htools:desiredlocation:site")
    return Cluster([Group("default", "g")], nodes, instances, rules)


def test_tags_count() -> None:
    found = {one.name: one.value for one in components(State(tagged()))}
    assert found["pri_tags_score"] == 1
    assert found["location_score"] == 2 + 1  # two with both nodes in one place, one wish
    assert found["location_exclusion_score"] == 1


def test_memory_that_is_missing_stays_missing() -> None:
    cluster = clusters.cluster(3)
    first = msgspec.structs.replace(
        cluster.nodes[0], free_memory=cluster.nodes[0].free_memory - 500
    )
    state = State(msgspec.structs.replace(cluster, nodes=[first, *cluster.nodes[1:]]))
    before = state.free.copy()
    index = int((state.primary == 0).nonzero()[0][0])
    state.remove_primary(index, 0)
    assert state.missing_memory[0] == 500
    assert state.free[0] == before[0] + state.instances.memory[index]


def test_an_instance_that_is_down_takes_no_memory_but_its_share_is_reserved() -> None:
    cluster = tagged()
    down = [msgspec.structs.replace(one, status="ADMIN_down") for one in cluster.instances]
    state = State(msgspec.structs.replace(cluster, instances=down))
    assert (state.free[0], state.reserved[1]) == (1000, 200)
    off = [msgspec.structs.replace(one, status="ADMIN_offline") for one in cluster.instances]
    state = State(msgspec.structs.replace(cluster, instances=off))
    assert (state.reserved[1], state.used_cpus[0]) == (0, 0)


def test_where_no_node_is_online_there_is_no_score() -> None:
    """As upstream has it: nothing there can be balanced."""
    given = clusters.cluster(3)
    nodes = [msgspec.structs.replace(node, offline=True) for node in given.nodes]
    state = State(msgspec.structs.replace(given, nodes=nodes))
    assert score(state) == 0.0
    assert components(state) == []
    assert list(balance(state, Goals())) == []
