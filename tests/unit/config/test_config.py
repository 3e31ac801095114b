"""The configuration: order, durability, refusals, upgrades."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from ganeti.base.errors import (
    CommitUnknown,
    ConfigurationError,
    ErrorCode,
    NotMaster,
    PrereqError,
    Refused,
)
from ganeti.config.changes import CHANGED_BY
from ganeti.config.config import Config
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.model import wire
from ganeti.model.objects import Disk, Grant, Instance, Nic, NodeRow
from ganeti.model.recovery import InstanceRow, NodeState
from ganeti.simulation.counting_ids import CountingIds
from ganeti.simulation.faulty_store import Crash, FaultyStore, Refuse, Unknown
from ganeti.simulation.virtual_time import WALL_START, LoopClock
from ganeti.store.backend import become_master
from ganeti.store.interface import Put, Transaction
from tests.support.predictable import FrozenClock
from tests.unit.config.sample import (
    CLUSTER_UUID,
    GROUP,
    NODES,
    sample_cluster,
    sample_config,
    sample_group,
    sample_instance,
    sample_node,
    sample_objects,
    sample_snapshot,
    store_with,
)

pytestmark = pytest.mark.virtual_time


def add(number: int, **fields: object) -> "Adder":
    return Adder(sample_instance(number, **fields))


class Adder:
    """A change that puts one instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    def __call__(self, draft: Draft) -> Instance:
        return draft.put(self.instance)


async def test_a_change_is_seen_when_it_is_durable_and_not_before() -> None:
    store, config = await sample_config()
    before = config.snapshot
    change = asyncio.create_task(config.change(add(1)))
    await asyncio.sleep(0)
    assert config.snapshot is before
    added = await change
    assert (added.serial_no, added.ctime, added.mtime) == (1, WALL_START, WALL_START)
    assert config.snapshot.instances[added.uuid] == added
    assert config.snapshot.instance_by_name("web1.example.com") == added
    assert config.snapshot.instances_on(NODES[0]) == [added]
    assert config.snapshot.position > before.position
    assert before.instances == {}
    assert ("instance", added.uuid) in store.disk.rows
    await store.close()


@pytest.mark.requirement("G2", "S53")
async def test_each_object_counts_its_changes_and_the_position_rises() -> None:
    store, config = await sample_config(1)
    seen: list[Snapshot] = []
    config.subscribe(seen.append)
    for _ in range(3):
        await config.change(add(1))
    instance = config.snapshot.instances[sample_instance(1).uuid]
    assert instance.serial_no == 4
    positions = [snapshot.position for snapshot in seen]
    assert positions == sorted(set(positions))
    assert positions[-1] == store.disk.position.as_int()
    await store.close()


async def test_changes_that_wait_share_the_next_transaction_in_order() -> None:
    store, config = await sample_config()
    before = store.statistics().transactions
    await asyncio.gather(*(config.change(add(number)) for number in range(1, 31)))
    assert len(config.snapshot.instances) == 30
    assert store.statistics().transactions - before <= 3
    await store.close()


async def test_only_the_changed_rows_are_written() -> None:
    store, config = await sample_config(20)
    await config.change(add(7, tags=("a",)))
    (operation,) = store.disk.log[-1].transaction.operations
    assert isinstance(operation, Put)
    assert (operation.kind, operation.key) == ("instance", sample_instance(7).uuid)
    await store.close()


async def test_rows_of_others_are_written_in_the_same_transaction() -> None:
    store, config = await sample_config()
    await config.change(add(1), also=[Put("job", "1", b"done")])
    assert [operation.kind for operation in store.disk.log[-1].transaction.operations] == [
        "instance",
        "job",
    ]
    await store.close()


async def test_a_change_that_raises_leaves_no_trace() -> None:
    store, config = await sample_config()

    def broken(draft: Draft) -> None:
        draft.put(sample_instance(1))
        raise PrereqError("no", ErrorCode.WRONG_STATE)

    with pytest.raises(PrereqError):
        await config.change(broken)
    await config.change(add(2))
    assert list(config.snapshot.instances) == [sample_instance(2).uuid]
    await store.close()


