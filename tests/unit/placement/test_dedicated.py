"""Exclusive storage: where every node has it, what an allocation makes impossible decides, and explanations say so."""

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import placement_clusters as clusters
import pytest
from htools_peer import Peer

from ganeti.placement.allocate import allocate
from ganeti.placement.answers import answer
from ganeti.placement.description import Cluster, Instance
from ganeti.placement.explain import explain
from ganeti.placement.load.text import parse
from ganeti.placement.places import Rules
from ganeti.placement.redundancy import is_redundant
from ganeti.placement.state import State
from tests.support.exclusive_clusters import Generated

GIB = 1024
STANDARD, TEMPLATES = "1024,1,10240,1,1,1", "plain,drbd,file|4.0|32.0"
POLICY = f"{STANDARD}|1024,1,10240,1,1,1;16384,8,409600,1,1,8|{TEMPLATES}"
WANTED = Instance("new", 4096, 102400, 1, template="plain", spindles=4, disks=(102400.0,))


def node(name: str, *, group: str = "u", flag: str = "Y", disk_gib: int = 800) -> str:
    disk = disk_gib * GIB
    role = "M" if name == "a" else "N"
    return f"{name}|32768|0|32768|{800 * GIB}|{disk}|16|{role}|{group}|12||{flag}|12|1"


def described(
    *nodes: str, groups: str = "g|u|preferred||", instance: str = "", policy: str = POLICY
) -> Cluster:
    owners = ["", *(line.split("|")[0] for line in groups.split("\n"))]
    policies = "\n".join(f"{owner}|{policy}" for owner in owners)
    instances = [instance] if instance else []
    return parse("\n".join([groups, "", *nodes, "", *instances, "", "", policies, ""]))


def chosen(given: Cluster, rules: Rules | None = None) -> str:
    state = State(given)
    place, _places = allocate(state, WANTED, rules or Rules())
    return state.nodes[place.nodes[0]].name


# What Debian's hail 3.0.2 answers.
@pytest.mark.requirement("S168")
def test_of_nodes_that_cost_the_same_the_last_is_chosen() -> None:
    assert chosen(described(node("a"), node("b"))) == "b"


@pytest.mark.requirement("S168")
def test_the_node_with_less_disk_is_kept_for_smaller_instances() -> None:
    assert chosen(described(node("a", disk_gib=600), node("b"))) == "a"


TWO_GROUPS = "g|u|preferred||\nh|v|preferred||"


@pytest.mark.requirement("S168")
def test_groups_are_compared_by_what_is_lost_too() -> None:
    """The score would choose the other group."""
    given = described(
        node("a"), node("b"), node("c", group="v", disk_gib=500), node("d", group="v"),
        groups=TWO_GROUPS,
    )  # fmt: skip
    assert chosen(given) == "c"


@pytest.mark.requirement("S168")
def test_one_node_without_exclusive_storage_makes_the_score_decide() -> None:
    given = described(node("a", disk_gib=600), node("b"), node("c", flag="N"))
    assert chosen(given, Rules(capacity=False)) != "a"
    closed = msgspec.structs.replace(
        given,
        nodes=[*given.nodes[:2], msgspec.structs.replace(given.nodes[2], group="v")],
        groups=[*given.groups, msgspec.structs.replace(given.groups[0], name="h", uuid="v", alloc_policy="unallocable")],
    )  # fmt: skip
    assert chosen(closed) == "a"


TWO_INTERVALS = f"{STANDARD}|8192,1,10240,1,1,1;16384,8,409600,1,1,16;1024,1,51200,1,1,1;16384,8,409600,1,1,16|{TEMPLATES}"
STOPPED = "i|16268|1024|1|ADMIN_down|Y|b||plain||1|1"

# What Debian's hail 3.0.2 says.
COSTS = [
    ("one interval", "", POLICY, {}, "([4],716800), successes 2, failures 0 () for node(s) b"),
    ("the interval with the larger disk first", "", TWO_INTERVALS, {},
     "([2,0],716800), successes 2, failures 0 () for node(s) b"),
    ("memory that a stopped instance will need", STOPPED, TWO_INTERVALS, {},
     "([2,0],716800), successes 2, failures 0 () for node(s) a"),
    ("a mirror costs on both nodes", "", POLICY, {"template": "drbd"},
     "([8],1433600), successes 2, failures 0 () for node(s) b/a"),
    ("files take spindles that are not there", "", TWO_INTERVALS, {"template": "file", "spindles": 13},
     "([15,3],819200), successes 2, failures 0 () for node(s) b"),
    ("files without spindles", "", POLICY, {"template": "file", "spindles": None},
     "failure reasons: FailSpindles: 2"),
]  # fmt: skip


@pytest.mark.requirement("S168")
@pytest.mark.parametrize(
    ("instance", "policy", "changes", "said"),
    [one[1:] for one in COSTS],
    ids=[one[0] for one in COSTS],
)
def test_a_place_reports_what_it_costs_as_upstream_does(
    instance: str, policy: str, changes: dict[str, Any], said: str
) -> None:
    given = described(node("a"), node("b"), instance=instance, policy=policy)
    request = clusters.request(msgspec.structs.replace(WANTED, **changes))
    info = answer(clusters.encoded(clusters.message(given, request)))["info"]
    assert info.endswith(said)


