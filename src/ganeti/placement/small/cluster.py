"""A small cluster as lists, without exclusive storage, shared storage and the tags that restrict places."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ganeti.model.disk_templates import TEMPLATES, Mirror
from ganeti.placement.description import (
    RUNNING,
    SWITCHED_OFF,
    Cluster,
    Group,
    Instance,
    Node,
)
from ganeti.placement.places import NO_NODE
from ganeti.placement.weights import (
    CPU_LOAD,
    DISK_LOAD,
    LOADS,
    OF_SPREADS,
    RESERVED,
    SPREADS,
)

if TYPE_CHECKING:
    from ganeti.placement.state import State

MOST_NODES, MOST_INSTANCES = 12, 300
"""Larger clusters are faster as arrays."""
_RULES = "htools:"
"""Cluster tags with these prefixes may make rules that only the arrays support."""

Row = list[float]
_NORMAL_LOADS = (1.0,) * LOADS
AS_PRIMARY = tuple(one for one in range(SPREADS) if one != RESERVED)
"""The change that a primary makes at its node."""


class Amounts(NamedTuple):
    """The resources that one instance uses of its nodes."""

    memory: float
    memory_if_all: float
    disk: float
    vcpus: float
    spindle_use: float
    reserve: float
    loads: tuple[float, ...]
    is_local: bool
    is_mirrored: bool
    is_shared: bool
    limited: tuple[object, ...]
    """What policies limit: those with the same are allowed by the same policies."""

    @classmethod
    def of(cls, one: Instance, loads: tuple[float, ...]) -> "Amounts":
        """Return the amounts of an instance whose template is known."""
        template = TEMPLATES[one.template]
        counts = one.status != SWITCHED_OFF
        return cls(
            memory=one.memory if one.status in RUNNING else 0.0,
            memory_if_all=one.memory,
            disk=one.disk if template.uses_node_disk else 0.0,
            vcpus=one.vcpus if counts else 0.0,
            spindle_use=one.spindle_use if template.uses_node_disk else 0.0,
            reserve=one.memory if counts and one.auto_balance else 0.0,
            loads=loads,
            is_local=template.uses_node_disk,
            is_mirrored=template.mirror is Mirror.INTERNAL,
            is_shared=template.mirror is Mirror.EXTERNAL,
            limited=(one.memory, one.disks, one.vcpus, one.spindle_use, one.template),
        )

    def changes(self) -> tuple[float, ...]:
        """Return the addition of a primary to each spread at its node, before division by the node's total."""
        return (
            *(-self.memory, -self.memory_if_all, -self.disk, self.vcpus, 0.0),
            *self.loads,
            self.spindle_use,
        )


