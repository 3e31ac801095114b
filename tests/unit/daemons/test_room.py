"""Which changes of the configuration may make room for an instance that fitted nowhere."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.snapshot import Snapshot
from ganeti.daemons.room import gains_room
from ganeti.model.names import AdminState, AllocPolicy
from ganeti.model.objects import Cluster, Grant, Instance, Node, NodeGroup, NodeRow, NodeUuid
from ganeti.model.recovery import InstanceRow, NodeState
from ganeti.model.stored import Stored
from tests.unit.config.sample import (
    sample_cluster,
    sample_group,
    sample_instance,
    sample_node,
)

pytestmark = pytest.mark.requirement("D13")
Change = Callable[[Any], Stored | None]

BEFORE: tuple[Stored, ...] = (
    sample_group(),
    sample_node(1),
    sample_node(2, offline=True),
    sample_node(3, drained=True),
    sample_instance(1, admin_state=AdminState.UP),
    sample_instance(2, admin_state=AdminState.UP, primary_node=sample_node(2).uuid),
)


def snapshot(cluster: Cluster, *objects: Stored | None) -> Snapshot:
    return Snapshot.of(1, cluster, others=[one for one in objects if one is not None])


def gains(kind: type[Stored], name: str, change: Change) -> bool:
    """Whether a change of the object of that kind with that name counts."""
    cluster = sample_cluster()

    def changed(one: Stored) -> Stored | None:
        return change(one) if isinstance(one, kind) and one.name == name else one

    new: Any = change(cluster) if kind is Cluster else cluster
    return gains_room(snapshot(cluster, *BEFORE), snapshot(new, *map(changed, BEFORE)))


ONE, TWO, THREE = (sample_node(number).name for number in (1, 2, 3))
HERE, LOST = (sample_instance(number).name for number in (1, 2))


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        (Instance, HERE, lambda one: None),
        (Instance, HERE, lambda one: replace(one, admin_state=AdminState.DOWN)),
        (Instance, HERE, lambda one: replace(one, primary_node=sample_node(2).uuid)),
        (Instance, HERE, lambda one: replace(one, beparams={"maxmem": 64})),
        (Instance, LOST, lambda one: replace(one, beparams={"maxmem": 64})),
        (Node, TWO, lambda one: replace(one, offline=False)),
        (Node, THREE, lambda one: replace(one, drained=False)),
        (Node, ONE, lambda one: replace(one, ndparams={"spindle_count": 9})),
        (NodeGroup, sample_group().name, lambda one: replace(one, ipolicy={"vcpu-ratio": 9.0})),
        (
            NodeGroup,
            sample_group().name,
            lambda one: replace(one, alloc_policy=AllocPolicy.LAST_RESORT),
        ),
        (Cluster, "", lambda one: replace(one, ipolicy={"vcpu-ratio": 9.0})),
    ],
)
def test_change_that_may_make_room_is_noticed(
    kind: type[Stored], name: str, change: Change
) -> None:
    assert gains(kind, name, change)


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        (Instance, HERE, lambda one: one),
        (Instance, HERE, lambda one: replace(one, under_lease=True)),
        (Instance, HERE, lambda one: replace(one, recovery=InstanceRow(one.uuid, (1.0,)))),
        (Instance, LOST, lambda one: replace(one, primary_node=sample_node(1).uuid)),
        (Instance, LOST, lambda one: replace(one, admin_state=AdminState.DOWN)),
        (Node, ONE, lambda one: replace(one, offline=True)),
        (Node, TWO, lambda one: None),
        (Node, TWO, lambda one: replace(one, recovery=NodeRow(one.uuid, NodeState.FENCED, 3))),
        (Node, ONE, lambda one: replace(one, recovery=NodeRow(one.uuid, NodeState.HEALTHY, 3))),
        (Cluster, "", lambda one: replace(one, serial_no=99)),
    ],
)
def test_change_that_makes_no_room_is_ignored(
    kind: type[Stored], name: str, change: Change
) -> None:
    assert not gains(kind, name, change)


def test_new_node_is_noticed() -> None:
    cluster = sample_cluster()
    without = [one for one in BEFORE if one.name != THREE]
    assert gains_room(snapshot(cluster, *without), snapshot(cluster, *without, sample_node(3)))
    drained = sample_node(3, drained=True)
    assert not gains_room(snapshot(cluster, *without), snapshot(cluster, *without, drained))


def test_new_instance_makes_no_room() -> None:
    cluster = sample_cluster()
    assert not gains_room(
        snapshot(cluster, *BEFORE), snapshot(cluster, *BEFORE, sample_instance(5))
    )


def test_copy_that_becomes_current_is_noticed() -> None:
    one, two = (NodeUuid(sample_node(number).uuid) for number in (1, 2))

    def granted(*current: NodeUuid) -> Change:
        grant = Grant(3, frozenset(current), one)
        return lambda it: replace(it, disks=tuple(replace(disk, grant=grant) for disk in it.disks))

    cluster = sample_cluster()
    own = sample_instance(1, admin_state=AdminState.UP)
    assert own.disks

    def with_copies(*current: NodeUuid) -> Snapshot:
        return snapshot(cluster, *BEFORE[:4], granted(*current)(own))

    assert gains_room(with_copies(one), with_copies(one, two))
    assert not gains_room(with_copies(one, two), with_copies(one))
