import asyncio
import itertools
import json
from typing import Any

import msgspec
import placement_clusters as clusters
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.daemons.allocation_client import AllocationClient
from ganeti.daemons.allocation_worker import Worker
from ganeti.placement.answers import Settings, answer
from ganeti.placement.balance import Goals, balance
from ganeti.placement.description import Cluster
from ganeti.placement.load.message import read
from ganeti.placement.places import Excluded, Rules
from ganeti.placement.redundancy import is_redundant
from ganeti.placement.score import score
from ganeti.placement.state import State
from tests.support.htools_fixtures import fixture_path

# What Debian's hail 3.0.2 answers.
ANSWERS: list[tuple[str, bool, Any]] = [
    ("hail-alloc-drbd.json", True, ["node2", "node1"]),
    ("hail-alloc-plain-tags.json", False, []),
    ("hail-reloc-drbd.json", True, ["node1"]),
    ("hail-alloc-twodisks.json", False, []),
    (
        "hail-multialloc-dedicated.json",
        True,
        [
            [
                ["instance-new-quarter-1", ["node2-quarter"]],
                ["instance-new-quarter-2", ["node3-half"]],
            ],
            [],
        ],
    ),
]


def reasons_of(message: dict[str, Any], chosen: list[str]) -> dict[str, str]:
    """Why the other nodes were not chosen, as the master computes it."""
    plain = json.loads(clusters.encoded(message))
    return dict(asyncio.run(AllocationClient(Worker().exchange).explain(plain, chosen, {})))


@pytest.mark.parametrize(("name", "success", "result"), ANSWERS)
@pytest.mark.requirement("S169", "S183")
def test_a_message_is_answered_as_hail_does(name: str, success: bool, result: Any) -> None:
    found = json.loads(msgspec.json.encode(answer(fixture_path(name).read_bytes())))
    assert (found["success"], found["result"]) == (success, result)


@pytest.mark.requirement("S169")
def test_a_lone_node_takes_an_instance_only_if_it_may() -> None:
    text = fixture_path("hail-alloc-twodisks.json").read_bytes()
    spared = Settings(rules=Rules(excluded=Excluded(lone_nodes=True)))
    assert not answer(text)["success"]
    assert answer(text, spared)["success"]


@pytest.mark.requirement("S173", "S174", "S178")
@pytest.mark.parametrize(
    ("name", "moved"),
    [
        ("hail-node-evac.json", ["instance2", "default", ["node2", "node1"]]),
        ("hail-change-group.json", ["instance14", "empty", ["node11", "node10"]]),
    ],
)
def test_evacuations_are_answered_with_jobs(name: str, moved: list[Any]) -> None:
    found = answer(fixture_path(name).read_bytes())
    [[first], failed, [job]] = found["result"]
    assert (first, failed) == (moved, [])
    assert [one["OP_ID"].removeprefix("OP_INSTANCE_") for one in job] == [
        *("REPLACE_DISKS", "MIGRATE", "REPLACE_DISKS"),
    ]
    assert [one.get("remote_node") for one in job] == [moved[2][0], None, moved[2][1]]


def ask(cluster: Cluster, request: dict[str, Any], **rules: Any) -> dict[str, Any]:
    message = clusters.encoded(clusters.message(cluster, request))
    return answer(message, Settings(Rules(**rules)))


def changed(cluster: Cluster, index: int, **changes: Any) -> Cluster:
    nodes = list(cluster.nodes)
    nodes[index] = msgspec.structs.replace(nodes[index], **changes)
    return msgspec.structs.replace(cluster, nodes=nodes)


@pytest.mark.requirement("S168")
@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from(["drbd", "plain"]),
    st.integers(0, 4),
    st.sampled_from(["offline", "drained"]),
)
def test_nothing_is_allocated_to_closed_nodes_and_n1_is_kept(
    seed: int, template: str, closed: int, flag: str
) -> None:
    message = clusters.message(clusters.cluster(5, seed), clusters.allocation(template))
    name = list(message["nodes"])[closed]
    message["nodes"][name][flag] = True
    found = answer(clusters.encoded(message))
    assert name not in found["result"]
    if found["success"]:
        cluster, _request = read(clusters.encoded(message))
        state = State(cluster)
        bad = state.fails.sum()
        names = [one.name for one in state.nodes]
        nodes = [names.index(one) for one in found["result"]]
        state.append(read_wanted(message), nodes[0], nodes[1] if len(nodes) > 1 else -1)
        assert state.fails.sum() <= bad
        assert is_redundant(state)
    else:
        assert f"{name}: {flag}" in found["info"]


def read_wanted(message: dict[str, Any]) -> Any:
    from ganeti.placement.load.message import wanted_instance

    return wanted_instance(message["request"])


