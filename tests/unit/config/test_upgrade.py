"""From version to version and back: what a row of another version means, and a crash on the way (G28)."""

from typing import Any

import msgspec
import pytest

from ganeti.base.errors import GanetiError
from ganeti.config.config import Config
from ganeti.config.kinds import KINDS
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft, put_row
from ganeti.model import wire
from ganeti.simulation.counting_ids import CountingIds
from ganeti.simulation.faulty_store import Crash, FaultyStore
from ganeti.simulation.virtual_time import LoopClock
from ganeti.store.backend import become_master
from ganeti.store.interface import Put, Row, Transaction
from tests.unit.config.sample import (
    CLUSTER_UUID,
    GROUP,
    sample_cluster,
    sample_group,
    sample_objects,
    store_with,
)

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G28")]

LATER = {"later": {"a": [1]}, "last": "x"}


def of_a_later_version(row: Put) -> Put:
    """The same row with fields that this version does not know, in the object and in what lies in it."""
    plain: dict[str, Any] = msgspec.json.decode(row.value)
    for part in (plain, *plain.get("disks", ()), *plain.get("nics", ())):
        part.update(LATER)
    return Put(row.kind, row.key, wire.encode(plain))


async def rows_of(store: FaultyStore) -> dict[tuple[str, str], bytes]:
    kinds = {kind.name for kind in KINDS.values()}
    found = {}
    async for item in store.load():
        if isinstance(item, Row) and item.kind in kinds:
            found[item.kind, item.key] = item.value
    return found


async def loaded(store: FaultyStore, lease: Any) -> Config:
    return await Config.load(store, lease, LoopClock(), CountingIds())


def objects(snapshot: Snapshot) -> list[Any]:
    return [snapshot.cluster, snapshot.groups, snapshot.nodes, snapshot.instances]


async def test_this_version_starts_with_what_a_later_one_added_and_keeps_it_for_that_one() -> None:
    store, lease = await store_with(*sample_objects())
    meant = objects((await loaded(store, lease)).snapshot)
    later = tuple(of_a_later_version(put_row(one)) for one in sample_objects())
    await store.commit(lease, Transaction(later))
    config = await loaded(store, lease)
    assert objects(config.snapshot) == meant
    assert await rows_of(store) == {(row.kind, row.key): row.value for row in later}
    name = next(iter(config.snapshot.nodes.values())).uuid

    def change(draft: Draft) -> None:
        draft.put(msgspec.structs.replace(draft.nodes[name], tags=("new",)))

    await config.change(change)
    changed = [
        key for key, value in (await rows_of(store)).items() if b'"later"' not in value
    ]  # only what this version has written anew
    assert changed == [("node", name)]
    await store.close()


@pytest.mark.parametrize("written", [True, False])
async def test_a_crash_during_an_upgrade_leaves_all_as_it_was_or_as_it_is_to_be(
    written: bool,
) -> None:
    store = FaultyStore()
    lease = await become_master(store)
    node = {"name": "node1.example.com", "primary_ip": "192.0.2.1", "secondary_ip": "192.0.2.1",
            "group": GROUP, "certificate": "", "master_candidate": True}  # fmt: skip
    cluster = wire.plain(sample_cluster()) | {"format": 0, "master_node": "node1.example.com"}
    rows = (
        Put("cluster", CLUSTER_UUID, wire.encode(cluster)),
        Put("group", GROUP, wire.encode(sample_group())),
        Put("node", "node1.example.com", wire.encode(node)),
    )
    await store.commit(lease, Transaction(rows))
    before = await rows_of(store)
    kept: list[dict[tuple[str, str], bytes]] = []

    async def keep_old() -> None:
        kept.append(await rows_of(store))

    store.inject(Crash(written=written))
    with pytest.raises(GanetiError):
        await Config.load(store, lease, LoopClock(), CountingIds(), keep_old=keep_old)
    assert kept == [before]
    disk = store.crash()
    store, lease = await store_with(disk=disk)
    after = await rows_of(store)
    assert (after == before) is not written
    snapshot = (await loaded(store, lease)).snapshot
    assert [one.name for one in snapshot.nodes.values()] == ["node1.example.com"]
    assert snapshot.cluster.master_node in snapshot.nodes
    if written:
        assert await rows_of(store) == after
    await Config.load(store, lease, LoopClock(), CountingIds(), keep_old=keep_old)
    assert kept == [before], "of what is up to date nothing is kept"
    await store.close()
