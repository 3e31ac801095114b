"""Clusters for measuring placement, the same for the same seed, as description and as allocator message."""

import json
import random
from collections import Counter
from typing import Any

from msgspec.structs import replace

from ganeti.placement.description import Cluster, Group, Instance, Node

GIB = 1024
GROUP = "uuid-group-1"
INSTANCES_PER_NODE = 10
USED_SHARE = 0.6
CPUS = 64
SPINDLES, MANY_SPINDLES = 8, 40
ADMIN_STATES = {"ADMIN_down": "down", "ADMIN_offline": "offline"}
POLICY: dict[str, Any] = {
    "std": {
        "memory-size": 4 * GIB,
        "cpu-count": 2,
        "disk-size": 20 * GIB,
        "disk-count": 1,
        "nic-count": 1,
        "spindle-use": 1,
    },
    "minmax": [
        {
            "min": {
                "memory-size": 128,
                "cpu-count": 1,
                "disk-size": GIB,
                "disk-count": 1,
                "nic-count": 1,
                "spindle-use": 1,
            },
            "max": {
                "memory-size": 16 * GIB,
                "cpu-count": 8,
                "disk-size": 200 * GIB,
                "disk-count": 16,
                "nic-count": 8,
                "spindle-use": 12,
            },
        }
    ],
    "disk-templates": ["drbd", "plain"],
    "vcpu-ratio": 4.0,
    "spindle-ratio": 32.0,
}


