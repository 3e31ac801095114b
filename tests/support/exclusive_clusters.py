"""Clusters whose nodes have exclusive storage, with a new instance to place; the same for the same seed."""

import random

from msgspec.structs import replace
from placement_clusters import GIB, POLICY

from ganeti.placement.description import Cluster, Group, Instance, Node

_STATES = ("running", "running", "running", "ADMIN_down", "ADMIN_offline")


class Generated:
    """A cluster of one or two groups, some with a group without exclusive storage, and the wanted instance."""

    def __init__(self, seed: int) -> None:
        self._chooser = random.Random(f"exclusive/{seed}")
        choice = self._chooser.choice
        number = choice([1, 1, 2])
        groups = [
            Group(f"g{one}", f"u{one}", choice(["preferred", "last_resort"]), policy=self._policy())
            for one in range(number)
        ]
        is_mixed = self._chooser.random() < 0.4
        self.nodes = {
            f"n{one}": self._node(f"n{one}", f"u{one % number}", is_mixed=is_mixed)
            for one in range(choice([2, 3, 5, 7]))
        }
        instances = [self._instance(f"i{one}") for one in range(choice([0, 2, 4, 8]))]
        self.wanted = self._described("new", choice(["plain", "plain", "file", "drbd"]))
        self.cluster = Cluster(
            groups=groups,
            nodes=list(self.nodes.values()),
            instances=[one for one in instances if one is not None],
            policy=groups[0].policy,
        )

    def _policy(self) -> dict[str, object]:
        choice = self._chooser.choice
        intervals = [
            {
                "min": POLICY["minmax"][0]["min"]
                | {
                    "memory-size": choice([128, GIB, 4 * GIB]),
                    "disk-size": choice([1, 10, 50]) * GIB,
                    "cpu-count": choice([1, 1, 2]),
                },
                "max": POLICY["minmax"][0]["max"] | {"spindle-use": choice([2, 8])},
            }
            for _ in range(choice([1, 2, 3]))
        ]
        return POLICY | {"minmax": intervals, "disk-templates": ["plain", "drbd", "file"]}

    def _node(self, name: str, group: str, *, is_mixed: bool) -> Node:
        choice = self._chooser.choice
        memory, disk, spindles = choice([16, 32, 64]) * GIB, choice([200, 400]) * GIB, choice([4, 12])  # fmt: skip
        return Node(
            name, group, total_memory=memory, free_memory=memory, total_disk=disk, free_disk=disk,
            total_cpus=choice([4, 8, 16]), offline=self._chooser.random() < 0.05,
            is_master=name == "n0", total_spindles=spindles, free_spindles=spindles,
            exclusive_storage=not (is_mixed and int(group[1:]) == 1),
        )  # fmt: skip

    def _described(self, name: str, template: str) -> Instance:
        choice = self._chooser.choice
        disks = tuple(choice([10, 50, 100]) * GIB for _ in range(choice([1, 1, 2])))
        spindles = None if self._chooser.random() < 0.1 else len(disks) * choice([1, 2])
        return Instance(
            name, choice([512, 2048, 4096, 8192]), sum(disks), choice([1, 2, 4]), template=template,
            disks=disks, spindles=spindles, nics=1,
        )  # fmt: skip

    def _instance(self, name: str) -> Instance | None:
        """An instance on nodes with room, which it takes; None if there are none."""
        one = self._described(name, self._chooser.choice(["plain", "plain", "drbd", "file"]))
        first, second = self._chooser.sample(sorted(self.nodes), 2)
        places = [first, second] if one.template == "drbd" else [first]
        nodes = [self.nodes[place] for place in places]
        takes = one.spindles or 0
        if any(node.free_disk <= one.disk or node.free_spindles < takes for node in nodes):
            return None
        if nodes[0].free_memory <= one.memory or len({node.group for node in nodes}) > 1:
            return None
        status = self._chooser.choice(_STATES)
        for node in nodes:
            free = node.free_memory - one.memory * (status == "running" and node is nodes[0])
            self.nodes[node.name] = replace(
                node,
                free_memory=free,
                free_disk=node.free_disk - one.disk,
                free_spindles=node.free_spindles - takes,
            )
        return replace(one, primary=first, secondary="".join(places[1:]), status=status)


def crowded(seed: int) -> Cluster:
    """Return a few nodes of exclusive storage whose instances use many of the spindles; the policy allows an instance four."""
    chooser = random.Random(f"crowded/{seed}")
    total = [chooser.randint(4, 10) for _ in range(chooser.randint(2, 4))]
    free, instances = list(total), []
    for number in range(chooser.randint(2, 7)):
        node, spindles = chooser.randrange(len(total)), chooser.randint(1, 3)
        if free[node] < spindles:
            continue
        free[node] -= spindles
        memory, disk = chooser.randint(1, 4) * GIB, 10 * GIB
        instances.append(
            Instance(f"i{number}", memory, disk, 1, primary=f"n{node}", template="plain",
                     disks=(disk,), spindles=spindles)
        )  # fmt: skip
    nodes = []
    for number, spindles in enumerate(total):
        mine = [one for one in instances if one.primary == f"n{number}"]
        memory, disk = 32 * GIB, 400 * GIB
        nodes.append(
            Node(
                f"n{number}", "u", total_memory=memory, total_disk=disk, total_cpus=16,
                free_memory=memory - sum(one.memory for one in mine),
                free_disk=disk - sum(one.disk for one in mine), is_master=not number,
                total_spindles=spindles, free_spindles=free[number], exclusive_storage=True,
            )
        )  # fmt: skip
    bounds = POLICY["minmax"][0]
    policy = POLICY | {"minmax": [bounds | {"max": bounds["max"] | {"spindle-use": 4}}]}
    return Cluster(groups=[Group("g", "u", policy=policy)], nodes=nodes, instances=instances,
                   policy=policy)  # fmt: skip
