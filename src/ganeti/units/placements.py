"""Placements that are decided, but whose guests do not run yet."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from ganeti.config.snapshot import Snapshot
from ganeti.model.disk_templates import DISK_TEMPLATES, StorageUnit
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.procedures.host import NodeInfo

ENDED_LIMIT = 1000
"""The number of ended placements that are kept, for users of older node reports."""


@dataclass(frozen=True)
class Placement:
    """The instance that one job will put on nodes, the primary first; `message` is the allocator's form of it."""

    job_id: int
    nodes: tuple[NodeUuid, ...]
    name: str
    message: dict[str, Any]
    will_run: bool

    @property
    def memory(self) -> int:
        """MiB that the guest will use when it starts."""
        return int(self.message["memory"]) if self.will_run else 0

    unit: StorageUnit | None = None
    """The storage units of its disks; None if they use no space."""

    def disk_space(self, unit: StorageUnit, node: NodeUuid) -> int:
        """Return MiB that its disks will use in a storage unit of `node`."""
        if self.unit != unit:
            return 0
        takes = node in self.nodes or DISK_TEMPLATES[self.message["disk_template"]].shared
        return int(self.message["disk_space_total"]) if takes else 0

    def spindles(self, unit: StorageUnit, node: NodeUuid) -> int:
        """Return the number of physical devices that its disks will have for themselves on the node."""
        if self.unit != unit or node not in self.nodes:
            return 0
        return sum(disk["spindles"] or 0 for disk in self.message["disks"])


@dataclass
class Placements:
    """Serialises allocations, and keeps each until its guest runs or its job ends.

    Without it two concurrent jobs could get the same free memory.
    """

    deciding: asyncio.Lock = field(default_factory=asyncio.Lock)
    _placed: dict[int, Placement] = field(default_factory=dict)
    _ended: list[tuple[int, Placement]] = field(default_factory=list)
    _marks: int = 0
    _forgotten: int = 0

    def place(self, placement: Placement) -> None:
        """Record the placement of a job; its order is that of the job's first placement."""
        self._placed[placement.job_id] = placement

    def release(self, job_id: int) -> None:
        """End the job's placement: its guest runs by now and is visible on its node, or never will be."""
        ended = self._placed.pop(job_id, None)
        if ended is not None:
            self._marks += 1
            self._ended.append((self._marks, ended))
            if len(self._ended) > ENDED_LIMIT:
                self._ended.clear()
                self._forgotten = self._marks

    def jobs(self) -> frozenset[int]:
        """Return the jobs with a pending placement."""
        return frozenset(self._placed)

    def pending(self) -> list[Placement]:
        """Return every pending placement, in the order of decision."""
        return list(self._placed.values())

    def mark(self) -> int:
        """Return a watermark: node reports requested after it include every placement that has ended by now."""
        return self._marks

    def since(self, mark: int) -> list[Placement]:
        """Return pending placements, and those that ended after `mark`, which older node reports may lack."""
        return self.pending() + [one for number, one in self._ended if number > mark]

    def knows(self, mark: int) -> bool:
        """Return whether every placement that ended after `mark` is still kept."""
        return mark >= self._forgotten

    def forget_before(self, mark: int) -> None:
        """Forget placements that ended before `mark`; no later reader needs them."""
        self._ended = [(number, one) for number, one in self._ended if number > mark]

    def before(self, job_id: int) -> list[Placement]:
        """Return the placements that were decided before that of a job; all if it has none."""
        return list(takewhile(lambda one: one.job_id != job_id, self._placed.values()))


def unknown(placements: Iterable[Placement], snapshot: Snapshot) -> list[Placement]:
    """Return those with disks whose instances a configuration does not have: the disks do not exist yet."""
    return [
        one
        for one in placements
        if one.unit is not None and snapshot.instance_by_name(one.name) is None
    ]


def memory_on(placements: Iterable[Placement], node: NodeUuid) -> int:
    """Return MiB of memory that placements will use on a node."""
    return sum(one.memory for one in placements if one.nodes[0] == node)


def minus_reserved(
    info: NodeInfo, snapshot: Snapshot, node: Node, placements: Sequence[Placement]
) -> NodeInfo:
    """Return `info` as after the placements; disks of known instances exist already."""
    new = unknown(placements, snapshot)
    storage = []
    for space in info.storage:
        planned = sum(one.disk_space(space.unit, node.uuid) for one in new)
        devices = sum(one.spindles(space.unit, node.uuid) for one in new)
        storage.append(
            replace(
                space,
                free=max(0, space.free - planned),
                free_devices=max(0, space.free_devices - devices),
            )
        )
    memory_free = max(0, info.memory_free - memory_on(placements, node.uuid))
    return replace(info, memory_free=memory_free, storage=storage)
