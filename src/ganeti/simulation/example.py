"""Configurations of clusters of any size, for benchmarks and histories."""

from ganeti.model.names import AdminState
from ganeti.model.objects import (
    Cluster,
    Disk,
    GroupUuid,
    Instance,
    InstanceUuid,
    Node,
    NodeGroup,
    NodeUuid,
)
from ganeti.model.params import Params
from ganeti.model.stored import Stored

CANDIDATES = 5
AGENT = "fence_simulated"


def _uuid(kind: int, number: int) -> str:
    return f"00000000-0000-4000-{kind:04x}-{number:012x}"


def node_name(number: int) -> str:
    """Return the name of a node, from 1."""
    return f"node{number}.example.com"


def instance_name(number: int) -> str:
    """Return the name of an instance, from 1."""
    return f"web{number}.example.com"


def configuration(
    nodes: int,
    instances: int,
    *,
    recovery: str = "failover",
    memory: int = 1024,
    disk: int = 10_240,
    hypervisor: str = "fake",
) -> list[Stored]:
    """Return a cluster whose instances are up, on shared storage, in turn on all nodes; each node has a power device."""
    cluster = Cluster(
        uuid=_uuid(1, 1),
        name="cluster.example.com",
        master_node=NodeUuid(_uuid(2, 1)),
        enabled_hypervisors=(hypervisor,),
        enabled_disk_templates=("sharedfile", "file"),
        ipolicy={"disk-templates": ["sharedfile", "file"]},
        file_storage_dir="/local",
        shared_file_storage_dir="/shared",
        candidate_pool_size=CANDIDATES,
        beparams={"default": {"maxmem": memory, "minmem": memory, "recovery": recovery}},
    )
    group = NodeGroup(uuid=GroupUuid(_uuid(3, 1)), name="default")
    found: list[Stored] = [cluster, group]
    found += [_node(number, group.uuid) for number in range(1, nodes + 1)]
    for number in range(1, instances + 1):
        found.append(
            _instance(number, NodeUuid(_uuid(2, (number - 1) % nodes + 1)), disk, hypervisor)
        )
    return found


def _node(number: int, group: GroupUuid) -> Node:
    options: Params = {
        "fence_agent": AGENT,
        "fence_options": f"plug={number}",
        "fence_methods": "power watchdog",
    }
    return Node(
        uuid=NodeUuid(_uuid(2, number)),
        name=node_name(number),
        primary_ip=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
        secondary_ip=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
        group=group,
        certificate=f"{number:064x}",
        master_candidate=number <= CANDIDATES,
        ndparams=options,
    )


def _instance(number: int, node: NodeUuid, size: int, hypervisor: str) -> Instance:
    path = f"/shared/{instance_name(number)}/disk0"
    disk = Disk(uuid=_uuid(5, number), size=size, template="sharedfile", logical_id=("loop", path))
    return Instance(
        uuid=InstanceUuid(_uuid(4, number)),
        name=instance_name(number),
        primary_node=node,
        hypervisor=hypervisor,
        os="tiny",
        admin_state=AdminState.UP,
        disk_template="sharedfile",
        disks=(disk,),
    )
