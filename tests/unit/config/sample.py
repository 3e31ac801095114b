"""A small cluster as data, and a store that has it."""

from dataclasses import replace
from random import Random

import msgspec

from ganeti.config.config import Config
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft, put_row
from ganeti.model.objects import (
    Cluster,
    Disk,
    GroupUuid,
    Instance,
    InstanceUuid,
    Nic,
    Node,
    NodeGroup,
    NodeUuid,
)
from ganeti.model.stored import Stored
from ganeti.simulation.counting_ids import CountingIds
from ganeti.simulation.faulty_store import FaultyStore, MemoryDisk
from ganeti.simulation.virtual_time import LoopClock
from ganeti.store.backend import become_master
from ganeti.store.interface import Lease, Transaction
from tests.support.predictable import FrozenClock

CLUSTER_UUID = "00000000-0000-4000-9000-000000000001"
GROUP = GroupUuid("00000000-0000-4000-9000-00000000000a")
NODES = tuple(NodeUuid(f"00000000-0000-4000-9000-0000000000b{number}") for number in (1, 2, 3))


def sample_cluster(**fields: object) -> Cluster:
    base = Cluster(uuid=CLUSTER_UUID, name="cluster.example.com", master_node=NODES[0])
    return msgspec.structs.replace(base, **fields)


def sample_node(number: int, **fields: object) -> Node:
    base = Node(
        uuid=NODES[number - 1],
        name=f"node{number}.example.com",
        primary_ip=f"192.0.2.{number}",
        secondary_ip=f"192.0.2.{number}",
        group=GROUP,
        certificate=f"{number}" * 64,
        master_candidate=True,
    )
    return msgspec.structs.replace(base, **fields)


def sample_group(**fields: object) -> NodeGroup:
    return msgspec.structs.replace(NodeGroup(uuid=GROUP, name="default"), **fields)


def sample_instance(number: int, **fields: object) -> Instance:
    tail = f"{number:012x}"
    base = Instance(
        uuid=InstanceUuid(f"00000000-0000-4000-a000-{tail}"),
        name=f"web{number}.example.com",
        primary_node=NODES[0],
        disk_template="sharedfile",
        disks=(
            Disk(
                uuid=f"00000000-0000-4000-b000-{tail}",
                size=1024,
                template="sharedfile",
                logical_id=("loop", f"/srv/web{number}/disk0"),
            ),
        ),
        nics=(
            Nic(
                uuid=f"00000000-0000-4000-c000-{tail}",
                mac=f"aa:00:00:00:{number // 256:02x}:{number % 256:02x}",
            ),
        ),
    )
    return msgspec.structs.replace(base, **fields)


def sample_objects(instances: int = 0) -> list[Stored]:
    return [
        sample_cluster(),
        sample_group(),
        *(sample_node(number) for number in (1, 2, 3)),
        *(sample_instance(number) for number in range(1, instances + 1)),
    ]


def sample_snapshot(instances: int = 0) -> Snapshot:
    return Snapshot.of(
        1,
        sample_cluster(),
        nodes=[sample_node(number) for number in (1, 2, 3)],
        groups=[sample_group()],
        instances=[sample_instance(number) for number in range(1, instances + 1)],
    )


def changed_sample(snapshot: Snapshot, random: Random) -> Snapshot:
    """The next snapshot: an instance is added, replaced or removed."""
    draft = Draft(snapshot, FrozenClock())
    number = random.randrange(1, 9)
    present = snapshot.instances.get(sample_instance(number).uuid)
    if present is None:
        draft.put(sample_instance(number))
    elif random.random() < 0.3:
        draft.remove(present)
    else:
        draft.put(msgspec.structs.replace(present, tags=(f"t{random.random()}",)))
    return replace(draft.finish()[0], position=snapshot.position + 1)


async def store_with(*objects: Stored, disk: MemoryDisk | None = None) -> tuple[FaultyStore, Lease]:
    """A store whose master we are, with these objects."""
    store = FaultyStore(disk or MemoryDisk())
    lease = await become_master(store)
    for start in range(0, len(objects), 50):
        rows = tuple(put_row(one) for one in objects[start : start + 50])
        await store.commit(lease, Transaction(rows))
    return store, lease


async def sample_config(instances: int = 0) -> tuple[FaultyStore, Config]:
    store, lease = await store_with(*sample_objects(instances))
    return store, await Config.load(store, lease, LoopClock(), CountingIds())
