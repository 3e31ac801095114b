"""A cluster as arrays: the free resources of nodes and the nodes of instances; moves change it in place.

Nodes and instances keep the order of the description; an index of -1 is "no node". All numbers are floats with exact
integers. `free` is the memory that is certainly free: used neither by the node nor by an instance, and not
missing; missing memory stays missing whatever moves.
"""

import copy
import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import compress
from typing import Any, NamedTuple, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.model.disk_templates import TEMPLATES, Mirror
from ganeti.placement.description import (
    RUNNING,
    SWITCHED_OFF,
    Cluster,
    Group,
    Instance,
    Node,
)
from ganeti.placement.names import common_suffix
from ganeti.placement.places import NO_NODE
from ganeti.placement.tagrules import TagRules
from ganeti.placement.versions import Version
from ganeti.placement.weights import CPU_LOAD, DISK_LOAD, LOADS

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]

_MIRRORS = {name: index for index, name in enumerate(Mirror)}
MIRROR_NONE, MIRROR_INTERNAL, MIRROR_EXTERNAL = (_MIRRORS[name] for name in Mirror)


def template_index(name: str) -> int:
    """Return the number of a disk template in arrays; -1 if it does not exist."""
    return _template_numbers(tuple(TEMPLATES)).get(name, -1)


@lru_cache(maxsize=2)
def _template_numbers(names: tuple[str, ...]) -> dict[str, int]:
    return {name: index for index, name in enumerate(names)}


@lru_cache(maxsize=2)
def _template_facts(names: tuple[str, ...]) -> npt.NDArray[np.int_]:
    """Return a row for each template: its mirror, whether it uses the node's disk, whether it is balanced."""
    rows = [TEMPLATES[name] for name in names]
    return np.array([(_MIRRORS[one.mirror], one.uses_node_disk, one.is_balanced) for one in rows])


def _floats(values: Sequence[float]) -> Floats:
    return np.array(values, dtype=np.float64)


class Instances:
    """Columns of instances. `counts` is False for stopped ones, which use no processors and reserve no memory."""

    _COLUMNS = (
        *("memory", "disk", "vcpus", "spindle_use", "spindles", "uses_memory", "counts"),
        *("reserve", "mirror", "is_local", "is_movable", "auto_balance", "loads"),
        *("template", "disks", "smallest_disk", "largest_disk"),
    )

    def __init__(self, given: Sequence[Instance], cluster: Cluster) -> None:
        self.memory = _floats([one.memory for one in given])
        self.disk = _floats([one.disk for one in given])
        self.vcpus = _floats([one.vcpus for one in given])
        self.spindle_use = _floats([one.spindle_use for one in given])
        self.spindles = np.array([one.spindles for one in given], dtype=np.float64)  # None: NaN
        self.uses_memory = np.array([one.status in RUNNING for one in given], dtype=bool)
        self.counts = np.array([one.status != SWITCHED_OFF for one in given], dtype=bool)
        self.auto_balance = np.array([one.auto_balance for one in given], dtype=bool)
        self.reserve = np.where(self.counts & self.auto_balance, self.memory, 0.0)
        self.template = _template_indices(given)
        self.disks = _floats([len(one.disks) for one in given])
        sizes = _floats([size for one in given for size in one.disks])
        self.smallest_disk = _by_instance(np.minimum, sizes, self.disks)
        self.largest_disk = _by_instance(np.maximum, sizes, self.disks)
        rows = _template_facts(tuple(TEMPLATES))[self.template]
        self.mirror: Indices = rows[:, 0].astype(np.intp)
        self.is_local: Bools = rows[:, 1].astype(bool)
        self.is_movable: Bools = rows[:, 2].astype(bool)
        self.loads = np.ones((LOADS, len(given)))
        for index, one in enumerate(given) if cluster.utilisation else ():
            if one.name in cluster.utilisation:
                self.loads[:, index] = cluster.utilisation[one.name]

    def __len__(self) -> int:
        return len(self.memory)

    def following(
        self, changed: Sequence[int], given: Sequence[Instance], cluster: Cluster
    ) -> "Instances":
        """Return the columns of `given`, as `Instances` does; these are its own but for the changed and the last rows."""
        number, twin = len(self), copy.copy(self)
        if not changed and len(given) == number:
            return twin
        new = Instances([*(given[row] for row in changed), *given[number:]], cluster)
        rows: Indices = np.array(changed, dtype=np.intp)
        for name in self._COLUMNS:
            values, column = getattr(new, name), getattr(self, name)
            if changed:
                column = column.copy()
                column[..., rows] = values[..., : len(changed)]
            if len(given) > number:
                column = np.concatenate([column, values[..., len(changed) :]], axis=-1)
            setattr(twin, name, column)
        return twin

    def extend(self, more: "Instances") -> None:
        """Append the rows of `more`."""
        for name in self._COLUMNS:
            joined = np.concatenate([getattr(self, name), getattr(more, name)], axis=-1)
            setattr(self, name, joined)


