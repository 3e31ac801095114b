"""What recovery derives from the configuration: as much work as there are changes."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ganeti.base.clock import SystemClock
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.daemons.watched import Watching
from ganeti.model.names import AdminState
from ganeti.model.objects import Cluster, NodeUuid
from ganeti.simulation.example import configuration

INSTANCES = 200


def snapshot_of(instances: int = INSTANCES) -> Snapshot:
    cluster, *others = configuration(8, instances)
    assert isinstance(cluster, Cluster)
    return Snapshot.of(1, cluster, others=others)


def changed(snapshot: Snapshot, *things: object) -> Snapshot:
    draft = Draft(snapshot, SystemClock())
    for thing in things:
        draft.put(thing)  # type: ignore[type-var]  # stored objects
    return draft.finish()[0]


def test_one_changed_instance_is_derived_alone() -> None:
    snapshot, watching = snapshot_of(), Watching()
    found = watching.watched(snapshot, has_lease=True)
    lists, _ = watching.guests(snapshot, found)
    derived = watching.derived
    one = next(iter(snapshot.instances.values()))
    later = changed(snapshot, replace(one, admin_state=AdminState.DOWN))
    found = watching.watched(later, has_lease=True)
    assert watching.derived == derived + 1
    assert not found.instances[one.uuid].is_wanted
    after, dropped = watching.guests(later, found)
    assert not dropped
    assert one.uuid not in after.wanted[one.primary_node]
    others = lists.leased.keys() - {one.primary_node}
    assert all(after.leased[node] is lists.leased[node] for node in others)


def test_change_that_does_not_matter_gives_the_same_object() -> None:
    snapshot, watching = snapshot_of(), Watching()
    found = watching.watched(snapshot, has_lease=True)
    one = next(iter(snapshot.instances.values()))
    later = changed(snapshot, replace(one, tags=("new",)))
    assert watching.watched(later, has_lease=True) is found


def at_random(snapshot: Snapshot, dice: random.Random) -> Snapshot:
    """Return a configuration with one change of any kind that matters to recovery."""
    draft = Draft(snapshot, SystemClock())
    one = dice.choice(list(snapshot.instances.values()))
    node = dice.choice([one for one in snapshot.nodes.values() if not one.master_candidate])
    uuid = NodeUuid(dice.choice(list(snapshot.nodes)))
    (group,) = snapshot.groups.values()
    policy = {"recovery": dice.choice(["none", "restart", "failover"])}
    state = dice.choice([AdminState.UP, AdminState.DOWN])
    changes: list[Any] = [
        replace(one, primary_node=uuid),
        replace(one, under_lease=not one.under_lease),
        replace(one, migrating_to=dice.choice([None, uuid])),
        replace(one, admin_state=state),
        replace(one, beparams=policy),
        replace(node, offline=not node.offline),
        replace(group, beparams=policy),
        replace(snapshot.cluster, beparams={"default": policy}),
    ]
    if dice.random() < 0.1 and len(snapshot.instances) > 5:
        draft.remove(one)
    else:
        draft.put(dice.choice(changes))
    return draft.finish()[0]


def by_node(lists: Mapping[NodeUuid, Sequence[str]]) -> dict[NodeUuid, set[str]]:
    return {node: set(uuids) for node, uuids in lists.items()}


def test_followed_changes_give_what_a_new_start_gives() -> None:
    dice = random.Random(7)
    snapshot, watching = snapshot_of(20), Watching()
    told: set[str] = set()
    last = watching.watched(snapshot, has_lease=True)
    for _ in range(300):
        snapshot = at_random(snapshot, dice)
        found = watching.watched(snapshot, has_lease=True)
        if found is not last:
            before, now = last.instances, found.instances
            assert found.difference is not None
            assert found.difference.former is before
            uuids = {**before, **now}
            others = {one for one in uuids if before.get(one) != now.get(one)}
            assert set(found.difference.changed) == others
        last = found
        lists, dropped = watching.guests(snapshot, found)
        fresh = Watching()
        assert found == fresh.watched(snapshot, has_lease=True)
        expected, _ = fresh.guests(snapshot, found)
        assert by_node(lists.leased) == by_node(expected.leased)
        assert by_node(lists.wanted) == by_node(expected.wanted)
        assert lists.mirrored == expected.mirrored
        assert watching.unconfirmed == fresh.unconfirmed
        assert watching.ending == fresh.ending
        protected = {uuid for uuids in lists.leased.values() for uuid in uuids}
        assert set(dropped) == told - protected
        told = protected
