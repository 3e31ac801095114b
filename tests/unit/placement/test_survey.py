"""The overview of a cluster, and the effect of a node's loss."""

from collections import Counter
from typing import Any

import pytest

from ganeti.placement.description import Cluster, Group, Instance, Node
from ganeti.placement.redundancy import unplaced_by_loss
from ganeti.placement.state import State
from ganeti.placement.survey import FITS_LIMIT, impact, impacts, overview
from tests.support.generated_clusters import Kind, cluster

STANDARD = Instance(name="new", memory=1024, disk=1024, vcpus=1, template="drbd", disks=(1024,))


def node(name: str, memory: float, free: float, group: str = "g1") -> Node:
    return Node(
        name=name, group=group, total_memory=memory, free_memory=free, total_disk=100_000,
        free_disk=90_000, total_cpus=16, total_spindles=1,
    )  # fmt: skip


def instance(
    name: str, memory: float, primary: str, template: str, secondary: str = ""
) -> Instance:
    return Instance(
        name=name, memory=memory, disk=1024, vcpus=1, primary=primary, secondary=secondary,
        template=template, disks=(1024,),
    )  # fmt: skip


def three_nodes(free: float = 12_000) -> State:
    return State(
        Cluster(
            groups=[Group("default", "g1")],
            nodes=[node("n1", 16_384, 4_000), node("n2", 16_384, free), node("n3", 16_384, free)],
            instances=[
                instance("mirrored", 4096, "n1", "drbd", "n2"),
                instance("shared", 2048, "n1", "sharedfile"),
                instance("plain", 1024, "n1", "plain"),
                instance("other", 1024, "n3", "drbd", "n1"),
            ],
        )
    )


def fates(state: State, name: str) -> dict[str, tuple[str, str | None]]:
    number = [one.name for one in state.nodes].index(name)
    return {one["name"]: (one["how"], one["to"]) for one in impact(state, number)}


def test_impact_says_where_each_instance_goes() -> None:
    found = fates(three_nodes(), "n1")
    assert found.pop("shared")[0] == "restart"
    assert found == {
        "mirrored": ("failover", "n2"),
        "plain": ("lost", None),
        "other": ("degraded", None),
    }
    assert fates(three_nodes(), "n2") == {"mirrored": ("degraded", None)}


def test_impact_says_what_finds_no_room() -> None:
    state = three_nodes(free=1_500)
    rows: dict[str, Any] = {one["name"]: one for one in impact(state, 0)}
    assert rows["mirrored"]["how"] == "unplaced"
    assert "n2" in rows["mirrored"]["why"]
    assert rows["shared"]["how"] == "unplaced"
    assert rows["shared"]["to"] is None


@pytest.mark.parametrize("seed", range(8))
def test_impact_agrees_with_the_check_of_redundancy(seed: int) -> None:
    kind = Kind(groups=2, closed=0.0, stopped=0.2, tags=0.0, fullest=0.9)
    state = State(cluster(seed, kind))
    for number in range(len(state.nodes)):
        causes = Counter(
            str(cause) for cause in unplaced_by_loss(state, number).elements()
            if cause.name == "FAILOVER"
        )  # fmt: skip
        rows = impact(state, number)
        failing = [one for one in rows if one["how"] == "unplaced" and "fail over" in one["why"]]
        assert len(failing) == causes.total()
        assert len({one["name"] for one in rows}) == len(rows)
        here = (state.primary == number) | (state.secondary == number)
        assert len(rows) == here.sum()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("fullest", [0.5, 0.9, 0.97])
def test_impacts_count_what_impact_lists(seed: int, fullest: float) -> None:
    state = State(cluster(seed, Kind(groups=2, closed=0.0, stopped=0.2, tags=0.0, fullest=fullest)))
    for number, found in enumerate(impacts(state)):
        wanted = Counter(one["how"] for one in impact(state, number))
        assert found.pop("name") == state.nodes[number].name
        assert Counter({how: count for how, count in found.items() if count}) == wanted


def test_impacts_leave_counts_open_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    state = three_nodes(free=1_500)
    assert impacts(state)[0]["unplaced"] == 2
    monkeypatch.setattr("ganeti.placement.survey.EXACT_LIMIT", 0)
    first = impacts(state)[0]
    assert (first["unplaced"], first["failover"], first["lost"]) == (None, None, 1)


def test_overview_counts_room_and_names_what_cannot_be_lost() -> None:
    found = overview(three_nodes(), STANDARD)
    assert found["groups"][0]["n1_violations"] == []
    assert 0 < found["standard"]["fits"] < FITS_LIMIT
    assert found["standard"]["limited_by"]
    assert found["memory"]["total"] == 3 * 16_384
    assert found["memory"]["reserved"] + found["memory"]["available"] == found["memory"]["free"]
    full = overview(three_nodes(free=1_500), STANDARD)
    assert "n1" in full["groups"][0]["n1_violations"]
    assert full["standard"]["fits"] == 0
    assert full["standard"]["closed_groups"] == ["default"]


def test_overview_of_a_lone_node_counts_its_room() -> None:
    lone = State(Cluster([Group("default", "g1")], [node("n1", 16_384, 12_000)], []))
    plain = Instance(name="new", memory=1024, disk=1024, vcpus=1, template="plain", disks=(1024,))
    assert overview(lone, plain)["standard"]["fits"] > 0
