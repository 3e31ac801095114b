"""Migration tags say where instances migrate. A lost node migrates nothing, so they do not bind its instances."""

import json
from pathlib import Path

import msgspec
import placement_clusters as clusters
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ganeti.cli import hail, hcheck
from ganeti.placement.answers import answer
from ganeti.placement.description import Cluster
from ganeti.placement.load.text import parse
from ganeti.placement.redundancy import (
    unplaced_by_loss,
    unrecoverable_in_arrays,
    unrecoverable_nodes,
)
from ganeti.placement.state import State
from tests.support.generated_clusters import Kind, cluster
from tests.unit.placement.test_command_facts import mirrored, node, shared, text

RULE = "htools:migration:kernel"
NODES = [
    node("a", 13312, "M", "kernel:old"),
    node("b", 16384, "N", "kernel:new"),
    node("c", 16384, "N", "kernel:new"),
]
PLAIN = "local|1024|1024|1|running|Y|a||plain||1|-"
"""Makes the capacity check search, which counting alone did not."""


def three_nodes(*instances: str) -> str:
    return text("\n".join(NODES), "\n".join(instances), tags=RULE)


@pytest.mark.requirement("S168")
@pytest.mark.parametrize("template", ["plain", "drbd"])
@pytest.mark.parametrize(
    "there",
    [[mirrored("x", "a", "b", 1024)], [shared("x", "a", 1024)]],
    ids=["mirrored", "shared"],
)
def test_hail_allocates_where_hcheck_finds_every_node_losable(
    there: list[str], template: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    described = three_nodes(*there, PLAIN)
    (tmp_path / "data").write_text(described)
    assert hcheck.main(["-t", str(tmp_path / "data"), "--machine-readable"]) == 0
    assert "HCHECK_INIT_CLUSTER_GN1_FAIL=0" in capsys.readouterr().out
    given = clusters.message(parse(described), clusters.allocation(template))
    (tmp_path / "message").write_bytes(clusters.encoded(given))
    assert hail.main([str(tmp_path / "message")]) == 0
    assert json.loads(capsys.readouterr().out)["success"]


def with_rules(given: Cluster) -> Cluster:
    """The cluster with nodes that may not migrate to each other."""
    nodes = [
        msgspec.structs.replace(one, tags=(f"kernel:{number % 3}",))
        for number, one in enumerate(given.nodes)
    ]
    return msgspec.structs.replace(given, nodes=nodes, tags=(*given.tags, RULE))


@pytest.mark.requirement("S168")
@settings(max_examples=20, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(st.integers(0, 10_000), st.sampled_from([0.4, 0.9]), st.sampled_from([0.0, 0.3]))
def test_migration_tags_do_not_change_which_nodes_can_be_lost(
    seed: int, fullest: float, closed: float
) -> None:
    plain = cluster(seed, Kind(fullest=fullest, closed=closed))
    tagged = with_rules(plain)
    expected = set(unrecoverable_nodes(State(plain)))
    assert set(unrecoverable_nodes(State(tagged))) == expected
    assert set(unrecoverable_in_arrays(State(tagged))) == expected
    for number in range(len(plain.nodes)):
        assert unplaced_by_loss(State(tagged), number) == unplaced_by_loss(State(plain), number)


@pytest.mark.requirement("S173")
@pytest.mark.parametrize(("flag", "moves"), [("offline", True), ("drained", False)])
def test_instances_leave_an_offline_node_but_not_a_drained_one_against_the_tags(
    flag: str, moves: bool
) -> None:
    given = parse(three_nodes(mirrored("x", "a", "b", 1024)))
    request = {"type": "node-evacuate", "instances": ["x"], "evac_mode": "primary-only"}
    message = clusters.message(given, request)
    message["nodes"]["a"][flag] = True
    moved, failed, _jobs = answer(clusters.encoded(message))["result"]
    assert (len(moved), len(failed)) == ((1, 0) if moves else (0, 1))
