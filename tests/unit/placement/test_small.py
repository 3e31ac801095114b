"""Small clusters are computed in lists: the answers are those of the arrays."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import placement_clusters as clusters
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ganeti.placement.allocate import ArraySearch
from ganeti.placement.answers import Settings, answer
from ganeti.placement.description import Cluster, Instance
from ganeti.placement.load.message import read
from ganeti.placement.places import NOTHING_EXCLUDED, Excluded, Rules
from ganeti.placement.redundancy import unrecoverable_for_room_in_arrays, unrecoverable_in_arrays
from ganeti.placement.small import losses as small
from ganeti.placement.small.answer import quick_answer
from ganeti.placement.small.cluster import MOST_NODES, Small
from ganeti.placement.small.search import Search
from ganeti.placement.state import State
from tests.support.generated_clusters import Kind, cluster

ROUNDING = 1e-7
"""A deviation of nothing is the root of what rounding leaves of it, so places as good may be taken for another."""
AS_FOUND = (Phase.explicit, Phase.generate)
kinds = st.builds(
    Kind,
    groups=st.integers(1, 2),
    closed=st.sampled_from([0.0, 0.2, 0.4]),
    stopped=st.sampled_from([0.0, 0.3]),
    fullest=st.sampled_from([0.3, 0.5, 0.7, 0.9]),
    templates=st.sampled_from(
        [("drbd", "plain"), ("drbd",), ("plain",), ("drbd", "plain", "file")]
    ),
)
excluded_nodes = st.sampled_from(
    [NOTHING_EXCLUDED, Excluded(lone_nodes=True), Excluded(offline=True), Excluded(groups=(0,))]
)
rules = st.builds(
    # Rules itself cannot be asked for its types: one is known only to type checkers.
    lambda **fields: Rules(**fields),  # noqa: PLW0108
    capacity=st.booleans(),
    by_room=st.booleans(),
    ignore_soft_errors=st.sampled_from([False, False, True]),
    excluded=excluded_nodes,
    only_primary=st.sampled_from([None, None, None, 1]),
)
wishes = st.builds(
    lambda memory, disk, vcpus, template, status: Instance(
        "new", memory, disk, vcpus, status, template=template, disks=(disk,)
    ),
    st.sampled_from([512, 2048, 4096, 8192, 12 * 1024]),
    st.sampled_from([1024, 20 * 1024, 190 * 1024, 300 * 1024]),
    st.sampled_from([1, 4, 8, 30]),
    st.sampled_from(["plain", "drbd", "file"]),
    st.sampled_from(["running", "running", "ADMIN_down"]),
)


def as_lists(state: State, wanted: Instance | None = None) -> Small:
    found = Small.of(state, wanted, MOST_NODES)
    assert found is not None
    return found


@settings(max_examples=60, deadline=None, phases=AS_FOUND)
@given(st.integers(0, 10_000), kinds, rules, wishes)
def test_a_place_is_that_of_the_arrays(
    seed: int, kind: Kind, given_rules: Rules, wanted: Instance
) -> None:
    state = State(cluster(seed, kind))
    open_ = ~state.offline
    found, scores = Search(as_lists(state, wanted), open_.tolist(), given_rules).run()
    state.admit([wanted])
    by_arrays = ArraySearch(state, wanted, open_, given_rules, {}).run()
    assert by_arrays.scores is not None
    np.testing.assert_allclose(np.array(scores), by_arrays.scores, rtol=0, atol=ROUNDING)
    assert bool(found.nodes) == bool(by_arrays.nodes)
    if found.nodes != by_arrays.nodes:
        assert found.score == pytest.approx(by_arrays.score, abs=ROUNDING)
        return
    assert found.failures == by_arrays.failures
    assert found.successes == by_arrays.successes
    assert (found.group, found.blockers) == (by_arrays.group, by_arrays.blockers)


@settings(max_examples=40, deadline=None, phases=AS_FOUND)
@given(st.integers(0, 10_000), kinds, excluded_nodes, st.sampled_from([None, 0, 1]))
def test_the_same_nodes_cannot_be_lost(
    seed: int, kind: Kind, excluded: Excluded, first: int | None
) -> None:
    state = State(cluster(seed, kind))
    found = list(small.unrecoverable_nodes(as_lists(state), excluded, first))
    assert found == list(unrecoverable_in_arrays(state, excluded, first))
    crowded = list(small.unrecoverable_for_room(as_lists(state), excluded, first))
    assert crowded == list(unrecoverable_for_room_in_arrays(state, excluded, first))
    assert set(crowded) <= set(found)


requests = st.builds(
    lambda template, memory, **changes: (
        clusters.allocation(template) | {"memory": memory} | changes
    ),
    st.sampled_from(["plain", "drbd", "file", "rbd"]),
    st.sampled_from([512, 4096, 12 * 1024, 64]),
    vcpus=st.sampled_from([1, 2, 8]),
)


@settings(max_examples=40, deadline=None, phases=AS_FOUND)
@given(
    st.integers(0, 10_000),
    kinds.map(lambda one: replace(one, groups=1)),
    rules.map(lambda one: msgspec.structs.replace(one, by_room=False)),
    requests,
)
def test_an_answer_without_arrays_equals_that_with_arrays(
    seed: int, kind: Kind, given_rules: Rules, request: dict[str, Any]
) -> None:
    message = clusters.encoded(clusters.message(cluster(seed, kind), request))
    given_cluster, given_request = read(message)
    found = quick_answer(given_cluster, given_request, given_rules)
    if found is None:
        return
    with mock.patch.object(Small, "of", return_value=None):
        wanted = answer(message, Settings(given_rules))
    [score], [other] = (re.findall(r"score: ([\d.]+)", one["info"]) for one in (found, wanted))
    assert float(score) == pytest.approx(float(other), abs=2 * ROUNDING)
    if found["result"] == wanted["result"]:
        assert found["info"].replace(score, "") == wanted["info"].replace(other, "")


def test_hail_loads_no_arrays_for_a_small_cluster(tmp_path: Path) -> None:
    path = tmp_path / "message"
    path.write_bytes(
        clusters.encoded(clusters.message(clusters.cluster(10), clusters.allocation()))
    )
    script = (
        "import sys; from ganeti.cli import hail;"
        f"assert hail.main([{str(path)!r}]) == 0; assert 'numpy' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert '"success":true' in done.stdout


def test_large_ones_and_those_with_rules_of_their_own_are_for_arrays() -> None:
    even = clusters.cluster(4)

    def changed(**changes: object) -> Cluster:
        return msgspec.structs.replace(even, **changes)

    node = msgspec.structs.replace(even.nodes[0], exclusive_storage=True)
    shared = msgspec.structs.replace(even.instances[1], template="rbd")
    tagged = msgspec.structs.replace(even.instances[0], tags=("a:b",))
    others = [
        clusters.cluster(13),
        changed(nodes=[node, *even.nodes[1:]]),
        changed(instances=[*even.instances, shared]),
        changed(instances=[tagged, *even.instances[1:]], tags=("htools:iextags:a",)),
    ]
    assert Small.of(State(even)) is not None
    assert [Small.of(State(one)) for one in others] == [None] * len(others)