def differs_on_purpose(given: Cluster, theirs: dict[str, Any]) -> bool:
    """Return whether upstream refuses because of N+1 violations before, which here exclude only their own group."""
    is_refused = not theirs["success"] and "FailN1" in theirs["info"]
    return is_refused and len(given.groups) > 1 and not is_redundant(State(given))


TIED = (21,)
"""Two nodes are equal but for their disks, whose size does not count there: upstream's rounding decides."""


@pytest.mark.sampled(0)
@pytest.mark.requirement("S168")
def test_exclusive_storage_is_chosen_as_the_peer_does(tmp_path: Path) -> None:
    peer = Peer()
    if not peer.binary.exists():
        pytest.skip("Debian's htools are not in the cache; make bench ONLY=placement fetches them")
    path = tmp_path / "message"
    different = 0
    for seed in sorted(set(range(120)) - set(TIED)):
        given = Generated(seed)
        request = clusters.request(given.wanted)
        path.write_bytes(clusters.encoded(clusters.message(given.cluster, request)))
        theirs, ours = json.loads(peer.run("hail", str(path))[0]), answer(path.read_bytes())
        if differs_on_purpose(given.cluster, theirs):
            different += 1
            continue
        assert (ours["success"], ours["result"]) == (theirs["success"], theirs["result"])
        assert ours["info"].endswith(theirs["info"].removeprefix("Request failed: "))
    assert different < 10


def requests_to_leave(names: list[str]) -> list[dict[str, Any]]:
    """Evacuations of one instance and of all, and changes of the group."""
    few = [[name] for name in names[:3]]
    modes = ("primary-only", "secondary-only", "all")
    found = [
        {"type": "node-evacuate", "instances": some, "evac_mode": mode}
        for some in (*few, names)
        for mode in modes
    ]
    return found + [
        {"type": "change-group", "instances": some, "target_groups": []} for some in few
    ]


@pytest.mark.sampled(0)
@pytest.mark.timeout(300)
@pytest.mark.requirement("S168")
def test_instances_leave_exclusive_storage_as_the_peer_moves_them(tmp_path: Path) -> None:
    """Only a number of spindles that is not known makes a difference, which is on purpose."""
    peer = Peer()
    if not peer.binary.exists():
        pytest.skip("Debian's htools are not in the cache; make bench ONLY=placement fetches them")
    path = tmp_path / "message"
    compared = different = 0
    for seed in range(70, 120):
        given = Generated(seed).cluster
        unknown = {one.name for one in given.instances if one.spindles is None}
        for request in requests_to_leave([one.name for one in given.instances]):
            path.write_bytes(clusters.encoded(clusters.message(given, request)))
            theirs, ours = json.loads(peer.run("hail", str(path))[0]), answer(path.read_bytes())
            compared += 1
            if moves_of(ours) != moves_of(theirs):
                assert unknown & set(request["instances"]), (seed, request)
                assert "FailSpindles" in str(theirs["result"]), (seed, request)
                different += 1
    assert compared > 300
    assert 0 < different < 20


def moves_of(answered: dict[str, Any]) -> Any:
    """The moved instances with their nodes, and the names of the others."""
    if not answered["success"]:
        return None
    moved, failed, _jobs = answered["result"]
    return sorted(map(str, moved)), sorted(name for name, _reason in failed)


def test_a_mirrored_instance_without_spindles_can_still_fail_over() -> None:
    """Its second copy is there already. Upstream refuses, and counts its node as one that cannot be lost."""
    given = described(
        node("a"), node("b"), node("c"), instance="i|1024|10240|1|running|Y|a|b|drbd||1|-"
    )
    request = {"type": "node-evacuate", "instances": ["i"], "evac_mode": "primary-only"}
    result = answer(clusters.encoded(clusters.message(given, request)))["result"]
    assert result[0] == [["i", "g", ["b", "a"]]]
    assert is_redundant(State(given))


@pytest.mark.parametrize("seed", range(20))
def test_an_explanation_never_denies_the_rules_that_chose(seed: int) -> None:
    chooser = random.Random(seed)
    groups = TWO_GROUPS if seed % 2 else "g|u|preferred||"
    given = described(
        *(
            node(
                name,
                group=chooser.choice("uv" if seed % 2 else "u"),
                disk_gib=chooser.choice([200, 400, 600, 800]),
                flag=chooser.choice("YYYN") if seed % 5 == 0 else "Y",
            )
            for name in "abcdef"
        ),
        groups=groups,
    )
    state = State(given)
    rules = Rules(capacity=False)
    place, _places = allocate(state, WANTED, rules)
    reasons = dict(explain(state, WANTED, rules, place.nodes))
    assert len(reasons) == 5
    for reason in reasons.values():
        assert "did not follow these rules" not in reason


def test_the_reason_against_a_node_is_what_it_would_lose() -> None:
    state = State(described(node("a", disk_gib=600), node("b")))
    assert dict(explain(state, WANTED, Rules(), (0,))) == {
        "b": "loses [4] later allocations and leaves 700.0 GiB of disk,"
        " against loses [4] later allocations and leaves 500.0 GiB of disk"
    }
    assert "did not follow these rules" in dict(explain(state, WANTED, Rules(), (1,)))["a"]