@pytest.mark.requirement("F1", "G16")
async def test_a_refused_change_takes_back_those_built_upon_it_and_later_ones_work() -> None:
    store, config = await sample_config()
    store.inject(Refuse())
    answers = await asyncio.gather(
        *(config.change(add(number)) for number in (1, 2, 3)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [Refused] * 3
    assert config.snapshot.instances == {}
    await config.change(add(2))
    assert list(config.snapshot.instances) == [sample_instance(2).uuid]
    assert [key for kind, key in store.disk.rows if kind == "instance"] == [sample_instance(2).uuid]
    await store.close()


async def test_what_was_on_its_way_before_a_refused_change_stays() -> None:
    store, config = await sample_config()
    store.inject(Refuse(), after=1)
    first = asyncio.create_task(config.change(add(1)))
    await asyncio.sleep(0)
    rest = await asyncio.gather(
        *(config.change(add(number)) for number in (2, 3)), return_exceptions=True
    )
    await asyncio.gather(first, return_exceptions=True)
    stored = {key for kind, key in store.disk.rows if kind == "instance"}
    assert stored == set(config.snapshot.instances)
    assert any(isinstance(answer, Refused) for answer in rest)
    await store.close()


async def test_unknown_commit_ends_use_of_the_configuration() -> None:
    store, config = await sample_config()
    lost: list[Exception] = []
    config.on_lost = lost.append
    store.inject(Unknown(written=True))
    first = asyncio.create_task(config.change(add(1)))
    for _ in range(2):  # the first is on its way alone
        await asyncio.sleep(0)
    with pytest.raises(NotMaster):
        await config.change(add(2))
    with pytest.raises(CommitUnknown):
        await first
    with pytest.raises(NotMaster):
        await config.change(add(3))
    assert len(lost) == 1
    assert config.snapshot.instances == {}
    await store.close()


async def test_a_caller_that_goes_away_does_not_take_its_change_back() -> None:
    store, config = await sample_config()
    change = asyncio.create_task(config.change(add(1)))
    await asyncio.sleep(0)
    change.cancel()
    await asyncio.sleep(1)
    assert len(config.snapshot.instances) == 1
    await store.close()


async def test_a_change_too_large_for_a_transaction_is_refused_for_good() -> None:
    store, config = await sample_config()

    def large(draft: Draft) -> None:
        for number in range(1, 102):
            draft.put(sample_instance(number))

    with pytest.raises(ConfigurationError, match="too large"):
        await config.change(large)
    assert config.snapshot.instances == {}
    await store.close()


async def test_one_bad_listener_does_not_stop_the_others() -> None:
    store, config = await sample_config()
    seen: list[int] = []

    def bad(_snapshot: Snapshot) -> None:
        raise ValueError("oops")

    config.subscribe(bad)
    end = config.subscribe(lambda snapshot: seen.append(snapshot.position))
    await config.change(add(1))
    end()
    await config.change(add(2))
    assert len(seen) == 1
    await store.close()


@pytest.mark.requirement("G2")
@pytest.mark.parametrize("written", [False, True])
async def test_every_acknowledged_change_survives_a_crash(written: bool) -> None:
    for after in range(12):
        store, config = await sample_config()
        store.inject(Crash(written=written), after=after)
        acknowledged: set[str] = set()
        for number in range(1, 9):
            answers = await asyncio.gather(
                config.change(add(number)), config.change(add(100 + number)), return_exceptions=True
            )
            acknowledged |= {one.uuid for one in answers if isinstance(one, Instance)}
        position = config.snapshot.position
        disk = store.crash()
        store, lease = await store_with(disk=disk)
        again = await Config.load(store, lease, LoopClock(), CountingIds())
        assert acknowledged <= set(again.snapshot.instances)
        assert again.snapshot.position >= position
        await store.close()


@pytest.mark.requirement("G3")
@pytest.mark.parametrize(
    ("row", "text"),
    [
        (Put("node", NODES[0], b"{"), "damaged"),
        (Put("node", NODES[0], wire.encode({"format": 99, "uuid": NODES[0]})), "newer version"),
        (Put("node", NODES[0], wire.encode({"format": 1, "uuid": NODES[0]})), "damaged"),
        (Put("cluster", "x", wire.encode(sample_cluster(uuid="x"))), "2 clusters"),
    ],
)
async def test_a_damaged_or_newer_configuration_is_refused(row: Put, text: str) -> None:
    store, lease = await store_with(*sample_objects())
    await store.commit(lease, Transaction((row,)))
    with pytest.raises(ConfigurationError, match=text):
        await Config.load(store, lease, LoopClock(), CountingIds())
    await store.close()


async def test_a_store_without_a_cluster_is_refused() -> None:
    store, lease = await store_with()
    with pytest.raises(ConfigurationError, match="init"):
        await Config.load(store, lease, LoopClock(), CountingIds())
    await store.close()


@pytest.mark.requirement("S89", "S90", "S80")
async def test_old_rows_get_uuids_once_and_stay_stable() -> None:
    store = FaultyStore()
    lease = await become_master(store)
    node = {"name": "node1.example.com", "primary_ip": "192.0.2.1", "secondary_ip": "192.0.2.1",
            "group": GROUP, "certificate": "", "master_candidate": True}  # fmt: skip
    nic = {"mac": "aa:00:00:00:00:01", "bridge": "br7"}
    instance = {"name": "web1.example.com", "primary_node": "node1.example.com", "nics": [nic]}
    cluster = {"name": "cluster.example.com", "master_node": "node1.example.com"}
    rows = (
        Put("cluster", CLUSTER_UUID, wire.encode(cluster)),
        Put("group", GROUP, wire.encode(sample_group())),
        Put("node", "node1.example.com", wire.encode(node)),
        Put("instance", "web1.example.com", wire.encode(instance)),
    )
    await store.commit(lease, Transaction(rows))
    first = (await Config.load(store, lease, LoopClock(), CountingIds())).snapshot
    found = first.instance_by_name("web1.example.com")
    assert found is not None
    assert found.uuid != "web1.example.com"
    assert found.primary_node == first.cluster.master_node == next(iter(first.nodes))
    assert found.nics[0].nicparams == {"mode": "bridged", "link": "br7"}
    assert found.nics[0].uuid
    second = (await Config.load(store, lease, LoopClock(), CountingIds())).snapshot
    assert (second.instances, second.nodes, second.position) == (
        first.instances,
        first.nodes,
        first.position,
    )
    await store.close()


@pytest.mark.requirement("S84")
async def test_parameters_that_became_global_are_dropped_from_instances() -> None:
    stray = sample_instance(1, hvparams={"migration_port": 1, "acpi": False})
    store, lease = await store_with(*sample_objects(), stray)
    config = await Config.load(store, lease, LoopClock(), CountingIds())
    assert config.snapshot.instances[stray.uuid].hvparams == {"acpi": False}
    assert b"migration_port" not in store.disk.rows["instance", stray.uuid]
    await store.close()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda d: d.put(sample_instance(9, name="web1.example.com")), "already_exists"),
        (lambda d: d.put(sample_instance(9, name="node1.example.com")), "already_exists"),
        (lambda d: d.put(sample_instance(9, name="cluster.example.com")), "already_exists"),
        (lambda d: d.put(sample_instance(9, nics=sample_instance(1).nics)), "resource_not_unique"),
        (lambda d: d.put(sample_instance(9, disks=sample_instance(1).disks)), "resource_not_unique"),
        (lambda d: d.put(sample_instance(9, primary_node=GROUP)), "unknown_entity"),
        (lambda d: d.put(sample_instance(9, secondary_nodes=(NODES[0],))), "wrong_input"),
        (lambda d: d.put(sample_instance(9, disk_template="tape")), "wrong_input"),
        (lambda d: d.put(sample_instance(9, disk_template="diskless")), "wrong_input"),
        (lambda d: d.put(sample_instance(9, name="-bad")), "wrong_input"),
        (lambda d: d.put(sample_instance(9, name="UPPER.example.com")), "wrong_input"),
        (lambda d: d.put(sample_instance(9, uuid="x")), "wrong_input"),
        (lambda d: d.put(sample_node(2, certificate="1" * 64)), "resource_not_unique"),
        (lambda d: d.put(sample_node(2, primary_ip="192.0.2.1")), "resource_not_unique"),
        (lambda d: d.put(sample_node(2, group=NODES[0])), "unknown_entity"),
        (lambda d: d.put(sample_node(2, offline=True)), "wrong_state"),
        (lambda d: d.put(sample_node(1, master_candidate=False)), "wrong_state"),
        (lambda d: d.remove(sample_node(1)), "wrong_state"),
        (lambda d: d.remove(sample_group()), "wrong_state"),
        (lambda d: d.put(sample_cluster(master_node=GROUP)), "unknown_entity"),
    ],
)  # fmt: skip
def test_a_change_that_breaks_a_rule_is_refused(change: object, code: str) -> None:
    assert callable(change)
    with pytest.raises(PrereqError) as caught:
        _finished(change)
    assert caught.value.code == code