class Rows(NamedTuple):
    """The instances of a description, with the indices of their nodes."""

    names: list[str]
    columns: Instances
    primary: Indices
    secondary: Indices


Memo = dict[int, tuple[Instance, Any]]
"""The facts of `small` about instances, by their `id`; each instance is kept, so that no other gets its `id`."""
MOST_KEPT = 3
"""So many times the instances of a cluster may be in a memo before it is begun again."""


class KeptColumns:
    """Follows descriptions of one cluster, whose instances are mostly the same objects."""

    def __init__(self) -> None:
        self._nodes: list[str] = []
        self._last: tuple[Sequence[Instance], Rows] | None = None
        self._memo: Memo = {}

    def memo(self, cluster: Cluster) -> Memo:
        """Return the facts of `small` about instances of this and of earlier descriptions."""
        if cluster.utilisation:  # it is among the facts
            return {}
        if len(self._memo) > MOST_KEPT * (len(cluster.instances) + 1):
            self._memo = {}
        return self._memo

    def of(self, cluster: Cluster) -> Rows:
        """Return the rows of the instances; the caller may change and extend all of them."""
        given, nodes = cluster.instances, [one.name for one in cluster.nodes]
        if cluster.utilisation:  # every row may be another
            return _rows(cluster, nodes, given)
        changed = None
        if self._last is not None and nodes == self._nodes:
            changed = _changed_rows(self._last[0], given)
        if self._last is None or changed is None:
            found = _rows(cluster, nodes, given)
        else:
            found = _following(self._last[1], changed, cluster, nodes)
        self._last, self._nodes = (given, found), nodes
        return Rows(
            list(found.names),
            copy.copy(found.columns),
            found.primary.copy(),
            found.secondary.copy(),
        )


def _changed_rows(former: Sequence[Instance], given: Sequence[Instance]) -> list[int] | None:
    """Return the rows of `former` that are others in `given`; None if most are."""
    if len(given) < len(former):
        return None
    changed = list(compress(range(len(former)), map(operator.is_not, former, given)))
    return None if 2 * len(changed) > len(former) else changed


def _rows(cluster: Cluster, nodes: Sequence[str], given: Sequence[Instance]) -> Rows:
    primary, secondary = _places(nodes, given)
    return Rows([one.name for one in given], Instances(given, cluster), primary, secondary)


def _following(last: Rows, changed: list[int], cluster: Cluster, nodes: Sequence[str]) -> Rows:
    """Return `_rows` of the cluster; all but the changed and the added ones are those of `last`."""
    given, number = cluster.instances, len(last.names)
    others = [*(given[row] for row in changed), *given[number:]]
    if not others:
        return last
    rows = [*changed, *range(number, len(given))]
    names, primary, secondary = list(last.names), last.primary, last.secondary
    names += [""] * (len(given) - number)
    for row, one in zip(rows, others, strict=True):
        names[row] = one.name
    primary, secondary = np.resize(primary, len(given)), np.resize(secondary, len(given))
    primary[rows], secondary[rows] = _places(nodes, others)
    return Rows(names, last.columns.following(changed, given, cluster), primary, secondary)


def _places(nodes: Sequence[str], given: Sequence[Instance]) -> tuple[Indices, Indices]:
    index = {name: number for number, name in enumerate(nodes)}
    index[""] = NO_NODE
    try:
        primary = [index[one.primary] for one in given]
        secondary = [index[one.secondary] for one in given]
    except KeyError as err:
        name = str(err.args[0])
        whose = next(one.name for one in given if name in (one.primary, one.secondary))
        _refuse(f"Unknown node '{name}' for instance {whose}")
    if NO_NODE in primary:
        _refuse(f"Instance {given[primary.index(NO_NODE)].name} has no primary node")
    return np.array(primary, dtype=np.intp), np.array(secondary, dtype=np.intp)


def _by_instance(which: np.ufunc, sizes: Floats, numbers: Floats) -> Floats:
    """Return the smallest or largest of each instance's sizes; 0 for an instance without any."""
    found = np.zeros(len(numbers))
    ends = numbers.cumsum().astype(np.intp)
    some = numbers > 0
    if some.any():
        found[some] = which.reduceat(sizes, (ends - numbers.astype(np.intp))[some])
    return found