def test_each_node_has_a_reason() -> None:
    cluster = clusters.cluster(4)
    cluster = changed(cluster, 1, free_memory=100)
    cluster = changed(cluster, 2, free_disk=1)
    big = clusters.allocation("plain")
    message = clusters.message(cluster, big)
    message["nodes"]["node0000"]["drained"] = True
    message["nodes"]["node0003"]["vm_capable"] = False
    found = answer(clusters.encoded(message))
    assert found["success"] is False
    assert "node0000: drained" in found["info"]
    assert "node0001: 3.9 GiB of memory short" in found["info"]
    assert "node0002: 20.0 GiB of disk short" in found["info"]
    assert "node0003: not vm_capable" in found["info"]


def test_equal_and_worse_nodes_are_distinguished() -> None:
    empty = clusters.cluster(3)
    cluster = msgspec.structs.replace(
        empty,
        instances=[],
        nodes=[
            msgspec.structs.replace(
                node,
                free_memory=node.total_memory - 512 * (number == 0),
                free_disk=node.total_disk,
            )
            for number, node in enumerate(empty.nodes)
        ],
    )
    message = clusters.message(cluster, clusters.allocation("plain"))
    reasons = reasons_of(message, ["node0002"])
    assert reasons["node0001"].startswith("as good as the chosen node (score ")
    assert " against " in reasons["node0000"]


@pytest.mark.requirement("S235")
def test_a_policy_forbids_with_its_own_words() -> None:
    found = ask(clusters.cluster(4), clusters.allocation("plain") | {"memory": 64})
    assert "the policy of its group forbids it: memory-size 64 is not between 128" in found["info"]


def two_groups(policy: str) -> Cluster:
    """Half of the nodes in a group of their own; each mirrored instance within one."""
    first, second = clusters.cluster(3, 1), clusters.cluster(3, 2)
    other = msgspec.structs.replace(
        first.groups[0], name="other", uuid="uuid-group-2", alloc_policy=policy, networks=("net1",)
    )
    names = {node.name: f"other-{node.name}" for node in second.nodes}
    nodes = [
        msgspec.structs.replace(node, name=names[node.name], group=other.uuid)
        for node in second.nodes
    ]
    instances = [
        msgspec.structs.replace(
            one,
            name=f"o{one.name}",
            primary=names[one.primary],
            secondary=names.get(one.secondary, ""),
        )
        for one in second.instances
    ]
    return msgspec.structs.replace(
        first,
        groups=[*first.groups, other],
        nodes=[*first.nodes, *nodes],
        instances=[*first.instances, *instances],
    )


@pytest.mark.parametrize("policy", ["last_resort", "unallocable"])
def test_a_preferred_group_wins(policy: str) -> None:
    found = ask(two_groups(policy), clusters.allocation("drbd"), capacity=False)
    assert all(name.startswith("node") for name in found["result"])
    assert found["success"]


@pytest.mark.requirement("S171")
@pytest.mark.parametrize("group", ["other", "uuid-group-2"])
def test_a_group_that_is_named_is_used_even_if_it_takes_nothing_else(group: str) -> None:
    request = clusters.allocation("drbd") | {"group_name": group}
    found = ask(two_groups("unallocable"), request, capacity=False)
    assert [name.startswith("other-") for name in found["result"]] == [True, True]
    refused = ask(two_groups("preferred"), request | {"group_name": "nosuch"})
    assert (refused["success"], refused["result"]) == (False, [])
    assert "node group 'nosuch' does not exist" in refused["info"]


@pytest.mark.parametrize("group", ["other", "uuid-group-2"])
def test_nodes_outside_the_requested_group_are_reported(group: str) -> None:
    request = clusters.allocation("plain") | {"group_name": group}
    message = clusters.message(two_groups("preferred"), request)
    reasons = reasons_of(message, [])
    inside = {name for name in reasons if name.startswith("other-")}
    assert len(inside) == 3
    assert {reasons[name] for name in reasons.keys() - inside} == {"in another node group"}
    assert "in another node group" not in {reasons[name] for name in inside}


@pytest.mark.requirement("S169")
def test_the_old_evacuation_gives_new_secondaries_to_all_that_have_the_nodes_as_secondary() -> None:
    cluster = clusters.cluster(6)
    request = {"type": "multi-evacuate", "evac_nodes": ["node0001"]}
    pairs = dict(ask(cluster, request)["result"])
    leaving = {one.name: one for one in cluster.instances if one.secondary == "node0001"}
    assert pairs.keys() == leaving.keys()
    for name, secondary in pairs.items():
        assert secondary not in (leaving[name].primary, "node0001")


@pytest.mark.requirement("S169")
def test_the_old_evacuation_is_refused_as_a_whole_if_one_instance_cannot_go() -> None:
    cluster = clusters.cluster(2)
    found = ask(cluster, {"type": "multi-evacuate", "evac_nodes": ["node0001"]})
    assert (found["success"], found["result"]) == (False, [])
    assert "the group has no other online node" in found["info"]


def test_both_nodes_are_in_one_group_and_its_networks_count() -> None:
    request = clusters.allocation("drbd")
    request["nics"] = [{"network": "net1", "ip": None, "mac": "auto"}]
    found = ask(two_groups("last_resort"), request, capacity=False)
    assert all(name.startswith("other-") for name in found["result"])
    assert len(found["result"]) == 2