def _finished(change: Callable[[Draft], object]) -> Snapshot:
    draft = Draft(sample_snapshot(3), FrozenClock())
    change(draft)
    snapshot, _ = draft.finish()
    # What was followed change by change is what is found when all is read anew.
    assert snapshot == Snapshot.of(
        snapshot.position,
        snapshot.cluster,
        nodes=snapshot.nodes.values(),
        groups=snapshot.groups.values(),
        instances=snapshot.instances.values(),
    )
    return snapshot


def test_addresses_are_unique_on_their_link_only() -> None:
    def nics(number: int, link: str) -> tuple[Nic, ...]:
        (nic,) = sample_instance(number).nics
        return (msgspec.structs.replace(nic, ip="198.51.100.1", nicparams={"link": link}),)

    def two(second_link: str) -> Callable[[Draft], object]:
        def change(draft: Draft) -> None:
            draft.put(sample_instance(8, nics=nics(8, "br0")))
            draft.put(sample_instance(9, nics=nics(9, second_link)))

        return change

    assert len(_finished(two("br1")).instances) == 5
    with pytest.raises(
        PrereqError, match=r"IP address 198\.51\.100\.1 on br0 is already used by instance web8"
    ):
        _finished(two("br0"))


def test_a_new_default_link_is_held_to_the_same_rule() -> None:
    (nic,) = sample_instance(1).nics
    one = sample_instance(
        8,
        nics=(msgspec.structs.replace(nic, uuid="n8", mac="aa:00:00:01:00:08", ip="198.51.100.1"),),
    )
    other = sample_instance(
        9,
        nics=(
            msgspec.structs.replace(
                nic,
                uuid="n9",
                mac="aa:00:00:01:00:09",
                ip="198.51.100.1",
                nicparams={"link": "br1"},
            ),
        ),
    )

    def change(draft: Draft) -> None:
        draft.put(one)
        draft.put(other)
        draft.put(sample_cluster(nicparams={"default": {"link": "br1"}}))

    with pytest.raises(PrereqError, match="is already used"):
        _finished(change)


