"""Clusters as they are after years: several groups, some nodes closed, instances of all kinds and states.

Unlike the even clusters of `placement_clusters` they are full of trouble: nodes that cannot be lost, that fail N+1, that
are drained with instances on them. The same seed gives the same cluster.
"""

import random
from dataclasses import dataclass

import msgspec
from placement_clusters import GIB, POLICY

from ganeti.placement.description import Cluster, Group, Instance, Node, facts

TEMPLATES = ("drbd", "plain", "sharedfile")
TAGS = ("service:a", "service:b", "")
NODE_MEMORY = 32 * GIB
NODE_DISK = 1000 * GIB


@dataclass(frozen=True)
class Kind:
    """What a cluster may have; shares are of nodes or instances."""

    groups: int = 1
    closed: float = 0.0
    """Nodes that are offline or drained."""
    stopped: float = 0.0
    """Instances that are down or switched off."""
    tags: float = 0.0
    """Instances with an exclusion tag."""
    templates: tuple[str, ...] = TEMPLATES
    fullest: float = 0.9
    """The share of its memory that a node has in use at most."""


def cluster(seed: int, kind: Kind) -> Cluster:
    """A cluster of that kind."""
    return _Maker(random.Random(f"generated/{seed}"), kind).cluster()


class _Maker:
    def __init__(self, chooser: random.Random, kind: Kind) -> None:
        self.chooser, self.kind = chooser, kind
        self.nodes: list[Node] = []
        self.instances: list[Instance] = []

    def cluster(self) -> Cluster:
        groups = [
            Group(f"group{number}", f"uuid-{number}", policy=POLICY)
            for number in range(self.kind.groups)
        ]
        for group in groups:
            self._fill(group, self.chooser.randint(2, 5))
        has_tags = any(one.tags for one in self.instances)
        return Cluster(
            groups=groups,
            nodes=self.nodes,
            instances=self.instances,
            tags=("htools:iextags:service",) if has_tags else (),
            policy=POLICY,
        )

    def _fill(self, group: Group, number: int) -> None:
        names = [f"node{len(self.nodes) + index:02}" for index in range(number)]
        mine = [one for name in names for one in self._on(name, names)]
        self.instances += mine
        for name in names:
            self.nodes.append(self._node(name, group, mine))

    def _on(self, name: str, names: list[str]) -> list[Instance]:
        """The primaries of one node."""
        found, used = [], 0
        share = self.chooser.uniform(0.1, self.kind.fullest)
        while used < share * NODE_MEMORY:
            memory = self.chooser.choice([1, 2, 3, 4, 6, 8]) * GIB
            if used + memory > self.kind.fullest * NODE_MEMORY:
                break
            used += memory
            found.append(self._instance(name, names, memory))
        return found

    def _instance(self, name: str, names: list[str], memory: int) -> Instance:
        chooser, kind = self.chooser, self.kind
        template = chooser.choice(kind.templates)
        others = [other for other in names if other != name]
        disk = chooser.choice([5, 10, 20, 40]) * GIB
        is_stopped = chooser.random() < kind.stopped
        status = chooser.choice(["ADMIN_down", "ADMIN_offline"]) if is_stopped else "running"
        tag = chooser.choice(TAGS) if chooser.random() < kind.tags else ""
        number = len(self.instances)
        return Instance(
            name=f"{name}-{chooser.randrange(10**6):06}-{number}",
            memory=memory,
            disk=disk,
            vcpus=chooser.randint(1, 4),
            status=status,
            primary=name,
            secondary=chooser.choice(others) if template == "drbd" else "",
            template=template,
            tags=(tag,) if tag else (),
            disks=(disk,),
        )

    def _node(self, name: str, group: Group, instances: list[Instance]) -> Node:
        running = sum(
            one.memory for one in instances if one.primary == name and one.status == "running"
        )
        disk = sum(
            one.disk
            for one in instances
            if name in (one.primary, one.secondary) and facts(one.template).is_local
        )
        is_closed = self.chooser.random() < self.kind.closed
        return Node(
            name=name,
            group=group.uuid,
            total_memory=NODE_MEMORY,
            free_memory=NODE_MEMORY - running,
            total_disk=NODE_DISK,
            free_disk=NODE_DISK - disk,
            total_cpus=64,
            offline=is_closed,
            why_offline=self.chooser.choice(["offline", "drained"]),
            is_master=not self.nodes,
            total_spindles=8,
        )


def with_group(cluster: Cluster, index: int, **changes: object) -> Cluster:
    """The cluster with another group."""
    groups = list(cluster.groups)
    groups[index] = msgspec.structs.replace(groups[index], **changes)
    return msgspec.structs.replace(cluster, groups=groups)
