"""Allocation of one instance: who is excluded and why, and who wins."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.placement.allocate import answer, judge

GROUP = {
    "name": "default",
    "alloc_policy": "preferred",
    "ipolicy": {"vcpu-ratio": 4.0, "disk-templates": ["sharedfile", "file", "diskless"]},
}


def node(**changes: Any) -> dict[str, Any]:
    base = {
        "group": "g1",
        "offline": False,
        "drained": False,
        "vm_capable": True,
        "total_memory": 1000,
        "free_memory": 800,
        "total_disk": 1000,
        "free_disk": 900,
        "total_cpus": 2,
    }
    return {**base, **changes}


def message(nodes: dict[str, Any], **request: Any) -> dict[str, Any]:
    return {
        "nodegroups": {"g1": copy.deepcopy(GROUP)},
        "nodes": nodes,
        "instances": {},
        "request": {
            "type": "allocate",
            "name": "new",
            "required_nodes": 1,
            "memory": 100,
            "vcpus": 1,
            "disk_space_total": 100,
            "disk_template": "sharedfile",
            **request,
        },
    }


def reason(changes: dict[str, Any], **request: Any) -> str:
    return judge(message({"n1": node(**changes)}, **request))[0].reason


@pytest.mark.requirement("S168")
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"offline": True}, "offline"),
        ({"drained": True}, "drained"),
        ({"vm_capable": False}, "not vm_capable"),
        ({"free_memory": 98}, "2 MiB of memory short"),
        ({"free_disk": 97}, "3 MiB of disk short"),
        ({"total_cpus": 0}, "1 virtual processors would exceed the limit of 0"),
    ],
)
def test_every_excluded_node_has_its_reason(changes: dict[str, Any], why: str) -> None:
    assert reason(changes) == why


def test_a_group_that_may_not_be_used_excludes_its_nodes() -> None:
    one = message({"n1": node()})
    one["nodegroups"]["g1"]["alloc_policy"] = "unallocable"
    assert judge(one)[0].reason == "its group is unallocable"


def test_a_template_that_the_group_does_not_allow_is_refused() -> None:
    found = reason({}, disk_template="drbd")
    assert "disk template drbd is not allowed by the instance policy" in found


@pytest.mark.requirement("S235")
def test_a_size_that_the_group_does_not_allow_is_refused() -> None:
    one = message({"n1": node(), "n2": node(group="g2")})
    one["nodegroups"]["g2"] = copy.deepcopy(GROUP)
    one["nodegroups"]["g1"]["ipolicy"]["minmax"] = [{"min": {}, "max": {"memory-size": 99}}]
    assert "memory-size 100 is not from 0 to 99" in judge(one)[0].reason
    assert answer(one)["result"] == ["n2"]


@pytest.mark.requirement("S176")
def test_a_failed_answer_has_an_empty_result_and_says_why() -> None:
    said = answer(message({"n1": node(offline=True), "n2": node(free_memory=0)}))
    assert not said["success"]
    assert said["result"] == []
    assert "n1: offline" in said["info"]
    assert "n2: 100 MiB of memory short" in said["info"]


def test_the_emptier_node_wins() -> None:
    said = answer(message({"n1": node(free_memory=300), "n2": node(free_memory=700)}))
    assert said == {**said, "success": True, "result": ["n2"]}


def test_a_last_resort_group_is_used_only_when_no_preferred_one_can() -> None:
    one = message({"n1": node(free_memory=200), "n2": node(group="g2")})
    one["nodegroups"]["g2"] = {**GROUP, "alloc_policy": "last_resort"}
    assert answer(one)["result"] == ["n1"]
    one["nodes"]["n1"]["free_memory"] = 0
    assert answer(one)["result"] == ["n2"]


@pytest.mark.requirement("S234")
def test_relocation_leaves_its_node_but_not_its_group() -> None:
    nodes = {"n1": node(), "n2": node(), "n3": node(group="g2")}
    one = message(nodes, type="relocate", relocate_from=["n1"])
    one["nodegroups"]["g2"] = GROUP
    reasons = {verdict.node: verdict.reason for verdict in judge(one)}
    assert reasons == {"n1": "the instance is to leave it", "n2": "", "n3": "in another node group"}


def test_virtual_processors_of_others_count() -> None:
    one = message({"n1": node(), "n2": node()})
    one["instances"] = {f"i{i}": {"nodes": ["n1"], "vcpus": 4} for i in range(2)}
    assert answer(one)["result"] == ["n2"]
    assert "9 virtual processors would exceed the limit of 8" in judge(one)[0].reason


def test_an_unknown_request_is_refused_without_an_error() -> None:
    assert "not implemented" in answer(message({"n1": node()}, type="node-evacuate"))["info"]


NODES = st.dictionaries(
    st.sampled_from([f"n{i}" for i in range(6)]),
    st.builds(
        lambda free, disk, offline, drained: node(
            free_memory=free, free_disk=disk, offline=offline, drained=drained
        ),
        st.integers(0, 1000),
        st.integers(0, 1000),
        st.booleans(),
        st.booleans(),
    ),
    max_size=6,
)


@pytest.mark.requirement("S168")
@given(NODES, st.integers(1, 1000))
def test_a_chosen_node_is_always_usable(nodes: dict[str, Any], memory: int) -> None:
    said = answer(message(nodes, memory=memory))
    usable = [
        name
        for name, one in nodes.items()
        if not one["offline"]
        and not one["drained"]
        and one["free_memory"] >= memory
        and one["free_disk"] >= 100
    ]
    assert said["success"] == bool(usable)
    assert set(said["result"]) <= set(usable)
