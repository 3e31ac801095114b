"""The directories with an instance's incremental backups: found, checked, pruned."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from msgspec import structs

from ganeti.base.errors import ErrorCode, ExecError, InputError, PrereqError, RpcError
from ganeti.base.identifiers import is_absolute_path, is_uuid
from ganeti.config.resolve import resolve_node, resolve_schedule
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.model.names import ProofState
from ganeti.model.objects import Node
from ganeti.model.opcodes.points import OnBackups, OpBackupCheck, OpBackupPrune
from ganeti.model.retention import Retention, kept
from ganeti.protocols.backup_manifest import check_point
from ganeti.rpc.procedures.backups import (
    BACKUP_CHECK,
    BACKUP_LIST,
    BACKUP_PRUNE,
    BackupListing,
    BackupsOf,
    PointInfo,
    PrunePoints,
)
from ganeti.rpc.procedures.form import Nothing
from ganeti.units.backup.keys import keys_for
from ganeti.units.backup.named import OnName
from ganeti.units.context import UnitContext
from ganeti.units.telling import showing

DEFAULT_TARGET = "/srv/ganeti/backup"


@dataclass(frozen=True)
class Place:
    """A directory on a node, and the backups of one instance in it, the oldest first."""

    node: Node
    target: str
    instance: str
    points: list[PointInfo] = field(default_factory=list)

    @property
    def words(self) -> str:
        return f"{self.node.name}:{self.target}"

    @property
    def args(self) -> BackupsOf:
        return BackupsOf(target=self.target, instance_name=self.instance)

    def has(self, name: str) -> bool:
        """Return whether the backup is here, and usable."""
        return any(one.point == name and not one.problem for one in self.points)

    def find(self, name: str | None) -> PointInfo:
        """Return a backup, by default the last one; PrereqError with the existing ones."""
        usable = {one.point: one for one in self.points if not one.problem}
        found = usable.get(name) if name else next(reversed(usable.values()), None)
        if found is None:
            raise PrereqError(
                f"{self.words} has no usable backup {name or ''} of {self.instance}; it has"
                f" {', '.join(usable) or 'none'}",
                ErrorCode.UNKNOWN_ENTITY,
            )
        return found


def check_place(op: OnBackups) -> None:
    """Refuse directories that cannot be meant."""
    if op.target is not None:
        if not is_absolute_path(op.target):
            raise InputError("must be an absolute path", "target")
        if op.node is None:
            raise InputError("name the node of the directory (--node)", "target")


async def listings(ctx: UnitContext, nodes: Sequence[Node]) -> dict[str, BackupListing]:
    """Return the backups on the nodes that answer, by the UUID of the node."""
    answers = await ctx.call_all(nodes, BACKUP_LIST, Nothing())
    found = dict[str, BackupListing]()
    for node, answer in zip(nodes, answers.values(), strict=True):
        if isinstance(answer, RpcError):
            ctx.warn(f"{answer}; backups on that node are left out")
        else:
            found[node.uuid] = answer
    return found


async def places(ctx: UnitContext, op: OnBackups, name: str) -> list[Place]:
    """Return the directories that the request allows and that have backups of the instance."""
    nodes = [resolve_node(ctx.snapshot, op.node)] if op.node else list(ctx.snapshot.online_nodes())
    found = []
    for uuid, listing in (await listings(ctx, nodes)).items():
        for target in dict.fromkeys(one.target for one in listing.points):
            points = [one for one in listing.points if (one.target, one.instance) == (target, name)]
            if points and op.target in (None, target):
                node = next(one for one in nodes if one.uuid == uuid)
                found.append(Place(node, target, name, points))
    return found


async def only_place(ctx: UnitContext, op: OnBackups, name: str) -> Place:
    """Return the directory with the backups of the instance; PrereqError unless it is exactly one."""
    found = await places(ctx, op, name)
    if len(found) != 1:
        why = (
            f"several directories have backups of {name} ({', '.join(one.words for one in found)}); choose one with"
            " --node and --target"
            if found
            else f"no node that answers has a backup of {name} there; gnt-backup points shows all"
        )
        raise PrereqError(why, ErrorCode.UNKNOWN_ENTITY)
    return found[0]


OpT = TypeVar("OpT", bound=OnBackups)


class OnPlace(OnName[OpT, Place]):
    """A unit on the backups of one name."""

    def check_arguments(self) -> None:
        super().check_arguments()
        check_place(self.op)

    async def check_prereq(self, ctx: UnitContext) -> Place:
        self.check_uuid(ctx.snapshot)
        return await only_place(ctx, self.op, self.name)


@dataclass(frozen=True)
class PrunePlan:
    """The directory, and others with backups of the same schedule."""

    place: Place
    former: list[Place]

    @property
    def usable(self) -> dict[str, tuple[Place, PointInfo]]:
        """Return the backups to decide about, in the order of their making, by words that name each of them."""
        own = {one.point: (self.place, one) for one in self.place.points if not one.problem}
        if not self.former:
            return own
        others = {
            f"{one.point} in {place.words}": (place, one)
            for place in self.former
            for one in place.points
        }
        return dict(sorted({**others, **own}.items(), key=lambda item: item[1][1].time))


class LUBackupPrune(OnName[OpBackupPrune, PrunePlan]):
    """Remove the backups that no rule keeps."""

    def check_arguments(self) -> None:
        super().check_arguments()
        check_place(self.op)
        rules = structs.asdict(self.op)
        numbers = {name: value for name, value in rules.items() if name.startswith("keep_")}
        for name, value in numbers.items():
            if value < 0:
                raise InputError("must not be negative", name)
        if not any(numbers.values()):
            raise InputError("pass at least one rule, for example --keep-daily=7", "keep_last")

    async def check_prereq(self, ctx: UnitContext) -> PrunePlan:
        self.check_uuid(ctx.snapshot)
        place = await only_place(ctx, self.op, self.name)
        return PrunePlan(place, await self._former(ctx, place) if self.op.schedule else [])

    async def _former(self, ctx: UnitContext, place: Place) -> list[Place]:
        """Return the other directories with backups of the schedule, with these backups only."""
        given, found = str(self.op.schedule), list[Place]()
        # A schedule that was removed meanwhile still has its UUID in the manifests.
        uuid = given if is_uuid(given) else resolve_schedule(ctx.snapshot, given).uuid
        anywhere = structs.replace(self.op, node=None, target=None)
        for one in await places(ctx, anywhere, self.name):
            points = [it for it in one.points if it.schedule == uuid and not it.problem]
            if points and (one.node.uuid, one.target) != (place.node.uuid, place.target):
                found.append(replace(one, points=points))
        return found

    def _decided(self, snapshot: Snapshot, plan: PrunePlan) -> dict[str, Any]:
        op, usable = self.op, plan.usable
        rules = Retention(
            last=op.keep_last,
            hourly=op.keep_hourly,
            daily=op.keep_daily,
            weekly=op.keep_weekly,
            monthly=op.keep_monthly,
            yearly=op.keep_yearly,
        )
        good = [words for words, (_, one) in usable.items() if one.proof.state is ProofState.GOOD]
        times = [(words, one.time) for words, (_, one) in usable.items()]
        reasons = dict(kept(times, rules, good))
        restored = _being_restored(snapshot, plan.place.instance)
        for words in sorted(words for words, (_, one) in usable.items() if one.point in restored):
            reasons[words] = [*reasons.get(words, []), "being restored"]
        return {
            "kept": [{"point": words, "why": why} for words, why in reasons.items()],
            "removed": [words for words in usable if words not in reasons],
        }

    def dry_run_result(self, ctx: UnitContext, plan: PrunePlan) -> Any:
        return self._decided(ctx.snapshot, plan)

    async def execute(self, ctx: UnitContext, plan: PrunePlan) -> Outcome:
        decided, usable = self._decided(ctx.snapshot, plan), plan.usable
        removed = [usable[words] for words in decided["removed"]]
        for place in (plan.place, *plan.former):
            names = [one.point for where, one in removed if where is place]
            if not names:
                continue
            try:
                await self._prune(ctx, place, names)
            except RpcError as err:
                if place is plan.place:
                    raise
                ctx.warn(f"{err}; older backups in {place.words} remain until the next prune")
        return Outcome(decided)

    @staticmethod
    async def _prune(ctx: UnitContext, place: Place, names: list[str]) -> None:
        ctx.step(f"removing {len(names)} backups of {place.instance} in {place.words}")
        args = PrunePoints(
            target=place.target,
            instance_name=place.instance,
            keys=keys_for(ctx.snapshot, place.instance),
            points=names,
        )
        async with showing(ctx, place.node, "backups"):
            await ctx.call(place.node, BACKUP_PRUNE, args)


def _being_restored(snapshot: Snapshot, name: str) -> set[str]:
    """Return the backups of a name from which an instance is being restored, in whatever directory."""
    marks = [one.restoring for one in snapshot.instances.values() if one.name == name]
    return {
        point
        for mark in marks
        if mark is not None
        for point in (mark.point, *([mark.live.point] if mark.live else []))
    }


class LUBackupCheck(OnPlace[OpBackupCheck]):
    """Compare all backups of a name with their digests."""

    async def execute(self, ctx: UnitContext, plan: Place) -> Outcome:
        ctx.step(f"reading the backups of {plan.instance} in {plan.words}")
        async with showing(ctx, plan.node, "backups"):
            args = structs.replace(plan.args, keys=keys_for(ctx.snapshot, plan.instance))
            found = await ctx.call(plan.node, BACKUP_CHECK, args)
        for one in found:
            if one.unrecorded:
                ctx.warn(f"the result for {one.point} is not recorded: {one.unrecorded}")
        good = [one.point for one in found if not one.problems]
        bad = [f"{one.point}: {why}" for one in found for why in one.problems]
        if bad:
            raise ExecError(
                f"{len(bad)} problems of the backups of {plan.instance} in {plan.words}: {'; '.join(bad)};"
                f" these can be restored: {', '.join(good) or 'none'}"
            )
        return Outcome([{"point": name, "problems": []} for name in good])


def check_point_name(name: str | None) -> None:
    """Refuse what cannot be the name of a backup."""
    if name is not None:
        check_point(name)
