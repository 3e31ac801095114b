"""Which nodes can be switched off or must come back; the peer agrees on generated clusters."""

import random
from pathlib import Path

import placement_clusters as clusters
import pytest
from htools_peer import Peer
from msgspec.structs import replace

from ganeti.placement.description import Cluster, Group, Instance, Node
from ganeti.placement.load.text import format_cluster, parse
from ganeti.placement.squeeze import (
    STANDBY_AUTO,
    Action,
    Plan,
    idle_candidates,
    plan,
    room_for,
    standby_nodes,
)
from ganeti.placement.state import State

GIB = 1024
STANDARD = 1 * GIB
POLICY = {**clusters.POLICY, "std": {**clusters.POLICY["std"], "memory-size": STANDARD, "cpu-count": 1}}  # fmt: skip


def a_cluster(hosted: list[int], *, offline: int = 0, template: str = "ext") -> Cluster:
    """Nodes of 16 GiB with so many instances of 2 GiB each; the first is the master, the last `offline` wait."""
    last = len(hosted) - offline
    nodes = [
        Node(
            name=f"node{number}", group=clusters.GROUP, total_memory=16 * GIB,
            free_memory=(16 - 2 * count) * GIB, total_disk=100 * GIB, free_disk=100 * GIB,
            total_cpus=8, is_master=number == 0, total_spindles=1, offline=number >= last,
            tags=(STANDBY_AUTO,) if number >= last else (),
        )
        for number, count in enumerate(hosted)
    ]  # fmt: skip
    instances = [
        Instance(f"inst{node}-{number}", 2 * GIB, 0, 1, primary=f"node{node}", template=template)
        for node, count in enumerate(hosted)
        for number in range(count)
    ]
    group = Group(name="default", uuid=clusters.GROUP, policy=POLICY)
    return Cluster(groups=[group], nodes=nodes, instances=instances, policy=POLICY)


def planned(cluster: Cluster, least: float = 1, wanted: float = 1) -> Plan:
    return plan(State(cluster), room_for(POLICY, least), room_for(POLICY, wanted))


def test_nodes_whose_instances_fit_elsewhere_are_switched_off_the_emptiest_first() -> None:
    found = planned(a_cluster([2, 3, 1, 2]))
    assert found.action is Action.OFFLINE
    assert found.nodes == (3, 2)
    assert not found.after.offline[found.after.primary].any()
    assert len({step.move.instance for step in found.steps} & {5, 6, 7}) == 3


def test_a_greater_room_keeps_more_nodes() -> None:
    cluster = a_cluster([2, 3, 1, 2])
    kept = [len(planned(cluster, 1, factor).nodes) for factor in (1, 6, 10, 14)]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] > kept[-1] == 0


def test_a_node_without_room_brings_back_as_few_nodes_as_suffice() -> None:
    found = planned(a_cluster([7, 7, 0, 0], offline=2), least=3)
    assert (found.action, found.nodes, found.suffices) == (Action.ONLINE, (2,), True)
    assert found.steps


def test_all_come_back_if_even_that_is_too_little() -> None:
    found = planned(a_cluster([7, 7, 0, 0], offline=2), least=12)
    assert (found.nodes, found.suffices) == ((2, 3), False)


def test_nothing_is_done_between_the_two_limits() -> None:
    assert planned(a_cluster([3, 3]), least=1, wanted=8).action is Action.NONE


def test_only_nodes_that_can_do_without_and_only_those_that_wait_are_candidates() -> None:
    cluster = a_cluster([1, 1, 1, 0], offline=1)
    assert idle_candidates(State(cluster)) == [1, 2]
    assert standby_nodes(State(cluster)) == [3]
    local = [
        replace(one, template="plain") if one.primary == "node1" else one
        for one in cluster.instances
    ]
    assert idle_candidates(State(replace(cluster, instances=local))) == [2]
    plain = [replace(node, tags=()) for node in cluster.nodes]
    assert standby_nodes(State(replace(cluster, nodes=plain))) == []


def generated(seed: int) -> Cluster:
    """Some nodes offline, instances of several templates."""
    chooser = random.Random(seed)
    cluster = a_cluster([0] * chooser.randint(3, 7))
    nodes = [
        replace(node, offline=not node.is_master and chooser.random() < 0.25)
        for node in cluster.nodes
    ]
    live = [node.name for node in nodes if not node.offline]
    free = dict.fromkeys(live, 16 * GIB)
    instances = []
    for number in range(chooser.randint(0, 10 * len(live))):
        size, where = chooser.choice([512, GIB, 2 * GIB]), chooser.choice(live)
        if free[where] > size + chooser.randint(0, 4 * GIB):
            free[where] -= size
            instances.append(
                Instance(
                    f"inst{number:03}", size, 0, 1, primary=where,
                    template=chooser.choice(["ext"] * 6 + ["sharedfile", "plain"]),
                )
            )  # fmt: skip
    nodes = [
        replace(
            node,
            free_memory=free.get(node.name, 16 * GIB),
            tags=(STANDBY_AUTO,) if node.offline else (),
        )
        for node in nodes
    ]
    return replace(cluster, nodes=nodes, instances=instances)


@pytest.mark.sampled(0)
@pytest.mark.timeout(60)
def test_the_peer_switches_the_same_nodes_off_and_on(tmp_path: Path) -> None:
    peer = Peer()
    if not peer.binary.exists():
        pytest.skip("Debian's htools are not in the cache; make bench ONLY=placement fetches them")
    path, actions = tmp_path / "data", set()
    for seed in range(16):
        path.write_text(format_cluster(generated(seed)))
        least, wanted = 1 + 2 * (seed % 2), 1 + seed % 4
        words = [f"--minimal-resources={least}", f"--target-resources={wanted}"]
        printed, _spent = peer.run("hsqueeze", "-t", str(path), *words)
        found = planned(parse(path.read_text()), least, wanted)
        actions.add(found.action)
        names = [found.after.nodes[node].name for node in found.nodes]
        assert [f"'{found.action}'", *names] == printed.split("\n")[:-1], seed
    assert actions == set(Action)