def test_limits_of_disks_and_interfaces_hold() -> None:
    (disk,) = sample_instance(1).disks
    (nic,) = sample_instance(1).nics
    disks = tuple(
        msgspec.structs.replace(disk, uuid=f"d{n}", logical_id=("loop", f"/srv/{n}"))
        for n in range(17)
    )
    nics = tuple(
        msgspec.structs.replace(nic, uuid=f"n{n}", mac=f"aa:00:00:02:00:{n:02x}") for n in range(9)
    )
    most = _finished(lambda draft: draft.put(sample_instance(9, disks=disks[:16], nics=nics[:8])))
    assert len(most.instances) == 4
    with pytest.raises(PrereqError, match="16 disks"):
        _finished(lambda draft: draft.put(sample_instance(9, disks=disks)))
    with pytest.raises(PrereqError, match="8 network"):
        _finished(lambda draft: draft.put(sample_instance(9, nics=nics)))


def test_released_claim_can_be_taken_in_the_same_change() -> None:
    def swap(draft: Draft) -> None:
        draft.remove(sample_instance(1))
        draft.put(sample_instance(9, name="web1.example.com", nics=sample_instance(1).nics))

    snapshot = _finished(swap)
    found = snapshot.instance_by_name("web1.example.com")
    assert found is not None
    assert found.uuid == sample_instance(9).uuid
    with pytest.raises(ConfigurationError, match="no longer in the configuration"):
        Draft(snapshot, FrozenClock()).remove(sample_instance(1))


