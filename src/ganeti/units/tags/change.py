"""Addition, removal, list and search of tags."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from msgspec.structs import replace

from ganeti.base.errors import InputError
from ganeti.base.yield_every import YieldEvery
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change, Outcome
from ganeti.locking.levels import Mode
from ganeti.locking.requests import LockRequest
from ganeti.model.opcodes.tags import OpTagsDel, OpTagsGet, OpTagsSearch, OpTagsSet
from ganeti.model.stored import Stored
from ganeti.query.pattern import Pattern
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.instance.requests import check_tags
from ganeti.units.tags.taggable import (
    lock_of,
    same_object,
    tag_paths,
    tagged_object,
    with_tags,
    without_tags,
)

OpT = TypeVar("OpT", OpTagsSet, OpTagsDel)


class LUTagsGet(LogicalUnit[OpTagsGet, None]):
    """Return the tags of one object."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        thing = tagged_object(snapshot, self.op.kind, self.op.name)
        return lock_of(thing, Mode.SHARED) if self.op.use_locking else []

    async def check_prereq(self, ctx: UnitContext) -> None:
        return None

    async def execute(self, ctx: UnitContext, plan: None) -> Outcome:
        thing = tagged_object(ctx.snapshot, self.op.kind, self.op.name)
        return Outcome(list(thing.tags))


class ChangeOfTags(LogicalUnit[OpT, Change], Generic[OpT]):
    """The common part of adding and removing: the other tags of the object may change meanwhile."""

    def check_arguments(self) -> None:
        if not self.op.tags:
            raise InputError("must name at least one tag", "tags")
        check_tags(self.op.tags)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return lock_of(tagged_object(snapshot, self.op.kind, self.op.name))

    def planned(
        self, ctx: UnitContext, tags_of: Callable[[Stored, Sequence[str]], tuple[str, ...]]
    ) -> Change:
        """The change, which has been checked."""
        thing = tagged_object(ctx.snapshot, self.op.kind, self.op.name)

        def change(draft: Draft) -> None:
            current = same_object(draft, thing)
            draft.put(replace(current, tags=tags_of(current, self.op.tags)))

        ctx.check_change(change)
        return change

    async def execute(self, ctx: UnitContext, plan: Change) -> Outcome:
        return Outcome(change=plan)


class LUTagsSet(ChangeOfTags[OpTagsSet]):
    """Add tags to one object."""

    async def check_prereq(self, ctx: UnitContext) -> Change:
        return self.planned(ctx, with_tags)


class LUTagsDel(ChangeOfTags[OpTagsDel]):
    """Remove tags from one object."""

    async def check_prereq(self, ctx: UnitContext) -> Change:
        return self.planned(ctx, without_tags)


class LUTagsSearch(LogicalUnit[OpTagsSearch, Pattern]):
    """Find tags by a regular expression."""

    async def check_prereq(self, ctx: UnitContext) -> Pattern:
        return Pattern(self.op.pattern)

    async def execute(self, ctx: UnitContext, plan: Pattern) -> Outcome:
        found = []
        pause = YieldEvery()
        for path, tags in tag_paths(ctx.snapshot):
            found += [[path, tag] for tag in sorted(tags) if plan.search(tag)]
            await pause()
        return Outcome(found)