class Small(msgspec.Struct):
    """A cluster as lists: a value a node, or an instance."""

    nodes: Sequence[Node]
    groups: Sequence[Group]
    descriptions: list[Instance]
    amounts: list[Amounts]
    group: list[int]
    offline: list[bool]
    total_memory: Row
    total_disk: Row
    total_cpus: Row
    cpu_speed: Row
    cpu_ratio: Row
    most_spindles: Row
    low_disk: Row
    free: Row
    free_if_all: Row
    free_disk: Row
    used_cpus: Row
    used_spindles: Row
    reserved: Row
    fails: list[bool]
    peers: list[Row]
    primaries: Row
    secondaries: Row
    instance_memory: Row
    loads: list[Row]
    primary: list[int]
    secondary: list[int]

    def copy(self) -> "Small":
        """Return a copy that changes independently."""
        changing = {name: list(getattr(self, name)) for name in _CHANGING}
        peers = [list(row) for row in self.peers]
        loads = [list(row) for row in self.loads]
        return msgspec.structs.replace(self, peers=peers, loads=loads, **changing)

    @classmethod
    def of(
        cls, state: "State", wanted: Instance | None = None, most: int = MOST_NODES
    ) -> "Small | None":
        """Return the lists of a state with one more, unplaced instance; None if it is large or needs the arrays."""
        if len(state.nodes) > most or len(state.names) > MOST_INSTANCES:
            return None
        rules = state.tags
        if (
            state.has_shared
            or (wanted is not None and TEMPLATES[wanted.template].mirror is Mirror.EXTERNAL)
            or rules.has_exclusion
            or rules.has_locations
            or rules.desires.any()
            or state.exclusive.any()
            or (wanted is not None and wanted.tags and state.cluster.tags)
        ):
            return None
        descriptions = list(state.descriptions)
        if wanted is not None:
            descriptions.append(wanted)
        memo, utilisation = state.memo, state.cluster.utilisation
        amounts = []
        for one in descriptions:
            known = memo.get(id(one))
            if known is None:
                loads = utilisation.get(one.name, _NORMAL_LOADS)
                known = memo[id(one)] = one, Amounts.of(one, loads)
            amounts.append(known[1])
        arrays = {name: getattr(state, name).tolist() for name in _ARRAYS}
        if wanted is not None:
            arrays["primary"].append(NO_NODE)
            arrays["secondary"].append(NO_NODE)
        return cls(state.nodes, state.groups, descriptions, amounts, **arrays)

    @classmethod
    def described(cls, cluster: Cluster) -> "Small | None":
        """Return the lists of a cluster without its arrays; None if it needs the arrays, or they would refuse it."""
        numbers = {group.uuid: number for number, group in enumerate(cluster.groups)}
        names = {node.name: number for number, node in enumerate(cluster.nodes)} | {"": NO_NODE}
        if (
            len(cluster.nodes) > MOST_NODES
            or len(cluster.instances) > MOST_INSTANCES
            or cluster.utilisation
            or any(tag.startswith(_RULES) for tag in cluster.tags)
            or any(one.exclusive_storage or one.group not in numbers for one in cluster.nodes)
            or any(
                one.template not in TEMPLATES
                or names.get(one.primary, NO_NODE) == NO_NODE
                or one.secondary not in names
                for one in cluster.instances
            )
        ):
            return None
        amounts = [Amounts.of(one, _NORMAL_LOADS) for one in cluster.instances]
        if any(one.is_shared for one in amounts):
            return None
        small = cls._empty(cluster, [numbers[node.group] for node in cluster.nodes])
        small.descriptions, small.amounts = list(cluster.instances), amounts
        small.primary = [names[one.primary] for one in cluster.instances]
        small.secondary = [names[one.secondary] for one in cluster.instances]
        small.settle()
        return small

    def settle(self) -> None:
        """Compute the values that follow from the nodes of the instances."""
        for index in range(len(self.amounts)):
            self._count(index)
        for number, node in enumerate(self.nodes):
            recorded = node.total_memory - node.node_memory - self.instance_memory[number]
            self.free[number] = recorded - max(0.0, recorded - node.free_memory)
            self.reserved[number] = max(0.0, *self.peers[number])
            self.fails[number] = node.free_memory < self.reserved[number]

    @classmethod
    def _empty(cls, cluster: Cluster, group: list[int]) -> "Small":
        """Fill in the nodes with their reported values."""
        nodes = cluster.nodes
        count = len(nodes)
        policies = [cluster.groups[number].policy for number in group]
        ratios = [float(one.get("spindle-ratio", 32.0)) for one in policies]

        def nothing() -> Row:
            return [0.0] * count

        return cls(
            nodes=nodes,
            groups=cluster.groups,
            descriptions=[],
            amounts=[],
            group=group,
            offline=[node.offline for node in nodes],
            total_memory=[node.total_memory for node in nodes],
            total_disk=[node.total_disk for node in nodes],
            total_cpus=[node.total_cpus for node in nodes],
            cpu_speed=[node.cpu_speed for node in nodes],
            cpu_ratio=[float(one.get("vcpu-ratio", 4.0)) for one in policies],
            most_spindles=[
                ratio * node.total_spindles for ratio, node in zip(ratios, nodes, strict=True)
            ],
            low_disk=nothing(),
            free=nothing(),
            free_if_all=[node.free_memory for node in nodes],
            free_disk=[node.free_disk for node in nodes],
            used_cpus=[node.node_cpus for node in nodes],
            used_spindles=nothing(),
            reserved=nothing(),
            fails=[False] * count,
            peers=[nothing() for _ in nodes],
            primaries=nothing(),
            secondaries=nothing(),
            instance_memory=nothing(),
            loads=[
                [node.own_load for node in nodes] if kind == CPU_LOAD else nothing()
                for kind in range(LOADS)
            ],
            primary=[],
            secondary=[],
        )

    def _count(self, index: int) -> None:
        """Add to its nodes' sums an instance that their free memory and disk include already."""
        one, primary, secondary = self.amounts[index], self.primary[index], self.secondary[index]
        self.instance_memory[primary] += one.memory
        self.free_if_all[primary] -= one.memory_if_all - one.memory
        self.used_cpus[primary] += one.vcpus
        self.used_spindles[primary] += one.spindle_use
        self.primaries[primary] += 1
        for kind in range(LOADS):
            self.loads[kind][primary] += one.loads[kind]
        if secondary == NO_NODE:
            return
        self.used_spindles[secondary] += one.spindle_use
        self.secondaries[secondary] += 1
        self.loads[DISK_LOAD][secondary] += one.loads[DISK_LOAD]
        if one.is_local:
            self.peers[secondary][primary] += one.reserve

    def admit(self, wanted: Instance) -> None:
        """Add an instance that is on no node yet."""
        self.descriptions.append(wanted)
        self.amounts.append(Amounts.of(wanted, _NORMAL_LOADS))
        self.primary.append(NO_NODE)
        self.secondary.append(NO_NODE)

    def place(self, index: int, primary: int, secondary: int) -> None:
        """Put an unplaced instance on its nodes."""
        one = self.amounts[index]
        self.primary[index], self.secondary[index] = primary, secondary
        self.instance_memory[primary] += one.memory
        self.free[primary] -= one.memory
        self.free_if_all[primary] -= one.memory_if_all
        self.used_cpus[primary] += one.vcpus
        self.primaries[primary] += 1
        for kind in range(LOADS):
            self.loads[kind][primary] += one.loads[kind]
        self._take_disk(one, primary)
        if secondary != NO_NODE:
            self._take_disk(one, secondary)
            self.loads[DISK_LOAD][secondary] += one.loads[DISK_LOAD]
            self.secondaries[secondary] += 1
            self.peers[secondary][primary] += one.reserve
            self.reserved[secondary] = max(self.peers[secondary])
            self.fails[secondary] = self.free[secondary] <= self.reserved[secondary]
        self.fails[primary] = self.free[primary] <= self.reserved[primary]

    def _take_disk(self, one: Amounts, node: int) -> None:
        self.free_disk[node] -= one.disk
        self.used_spindles[node] += one.spindle_use