class _Filler:
    """Places instances unevenly, such that every node can take over those that it is secondary of."""

    def __init__(self, chooser: random.Random, nodes: int, memory: int) -> None:
        self.chooser, self.memory = chooser, memory
        self.names = [f"node{number:04}" for number in range(nodes)]
        self.weights = [chooser.uniform(0.4, 1.6) for _ in self.names]
        self.free = [memory] * nodes
        self.disk = [0] * nodes
        self.peers: list[dict[int, int]] = [{} for _ in self.names]
        self.reserved = [0] * nodes

    def place(self, memory: int, disk: int, *, mirrored: bool) -> tuple[int, int]:
        """A primary node, and a secondary or -1."""
        everyone = range(len(self.names))
        while True:
            [first] = self.chooser.choices(everyone, self.weights)
            if self.free[first] - memory <= max(self.reserved[first], self.memory // 20):
                first = max(everyone, key=lambda one: self.free[one] - self.reserved[one])
            second = -1
            if mirrored:
                second = self.chooser.randrange(len(self.names))
                reserve = self.peers[second].get(first, 0) + memory
                if second == first or self.free[second] <= max(reserve, self.reserved[second]):
                    continue
                self.peers[second][first] = reserve
                self.reserved[second] = max(reserve, self.reserved[second])
            self.free[first] -= memory
            for one in (first, second) if mirrored else (first,):
                self.disk[one] += disk
            return first, second


def cluster(nodes: int, seed: int = 1) -> Cluster:
    """A cluster of one group: 10 instances a node of 1 to 8 GiB, half mirrored, 60 % of memory used."""
    chooser = random.Random(f"{seed}/{nodes}")  # noqa: S311 - a schedule, not a key
    number = nodes * INSTANCES_PER_NODE
    sizes = [chooser.randint(4, 32) * GIB // 4 for _ in range(number)]
    memory = int(sum(sizes) / nodes / USED_SHARE)
    filler = _Filler(chooser, nodes, memory)
    instances = []
    for index, size in enumerate(sizes):
        mirrored = index % 2 == 0
        disk = chooser.randint(5, 60) * GIB
        first, second = filler.place(size, disk, mirrored=mirrored)
        instances.append(
            Instance(
                name=f"inst{index:05}",
                memory=size,
                disk=disk,
                vcpus=chooser.randint(1, 4),
                primary=filler.names[first],
                secondary=filler.names[second] if mirrored else "",
                template="drbd" if mirrored else "plain",
                disks=(disk,),
            )
        )
    total_disk = int(1.8 * max(filler.disk)) // GIB * GIB
    made = [
        Node(
            name=name,
            group=GROUP,
            total_memory=memory,
            free_memory=filler.free[index],
            total_disk=total_disk,
            free_disk=total_disk - filler.disk[index],
            total_cpus=CPUS,
            is_master=index == 0,
            total_spindles=SPINDLES,
        )
        for index, name in enumerate(filler.names)
    ]
    group = Group(name="default", uuid=GROUP, policy=POLICY)
    return Cluster(groups=[group], nodes=made, instances=instances, policy=POLICY)


def with_exclusive_storage(given: Cluster) -> Cluster:
    """The same cluster with exclusive storage: each instance uses one of a node's spindles."""
    used = Counter(name for one in given.instances for name in (one.primary, one.secondary))
    nodes = [
        replace(one, exclusive_storage=True, total_spindles=MANY_SPINDLES,
                free_spindles=MANY_SPINDLES - used[one.name])
        for one in given.nodes
    ]  # fmt: skip
    instances = [replace(one, spindles=1) for one in given.instances]
    return replace(given, nodes=nodes, instances=instances)


def message(given: Cluster, request: dict[str, Any]) -> dict[str, Any]:
    """The cluster as an allocator's message (S164 to S167)."""
    return {
        "version": 2,
        "cluster_name": "bench.example.com",
        "cluster_tags": list(given.tags),
        "enabled_hypervisors": ["xen-pvm"],
        "ipolicy": given.policy,
        "nodegroups": {
            one.uuid: {
                "name": one.name,
                "alloc_policy": one.alloc_policy,
                "networks": list(one.networks),
                "ipolicy": one.policy,
                "tags": list(one.tags),
            }
            for one in given.groups
        },
        "nodes": {one.name: _node(one) for one in given.nodes},
        "instances": {one.name: _instance(one) for one in given.instances},
        "request": request,
    }


def _node(one: Node) -> dict[str, Any]:
    return {
        "total_memory": one.total_memory,
        "reserved_memory": one.node_memory,
        "free_memory": one.free_memory,
        "total_disk": one.total_disk,
        "free_disk": one.free_disk,
        "total_cpus": one.total_cpus,
        "reserved_cpus": one.node_cpus,
        "total_spindles": one.total_spindles if one.exclusive_storage else 0,
        "free_spindles": one.free_spindles if one.exclusive_storage else 0,
        "group": one.group,
        "tags": list(one.tags),
        "offline": one.offline and one.why_offline != "drained",
        "drained": one.offline and one.why_offline == "drained",
        "vm_capable": True,
        "master_capable": True,
        "master_candidate": True,
        "primary_ip": "192.0.2.1",
        "secondary_ip": "198.51.100.1",
        "i_pri_memory": 0,
        "i_pri_up_memory": 0,
        "hv_state": {},
        "disk_state": {},
        "ndparams": {
            "spindle_count": one.total_spindles,
            "exclusive_storage": one.exclusive_storage,
            "oob_program": None,
        },
    }


def _instance(one: Instance) -> dict[str, Any]:
    return {
        **wanted(one),
        "admin_state": ADMIN_STATES.get(one.status, "up"),
        "admin_state_source": "admin",
        "nodes": [name for name in (one.primary, one.secondary) if name],
    }


def wanted(one: Instance) -> dict[str, Any]:
    """An instance as a request and a message both have it."""
    return {
        "memory": one.memory,
        "vcpus": one.vcpus,
        "spindle_use": one.spindle_use,
        "disk_template": one.template,
        "tags": list(one.tags),
        "hypervisor": "kvm",
        "os": "noop",
        "disks": _disks(one),
        "disk_space_total": one.disk,
        "nics": [
            {
                "ip": None,
                "mac": "aa:00:00:00:00:01",
                "mode": "bridged",
                "link": "br0",
                "bridge": "br0",
            }
        ],
    }


def _disks(one: Instance) -> list[dict[str, Any]]:
    """The disks, among which the spindles are split evenly."""
    each = None if one.spindles is None else one.spindles / len(one.disks)
    return [{"mode": "rw", "size": size, "spindles": each} for size in one.disks]


def allocation(template: str = "drbd") -> dict[str, Any]:
    """A request to allocate an instance of middle size."""
    one = Instance("new", 4 * GIB, 20 * GIB, 2, template=template, disks=(20 * GIB,))
    return request(one)


def request(one: Instance) -> dict[str, Any]:
    """A request to allocate an instance."""
    shared = {"type": "allocate", "name": one.name, "required_nodes": one.nodes_needed}
    return {**shared, **wanted(one)}


def encoded(given: dict[str, Any]) -> bytes:
    """A message as it stands in an allocator's file."""

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: whole(one) for key, one in value.items()}
        if isinstance(value, list):
            return [whole(one) for one in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return json.dumps(whole(given) | {"ipolicy": given["ipolicy"]}).encode()