@pytest.mark.requirement("S88")
def test_the_uuid_of_the_cluster_never_changes() -> None:
    with pytest.raises(ConfigurationError, match="never changes"):
        _finished(lambda draft: draft.put(sample_cluster(uuid=GROUP)))


@pytest.mark.requirement("S90", "S93")
def test_a_rename_touches_one_object() -> None:
    draft = Draft(sample_snapshot(3), FrozenClock())
    draft.put(sample_node(1, name="renamed.example.com"))
    snapshot, operations = draft.finish()
    assert len(operations) == 1
    assert snapshot.node_by_name("node1.example.com") is None
    assert len(snapshot.instances_on(NODES[0])) == 3


@pytest.mark.requirement("D12", "D13")
def test_stale_version_keeps_what_recovery_has_committed() -> None:
    """A later version of the same fields, which was read after that, counts as it is."""
    snapshot = sample_snapshot(1)
    stale_node, (stale,) = snapshot.nodes[NODES[1]], snapshot.instances.values()
    grant = Grant(3, frozenset({NODES[0]}), NODES[0])
    (disk,) = stale.disks
    draft = Draft(snapshot, FrozenClock())
    kept = draft.put(
        msgspec.structs.replace(
            stale,
            recovery=InstanceRow(stale.uuid, (1.0,)),
            under_lease=True,
            disks=(msgspec.structs.replace(disk, grant=grant),),
        )
    )
    row = NodeRow(NODES[1], NodeState.FENCED, 2)
    kept_node = draft.put(msgspec.structs.replace(stale_node, recovery=row))
    written = draft.put(msgspec.structs.replace(stale, os="other", disks=(disk, new_disk())))
    assert (written.os, written.recovery, written.under_lease) == ("other", kept.recovery, True)
    assert [one.grant for one in written.disks] == [grant, None]
    assert draft.put(msgspec.structs.replace(stale_node, drained=True)).recovery == row
    assert draft.put(msgspec.structs.replace(written, recovery=None)).recovery is None
    assert kept_node.recovery == row


def new_disk() -> Disk:
    return msgspec.structs.replace(
        sample_instance(1).disks[0], uuid=CountingIds().uuid(), logical_id=("loop", "/other")
    )


async def test_changes_of_a_job_are_reported_once_durable() -> None:
    store, config = await sample_config()
    told: list[tuple[int | None, list[str]]] = []
    config.on_changed = lambda job_id, objects: told.append(
        (job_id, [f"{one.change} {one.thing.name}" for one in objects])
    )
    store.inject(Refuse())
    with pytest.raises(Refused):
        await config.change(add(7))
    assert told == []
    token = CHANGED_BY.set(12)
    made = await config.change(add(8))
    await config.change(lambda draft: draft.put(draft.instances[made.uuid]))
    CHANGED_BY.reset(token)
    await config.change(lambda draft: draft.remove(draft.instances[made.uuid]))
    await config.change(lambda _draft: None)
    assert told == [
        (12, [f"added {made.name}"]),
        (12, [f"changed {made.name}"]),
        (None, [f"removed {made.name}"]),
    ]


async def test_many_changes_of_one_transaction_copy_a_table_once() -> None:
    _, config = await sample_config()
    tables: list[object] = []

    def change(draft: Draft) -> None:
        for number in range(1, 4):
            draft.put(sample_instance(number))
            tables.append(draft.instances)

    before = config.snapshot.instances
    await config.change(change)
    assert tables[0] is tables[1] is tables[2]
    assert before is not tables[0]
    assert len(config.snapshot.instances) == len({*before, *config.snapshot.instances})
