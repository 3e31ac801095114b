"""How much memory each guest of a node keeps while the node has too little; pure.

Guests give in proportion to what they can spare, in small steps, and never below their minimum or below what they use.
They get memory back, up to what they had, when the node has a margin above its goal. A return never uses the
margin, so that a return is never followed by a request, and nothing oscillates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

STEP_PARTS = 8
"""A guest's memory changes by at most this part of it in one step."""
LEAST_CHANGE_MIB = 4
"""Smaller changes are not worth a request, unless a guest then has all that it had."""
LEAST_MARGIN_MIB = 64
MARGIN_PARTS = 4
"""The margin is this part of the goal."""
USE_PARTS, USE_MIB = 4, 32
"""A guest keeps this part, and this amount, above its own use."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """One guest; memory in MiB."""

    uuid: str
    memory: int
    least: int
    """Its minimum."""
    before: int
    """What it had before the node took some of it, else `memory`."""
    used: int | None = None
    """What its own system uses; None if that is unknown."""

    @property
    def spare(self) -> int:
        """What it can give in this step."""
        floor = self.least
        if self.used is not None:
            floor = max(floor, self.used + self.used // USE_PARTS + USE_MIB)
        return max(0, min(self.memory - floor, self.memory // STEP_PARTS))

    @property
    def lack(self) -> int:
        """What it can get back in this step."""
        return max(0, min(self.before - self.memory, self.before // STEP_PARTS))


def margin(goal: int) -> int:
    """Return the MiB that remain free above the goal when guests get memory back."""
    return max(LEAST_MARGIN_MIB, goal // MARGIN_PARTS)


def decide(free: int, goal: int, shares: Sequence[Share]) -> dict[str, int]:
    """Return the new memory of the guests that change; `goal` 0 takes none, and gives back."""
    if goal > free:
        taken = _parts({one.uuid: one.spare for one in shares}, goal - free)
        return {
            one.uuid: one.memory - taken[one.uuid]
            for one in shares
            if taken.get(one.uuid, 0) >= LEAST_CHANGE_MIB
        }
    given = _parts({one.uuid: one.lack for one in shares}, free - goal - margin(goal))
    back = {one.uuid: one.memory + given.get(one.uuid, 0) for one in shares}
    return {
        one.uuid: back[one.uuid]
        for one in shares
        if back[one.uuid] >= one.memory + LEAST_CHANGE_MIB
        or one.memory < back[one.uuid] == one.before
    }


def _parts(possible: Mapping[str, int], wanted: int) -> dict[str, int]:
    """Return at most `wanted` MiB in all, in proportion to what is possible."""
    total = sum(possible.values())
    if wanted <= 0 or not total:
        return {}
    return {uuid: amount * min(wanted, total) // total for uuid, amount in possible.items()}