@pytest.mark.requirement("S234", "S172")
def test_a_relocation_stays_in_its_group_and_leaves_its_node() -> None:
    cluster = two_groups("preferred")
    one = cluster.instances[0]
    request = {"type": "relocate", "name": one.name, "required_nodes": 1}
    found = ask(cluster, request | {"relocate_from": [one.secondary]})
    [name] = found["result"]
    assert name.startswith("node")
    assert name not in (one.primary, one.secondary)
    refused = ask(cluster, request | {"relocate_from": [one.primary]})
    assert refused["success"] is False


@pytest.mark.requirement("S173", "S100")
@pytest.mark.parametrize("mode", ["primary-only", "secondary-only", "all"])
def test_an_evacuation_leaves_the_nodes_of_its_mode(mode: str) -> None:
    cluster = clusters.cluster(6)
    mirrored = [one for one in cluster.instances if one.secondary][:3]
    request = {"type": "node-evacuate", "evac_mode": mode, "instances": [o.name for o in mirrored]}
    moved, failed, jobs = ask(cluster, request)["result"]
    assert len(moved) + len(failed) == 3
    assert len(jobs) == len(moved)
    before = {one.name: (one.primary, one.secondary) for one in mirrored}
    for name, _group, nodes in moved:
        primary, secondary = before[name]
        if mode == "primary-only":
            assert nodes == [secondary, primary]
        elif mode == "secondary-only":
            assert nodes[0] == primary
            assert nodes[1] != secondary
        else:
            assert not {primary, secondary} & set(nodes)
    json.dumps(jobs)


def test_what_cannot_move_is_reported_and_keeps_nothing_else() -> None:
    cluster = clusters.cluster(6)
    plain = next(one for one in cluster.instances if one.template == "plain")
    mirrored = next(one for one in cluster.instances if one.secondary)
    names = [plain.name, mirrored.name]
    request = {"type": "node-evacuate", "evac_mode": "secondary-only", "instances": names}
    moved, failed, _jobs = ask(cluster, request)["result"]
    assert [one[0] for one in moved] == [mirrored.name]
    assert failed == [[plain.name, "Instances of type plain cannot be relocated"]]


@pytest.mark.requirement("S175", "S179")
def test_many_are_allocated_one_after_the_other() -> None:
    wanted = [
        clusters.allocation("plain") | {"name": f"new{n}", "memory": 16384} for n in range(40)
    ]
    found = ask(
        clusters.cluster(4), {"type": "multi-allocate", "instances": wanted}, capacity=False
    )
    done, failed = found["result"]
    assert len(done) + len(failed) == 40
    assert done
    assert failed
    assert len({tuple(nodes) for _name, nodes in done}) > 1


@pytest.mark.requirement("S186")
def test_balance_reports_which_moves_in_which_order() -> None:
    request = {"type": "balance", "max_moves": 3}
    moved, _failed, jobs, needed = ask(clusters.cluster(6), request)["result"]
    assert len(moved) == len(jobs) == len(needed) == 3
    state = State(clusters.cluster(6))
    before, steps = score(state), list(itertools.islice(balance(state, Goals()), 3))
    assert [name for name, _group, _nodes in moved] == [
        state.names[step.move.instance] for step in steps
    ]
    assert score(state) < before


@pytest.mark.requirement("S187")
def test_capacity_reports_how_many_fit_and_where() -> None:
    request = {**clusters.allocation("plain"), "type": "capacity"}
    found = ask(clusters.cluster(4), request)["result"]
    assert found == ask(clusters.cluster(4), request | {"max_instances": 10_000})["result"]
    assert ask(clusters.cluster(4), request | {"max_instances": 2})["result"] == found[:2]


def test_a_secondary_node_is_found_for_an_instance_without_one() -> None:
    cluster = clusters.cluster(5)
    plain = next(one for one in cluster.instances if one.template == "plain")
    found = ask(cluster, {"type": "allocate-secondary", "name": plain.name})
    assert found["success"]
    assert found["result"] not in ("", plain.primary)


@pytest.mark.parametrize(
    "request_",
    [
        {"type": "relocate", "name": "nobody", "relocate_from": []},
        {"type": "relocate", "name": "inst00000", "relocate_from": ["nowhere"]},
        {"type": "node-evacuate", "instances": "inst00000", "evac_mode": "all"},
        {"type": "node-evacuate", "instances": ["inst00000"], "evac_mode": "none"},
        {"type": "change-group", "instances": ["inst00000"], "target_groups": ["nosuch"]},
        {"type": "multi-allocate", "instances": 7},
        {"type": "balance", "max_moves": "many"},
        {"type": None},
    ],
)
def test_a_wrong_request_is_answered_no(request_: dict[str, Any]) -> None:
    found = ask(clusters.cluster(3), request_)
    assert (found["success"], found["result"]) == (False, [])
