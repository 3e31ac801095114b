"""Placements that are decided, but whose guests do not run yet."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from ganeti.model.disk_templates import DISK_TEMPLATES, StorageUnit
from ganeti.model.objects import NodeUuid

ENDED_LIMIT = 1000
"""How many ended placements are remembered, for those who use older reports of nodes."""


@dataclass(frozen=True)
class Placement:
    """What one job is about to put on nodes, the primary first; `message` is the instance in the allocator's form."""

    job_id: int
    nodes: tuple[NodeUuid, ...]
    name: str
    message: dict[str, Any]
    will_run: bool

    @property
    def memory(self) -> int:
        """MiB that the guest will take when it starts."""
        return int(self.message["memory"]) if self.will_run else 0

    unit: StorageUnit | None = None
    """Where its disks will be; None if they take no space."""

    def disk_space(self, unit: StorageUnit, node: NodeUuid) -> int:
        """MiB that its disks will take in a storage unit of `node`."""
        if self.unit != unit:
            return 0
        takes = node in self.nodes or DISK_TEMPLATES[self.message["disk_template"]].shared
        return int(self.message["disk_space_total"]) if takes else 0

    def spindles(self, unit: StorageUnit, node: NodeUuid) -> int:
        """Return how many physical devices its disks will have for themselves there."""
        if self.unit != unit or node not in self.nodes:
            return 0
        return sum(disk["spindles"] or 0 for disk in self.message["disks"])


@dataclass
class Placements:
    """Lets one allocation be decided at a time, and remembers each until its guest runs or its job ends.

    Without it two jobs that ask at the same time would be given the same free memory.
    """

    deciding: asyncio.Lock = field(default_factory=asyncio.Lock)
    _placed: dict[int, Placement] = field(default_factory=dict)
    _ended: list[tuple[int, Placement]] = field(default_factory=list)
    _marks: int = 0
    _forgotten: int = 0

    def place(self, placement: Placement) -> None:
        """Remember what a job is about to do; its place in the order stays that of its first one."""
        self._placed[placement.job_id] = placement

    def release(self, job_id: int) -> None:
        """What the job placed runs by now and can be seen on its node, or it never will."""
        ended = self._placed.pop(job_id, None)
        if ended is not None:
            self._marks += 1
            self._ended.append((self._marks, ended))
            if len(self._ended) > ENDED_LIMIT:
                self._ended.clear()
                self._forgotten = self._marks

    def pending(self) -> list[Placement]:
        """Every placement that is under way, in the order in which they were decided."""
        return list(self._placed.values())

    def mark(self) -> int:
        """Watermark: reports that are requested later include every placement that has ended by now."""
        return self._marks

    def since(self, mark: int) -> list[Placement]:
        """Those under way, and those that ended after `mark` and can be missing in what nodes said then."""
        return self.pending() + [one for number, one in self._ended if number > mark]

    def knows(self, mark: int) -> bool:
        """Return whether everything that ended after `mark` is still remembered."""
        return mark >= self._forgotten

    def forget_before(self, mark: int) -> None:
        """Forget what ended before `mark`; no later reader needs it."""
        self._ended = [(number, one) for number, one in self._ended if number > mark]

    def before(self, job_id: int) -> list[Placement]:
        """Those that were decided before that of a job; all if it has none."""
        return list(takewhile(lambda one: one.job_id != job_id, self._placed.values()))


def memory_on(placements: Iterable[Placement], node: NodeUuid) -> int:
    """MiB of memory that placements will take on a node."""
    return sum(one.memory for one in placements if one.nodes[0] == node)
