"""Placements that are decided, but not in the configuration yet."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from ganeti.model.objects import NodeUuid


@dataclass
class Placements:
    """Lets one allocation be decided at a time, and remembers each until its job ends.

    Without it two jobs that ask at the same time would be given the same free memory.
    """

    deciding: asyncio.Lock = field(default_factory=asyncio.Lock)
    _placed: dict[int, tuple[NodeUuid, str, dict[str, Any]]] = field(default_factory=dict)

    def place(self, job_id: int, node: NodeUuid, name: str, instance: dict[str, Any]) -> None:
        """Remember what a job is about to put on `node`, in the allocator's form."""
        self._placed[job_id] = (node, name, instance)

    def release(self, job_id: int) -> None:
        """The job has ended: what it placed is in the configuration, or nowhere."""
        self._placed.pop(job_id, None)

    def pending(self) -> list[tuple[NodeUuid, str, dict[str, Any]]]:
        """(node, instance name, instance) of every placement that is under way."""
        return list(self._placed.values())