def _template_indices(given: Sequence[Instance]) -> Indices:
    numbers = _template_numbers(tuple(TEMPLATES))
    try:
        return np.array([numbers[one.template] for one in given], dtype=np.intp)
    except KeyError as err:
        _refuse(f"unknown disk template {str(err.args[0])!r:.40}")


_BY_NODE = (
    *("instance_memory", "free", "free_if_all", "free_disk", "used_spindles", "free_spindles"),
    *("used_cpus", "loads", "primaries", "secondaries", "fails", "reserved"),
)
"""The change that an instance makes at its nodes, except `peers` and tags."""


class _Sums:
    """Sums of the values of instances by node; instances at NO_NODE count nowhere."""

    def __init__(self, where: Indices, size: int) -> None:
        there = where >= 0
        self._there = None if there.all() else there
        self._where, self._size = where if self._there is None else where[there], size

    def of(self, values: Floats) -> Floats:
        """Return the sum of each node."""
        if not len(self._where):
            return np.zeros(self._size)
        some = values if self._there is None else values[self._there]
        total: Floats = np.bincount(self._where, some, self._size).astype(np.float64, copy=False)
        return total


class State:
    """The nodes of all instances. Steps (`add_primary` and the like) change it without any check."""

    def __init__(
        self,
        cluster: Cluster,
        exclusion_tags: Sequence[str] = (),
        kept: KeptColumns | None = None,
    ) -> None:
        """`kept` has columns of an earlier description."""
        self.groups: tuple[Group, ...] = tuple(cluster.groups)
        self.nodes: tuple[Node, ...] = tuple(cluster.nodes)
        self.descriptions = list(cluster.instances)
        self.cluster = cluster
        self._domain: str | None = None
        kept = kept or KeptColumns()
        self.memo = kept.memo(cluster)
        """Copies share it."""
        self._read_nodes(self.nodes)
        rows = kept.of(cluster)
        self.names, self.instances, self.primary, self.secondary = rows
        self.tags = TagRules(cluster, self.primary, exclusion_tags)
        self._settle()

    def _read_nodes(self, nodes: Sequence[Node]) -> None:
        index = {group.uuid: number for number, group in enumerate(self.groups)}
        for node in nodes:
            if node.group not in index:
                _refuse(f"Unknown group '{node.group}' for node {node.name}")
        self.group: Indices = np.array([index[one.group] for one in nodes], dtype=np.intp)
        self.offline = np.array([one.offline for one in nodes], dtype=bool)
        self.lost = np.array([one.is_lost for one in nodes], dtype=bool)
        self.exclusive = np.array([one.exclusive_storage for one in nodes], dtype=bool)
        self.total_memory = _floats([one.total_memory for one in nodes])
        self.node_memory = _floats([one.node_memory for one in nodes])
        self.reported_free = _floats([one.free_memory for one in nodes])
        self.total_disk = _floats([one.total_disk for one in nodes])
        self.free_disk = _floats([one.free_disk for one in nodes])
        self.total_cpus = _floats([one.total_cpus for one in nodes])
        self.used_cpus = _floats([one.node_cpus for one in nodes])
        self.cpu_speed = _floats([one.cpu_speed for one in nodes])
        self.total_spindles = _floats([one.total_spindles for one in nodes])
        self.free_spindles = _floats([one.free_spindles for one in nodes])
        policies = [one.policy for one in self.groups]
        self.cpu_ratio = _floats([one.get("vcpu-ratio", 4.0) for one in policies])[self.group]
        spindle_ratio = _floats([one.get("spindle-ratio", 32.0) for one in policies])
        self.most_spindles = spindle_ratio[self.group] * self.total_spindles
        self.low_disk = np.zeros(len(nodes))

    def _settle(self) -> None:
        """Compute the values that follow from the nodes of the instances."""
        size, these = len(self.nodes), self.instances

        at_primary = _Sums(self.primary, size)
        at_secondary = _Sums(self.secondary, size)
        one = np.ones(len(these))
        both = these.is_local & (self.secondary >= 0)
        spindles = np.where(these.is_local, these.spindle_use, 0.0)
        self.primaries = at_primary.of(one)
        self.secondaries = at_secondary.of(one)
        self.instance_memory = at_primary.of(these.memory * these.uses_memory)
        self.used_cpus += at_primary.of(these.vcpus * these.counts)
        self.used_spindles = at_primary.of(spindles) + at_secondary.of(spindles)
        self.used_spindles[self.exclusive] = 0.0
        self.loads = np.array([at_primary.of(load) for load in these.loads])
        self.loads[CPU_LOAD] += _floats([one.own_load for one in self.nodes])
        self.loads[DISK_LOAD] += at_secondary.of(these.loads[DISK_LOAD])
        recorded = self.total_memory - self.node_memory - self.instance_memory
        self.missing_memory = recorded - self.reported_free
        self.free = recorded - np.maximum(0.0, self.missing_memory)
        # As if all stopped instances ran.
        self.free_if_all = self.reported_free - at_primary.of(these.memory * ~these.uses_memory)
        peers = np.zeros((size, size))
        if both.any():
            np.add.at(peers, (self.secondary[both], self.primary[both]), these.reserve[both])
        self._peers = Version(peers)
        self.reserved = peers.max(axis=1, initial=0.0)
        self.fails = self.reported_free < self.reserved
        local_disk = these.disk * these.is_local
        used = at_primary.of(local_disk) + at_secondary.of(local_disk)
        self.missing_disk = self.total_disk - self.free_disk - used

    @property
    def peers(self) -> Floats:
        """(secondary, primary): the memory that a node reserves for another's instances. Valid until the next change."""
        return self._peers.read()

    @property
    def has_shared(self) -> bool:
        """True if the disks of some instance are on storage that all nodes share."""
        return bool((self.instances.mirror == MIRROR_EXTERNAL).any())

    def in_groups(self, groups: Iterable[int]) -> Bools:
        """Return, by node, whether it is in one of these groups."""
        chosen = np.zeros(len(self.groups), dtype=bool)
        chosen[list(groups)] = True
        inside: Bools = chosen[self.group]
        return inside

    @property
    def domain(self) -> str:
        """Return the suffix that all names share, with its dot."""
        if self._domain is None:
            self._domain = common_suffix([*(node.name for node in self.nodes), *self.names])
        return self._domain

    def alias(self, name: str) -> str:
        """Return a name in the printed form: without the domain."""
        return name.removesuffix(self.domain)

    def copy(self) -> "State":
        """Return a copy that changes independently."""
        twin = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(twin, name, value.copy())
        twin.tags = self.tags.copy()
        twin.instances = copy.copy(self.instances)
        twin.names, twin.descriptions = list(self.names), list(self.descriptions)
        return twin

    def limit(self, max_cpu: float | None = None, min_disk: float | None = None) -> None:
        """Set limits instead of the policies': virtual per physical processor, share of disk that stays free."""
        if max_cpu is not None:
            self.cpu_ratio = np.full(len(self.nodes), max_cpu)
        if min_disk is not None:
            self.low_disk = np.floor(min_disk * self.total_disk)

    def append(self, wanted: Instance, primary: int, secondary: int = NO_NODE) -> int:
        """Put a new instance on its nodes; return its index."""
        index = len(self.names)
        self.admit([wanted])
        self.primary[index], self.secondary[index] = primary, secondary
        self.add_primary(index, primary)
        if secondary >= 0:
            self.add_secondary(index, secondary, primary)
        return index

    def admit(self, wanted: Sequence[Instance]) -> None:
        """Append instances that are on no node yet."""
        self.names += [one.name for one in wanted]
        self.descriptions += wanted
        more = Instances(wanted, self.cluster)
        self.instances.extend(more)
        nowhere = np.full(len(wanted), NO_NODE, dtype=np.intp)
        self.primary = np.concatenate([self.primary, nowhere])
        self.secondary = np.concatenate([self.secondary, nowhere])
        self.tags.admit(wanted)

    def record(self, wanted: Sequence[Instance], places: Sequence[tuple[int, int]]) -> None:
        """Append instances that the nodes include already: (primary, secondary or NO_NODE)."""
        first = len(self.names)
        self.admit(wanted)
        self.primary[first:], self.secondary[first:] = np.reshape(places, (-1, 2)).T

    def dismiss(self, number: int = 1) -> None:
        """Remove the last admitted instances, which are on no node."""
        left = len(self.names) - number
        del self.names[left:], self.descriptions[left:]
        for name in Instances._COLUMNS:  # noqa: SLF001 - one module
            setattr(self.instances, name, getattr(self.instances, name)[..., :left])
        self.primary, self.secondary = self.primary[:left], self.secondary[:left]
        self.tags.dismiss(number)

    def remove_primary(self, index: int, node: int) -> None:
        """Take the instance off its primary node."""
        self._primary(index, node, -1.0)

    def add_primary(self, index: int, node: int) -> None:
        """Put the instance on a node as its primary."""
        self._primary(index, node, 1.0)

    def _primary(self, index: int, node: int, sign: float) -> None:
        these = self.instances
        memory = sign * these.memory[index]
        if these.uses_memory[index]:
            self.instance_memory[node] += memory
            self.free[node] -= memory
        self.free_if_all[node] -= memory
        self._disk(index, node, sign)
        if these.counts[index]:
            self.used_cpus[node] += sign * these.vcpus[index]
        self.loads[:, node] += sign * these.loads[:, index]
        self.primaries[node] += sign
        self.fails[node] = self.free[node] <= self.reserved[node]
        self.tags.count(index, node, sign)

    def _disk(self, index: int, node: int, sign: float) -> None:
        these = self.instances
        if these.is_local[index]:
            self.free_disk[node] -= sign * these.disk[index]
            if not self.exclusive[node]:
                self.used_spindles[node] += sign * these.spindle_use[index]
        if not self.exclusive[node]:
            self.free_spindles[node] = 0.0  # upstream's report for a node without free spindles
        elif not np.isnan(these.spindles[index]):
            self.free_spindles[node] -= sign * these.spindles[index]

    def remove_secondary(self, index: int, node: int, primary: int) -> None:
        """Take the instance, whose primary is `primary`, off its secondary node."""
        self._secondary(index, node, primary, -1.0)

    def add_secondary(self, index: int, node: int, primary: int) -> None:
        """Put the instance, whose primary is `primary`, on a node as its secondary."""
        self._secondary(index, node, primary, 1.0)

    def _secondary(self, index: int, node: int, primary: int, sign: float) -> None:
        these = self.instances
        self._disk(index, node, sign)
        peers = self.peers
        self._peers = self._peers.changed(
            (node, primary), float(peers[node, primary] + sign * these.reserve[index])
        )
        self.reserved[node] = peers[node].max()
        self.loads[DISK_LOAD, node] += sign * these.loads[DISK_LOAD, index]
        self.secondaries[node] += sign
        self.fails[node] = self.free[node] <= self.reserved[node]

    @contextmanager
    def placed(self, index: int, primary: int, secondary: int) -> Iterator[None]:
        """Give the state with the unplaced instance on these nodes; restore it exactly afterwards."""
        nodes = [node for node in (primary, secondary) if node >= 0]
        kept = {name: getattr(self, name)[..., nodes] for name in _BY_NODE}
        peers, tags = self._peers, self.tags.counts[:, primary].copy()
        self.primary[index], self.secondary[index] = primary, secondary
        self.add_primary(index, primary)
        if secondary >= 0:
            self.add_secondary(index, secondary, primary)
        try:
            yield
        finally:
            self.primary[index] = self.secondary[index] = NO_NODE
            for name, values in kept.items():
                getattr(self, name)[..., nodes] = values
            self._peers = peers
            self.tags.counts[:, primary] = tags

    def settle_at(self, index: int, primary: int, secondary: int) -> None:
        """Move the instance to these nodes in one step."""
        old_primary, old_secondary = int(self.primary[index]), int(self.secondary[index])
        if old_secondary >= 0:
            self.remove_secondary(index, old_secondary, old_primary)
        self.remove_primary(index, old_primary)
        self.primary[index], self.secondary[index] = primary, secondary
        self.add_primary(index, primary)
        if secondary >= 0:
            self.add_secondary(index, secondary, primary)

    def described(self) -> Cluster:
        """Return the description of the present state."""
        names = [*(node.name for node in self.nodes), ""]
        used = self.node_memory + self.instance_memory + self.missing_memory
        free_memory = self.total_memory - used
        changes = {
            "nodes": [
                _changed(
                    node,
                    free_disk=float(disk),
                    free_memory=float(free),
                    free_spindles=float(spindles),
                )
                for node, disk, free, spindles in zip(
                    self.nodes, self.free_disk, free_memory, self.free_spindles, strict=True
                )
            ],
            "instances": [
                _changed(one, primary=names[first], secondary=names[second])
                for one, first, second in zip(
                    self.descriptions, self.primary, self.secondary, strict=True
                )
            ],
        }
        described: Cluster = _changed(self.cluster, **changes)
        return described


def _changed(struct: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(struct, **changes)


def _refuse(message: str) -> NoReturn:
    raise PrereqError(message, ErrorCode.WRONG_INPUT)