_CHANGING = (
    *("free", "free_if_all", "free_disk", "used_cpus", "used_spindles", "reserved", "fails"),
    *("primaries", "secondaries", "instance_memory", "descriptions", "amounts"),
    *("primary", "secondary"),
)
_ARRAYS = (
    *("group", "offline", "total_memory", "total_disk", "total_cpus", "cpu_speed", "cpu_ratio"),
    *("most_spindles", "low_disk", "free", "free_if_all", "free_disk", "used_cpus"),
    *("used_spindles", "reserved", "fails", "peers", "primaries", "secondaries"),
    *("instance_memory", "loads", "primary", "secondary"),
)


def _ratio(part: float, whole: float, otherwise: float = 0.0) -> float:
    return part / whole if whole > 0 else otherwise


class Spreads:
    """The values of which the score takes standard deviations, and the change by one unit of each."""

    def __init__(self, small: Small) -> None:
        count = range(len(small.nodes))
        self.live = [not offline for offline in small.offline]
        self.number = max(1, sum(self.live))
        raw = [
            [_ratio(small.free[node], small.total_memory[node]) for node in count],
            [_ratio(small.free_if_all[node], small.total_memory[node]) for node in count],
            [
                1.0 if small.free_disk[node] == 0
                else _ratio(small.free_disk[node], small.total_disk[node], 1.0)
                for node in count
            ],
            [
                _ratio(_ratio(small.used_cpus[node], small.total_cpus[node]), small.cpu_speed[node])
                for node in count
            ],
            [_ratio(small.reserved[node], small.total_memory[node]) for node in count],
            *small.loads,
            [_ratio(small.used_spindles[node], small.most_spindles[node]) for node in count],
        ]  # fmt: skip
        self.reserved_total = sum(raw[RESERVED][node] for node in count if self.live[node])
        self.values = [self._centred(row) for row in raw]
        self.squares = [math.fsum(value * value for value in row) for row in self.values]
        memory = self._units(small.total_memory)
        speeds = [a * b for a, b in zip(small.total_cpus, small.cpu_speed, strict=True)]
        online = [1.0 if one else 0.0 for one in self.live]
        self.units = [
            *(memory, memory, self._units(small.total_disk), self._units(speeds), memory),
            *[online] * LOADS,
            self._units(small.most_spindles),
        ]

    def _centred(self, row: Row) -> Row:
        mean = math.fsum(value for value, live in zip(row, self.live, strict=True) if live)
        mean /= self.number
        return [value - mean if live else 0.0 for value, live in zip(row, self.live, strict=True)]

    def _units(self, totals: Row) -> Row:
        return [
            1.0 / total if total > 0 and live else 0.0
            for total, live in zip(totals, self.live, strict=True)
        ]

    def deviation(self, spread: int, added: float) -> float:
        """Return a weighted standard deviation whose sum of squares grew by `added`."""
        return OF_SPREADS[spread] * math.sqrt(max(0.0, self.squares[spread] + added) / self.number)

    def grown(self, spread: int, node: int, change: float) -> float:
        """Return the addition of a change at one node to the sum of squares."""
        return change * (2.0 * self.values[spread][node] + change * (1.0 - 1.0 / self.number))
