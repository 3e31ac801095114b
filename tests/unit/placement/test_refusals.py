"""What a refusal says: its cause, once for all nodes that share it; and what is no reason to refuse."""

from typing import Any

import msgspec
import placement_clusters as clusters
import pytest

from ganeti.placement.answers import answer
from ganeti.placement.description import Cluster
from ganeti.placement.load.text import parse
from tests.unit.placement.test_command_facts import mirrored, node, text

TAG = "htools:iextags:service"


def answered(given: Cluster, request: dict[str, Any]) -> dict[str, Any]:
    return answer(clusters.encoded(clusters.message(given, request)))


@pytest.mark.requirement("S237")
@pytest.mark.sampled(0)
def test_a_refusal_by_a_thousand_nodes_is_short() -> None:
    wanted = clusters.allocation("plain") | {"memory": 16384}
    given = clusters.cluster(1000)
    nodes = [
        msgspec.structs.replace(one, free_memory=1000 + number)
        for number, one in enumerate(given.nodes)
    ]
    found = answered(msgspec.structs.replace(given, nodes=nodes), wanted)
    assert not found["success"]
    assert "996 more: 14.0 to 15.0 GiB of memory short" in found["info"]
    assert len(found["info"]) < 1000


def tagged(name: str, on: str, other: str) -> str:
    return mirrored(name, on, other, 1024).replace("|drbd||", "|drbd|service:a|")


def four_nodes(*instances: str, free: int = 15360) -> Cluster:
    nodes = [node(name, free, "M" if name == "a" else "N") for name in "abcd"]
    return parse(text("\n".join(nodes), "\n".join(instances), TAG))


def evacuation(mode: str) -> dict[str, Any]:
    return {"type": "node-evacuate", "instances": ["x"], "evac_mode": mode}


def evacuated(given: Cluster, mode: str, **flags: bool) -> tuple[list[Any], list[Any]]:
    message = clusters.message(given, evacuation(mode))
    message["nodes"]["a"] |= flags
    moved, failed, _jobs = answer(clusters.encoded(message))["result"]
    return moved, failed


EVERYWHERE = [tagged("x", "a", "b"), *(tagged(f"y{name}", name, "a") for name in "bcd")]
"""No node is left on which x would not meet an instance that excludes it."""


@pytest.mark.requirement("S173")
@pytest.mark.parametrize("mode", ["primary-only", "all"])
def test_a_soft_limit_does_not_keep_an_instance_on_an_offline_node(mode: str) -> None:
    given = four_nodes(*EVERYWHERE)
    moved, failed = evacuated(given, mode, offline=True)
    assert (len(moved), failed) == (1, [])
    assert "a" not in moved[0][2][:1]
    moved, [[_name, why]] = evacuated(given, mode)
    assert moved == []
    assert "an instance there has the same exclusion tag" in why


@pytest.mark.requirement("S173", "S237")
@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("primary-only", "It cannot fail over to b: 2.0 GiB of memory short (FailMem)"),
        ("secondary-only", "Can't find any good node: c, d: 2.0 GiB of memory short (FailMem)"),
        (
            "all",
            "Can't find any good nodes for relocation: c, d: 2.0 GiB of memory short (FailMem)",
        ),
    ],
)
def test_an_evacuation_that_is_refused_names_the_cause(mode: str, why: str) -> None:
    given = four_nodes(mirrored("x", "a", "b", 4096), free=2049)
    moved, [[_name, said]] = evacuated(given, mode)
    assert moved == []
    assert said == why


def exclusive() -> dict[str, Any]:
    """A message in which nodes have exclusive storage and the spindles of x are not given."""
    message = clusters.message(four_nodes(mirrored("x", "a", "b", 1024)), {})
    for one in message["nodes"].values():
        one["ndparams"]["exclusive_storage"] = True
    return message


UNKNOWN_SPINDLES = (
    "c, d: the node has exclusive storage, and the disks have no number of spindles (FailSpindles)"
)


@pytest.mark.requirement("S172", "S237")
def test_a_relocation_that_is_refused_has_upstreams_word_for_the_cause() -> None:
    request = {"type": "relocate", "name": "x", "relocate_from": ["b"], "required_nodes": 1}
    found = answer(clusters.encoded(exclusive() | {"request": request}))
    assert not found["success"]
    assert UNKNOWN_SPINDLES in found["info"]


@pytest.mark.requirement("S173", "S237")
def test_an_evacuation_that_is_refused_has_upstreams_word_for_the_cause() -> None:
    message = exclusive() | {"request": evacuation("secondary-only")}
    [[_name, why]] = answer(clusters.encoded(message))["result"][1]
    assert UNKNOWN_SPINDLES in why


def test_a_failover_to_a_drained_node_is_refused_as_such() -> None:
    given = four_nodes(mirrored("x", "a", "b", 1024))
    message = clusters.message(given, evacuation("primary-only"))
    message["nodes"]["b"]["drained"] = True
    [[_name, why]] = answer(clusters.encoded(message))["result"][1]
    assert why == "It cannot fail over to b: drained"


def test_memory_that_stopped_instances_will_need_is_named_as_such() -> None:
    down = [
        f"z{name}|14000|1024|1|ADMIN_down|Y|{name}||plain||1|-" for name in "bcd"
    ]  # running, they would leave 1 GiB
    given = four_nodes(mirrored("x", "a", "b", 4096), *down)
    _moved, [[_name, why]] = evacuated(given, "primary-only")
    assert (
        why
        == "It cannot fail over to b: 2.7 GiB of memory short once its stopped instances run (FailMem)"
    )
