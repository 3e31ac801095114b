"""Runs recorded steps; the next master can do so from the job's record alone."""

import logging
from collections.abc import Sequence

from ganeti.base.errors import GanetiError, InputError
from ganeti.config.snapshot import Snapshot
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.job import UndoStep
from ganeti.model.objects import NodeUuid
from ganeti.units.services import Services
from ganeti.units.undo.disk_moves import EndDiskMove, SettleDiskMove
from ganeti.units.undo.disks import CloseDisk, RemoveDisk, SetDiskRole
from ganeti.units.undo.guests import ChangeDisk, ChangeMedium, ChangeNic, SetMemory, SetVcpus
from ganeti.units.undo.instances import (
    ContinueGuest,
    EndMoment,
    ForgetInstance,
    ForgetNvram,
    StartAgain,
    StopInstance,
)
from ganeti.units.undo.live_restores import FinishLiveRestore, SettleLiveCopy, SettleLiveStart
from ganeti.units.undo.migrations import EndSource, ReconcileMigration
from ganeti.units.undo.mirrors import RemoveReplaced
from ganeti.units.undo.step import Concerned, Step
from ganeti.units.undo.transfers import (
    AbandonBackup,
    ConfirmStream,
    DropSnapshot,
    EndStream,
    RemoveExport,
    RemoveImageCopy,
    RemoveTransferKey,
)

_log = logging.getLogger(__name__)

STEPS: dict[str, type[Step]] = {
    step.kind: step
    for step in (
        *(
            RemoveDisk,
            RemoveReplaced,
            CloseDisk,
            SetDiskRole,
            ForgetInstance,
            StopInstance,
            EndMoment,
            StartAgain,
            ContinueGuest,
            ForgetNvram,
        ),
        *(ReconcileMigration, EndSource, ChangeDisk, ChangeNic, ChangeMedium, SetVcpus, SetMemory),
        *(RemoveTransferKey, EndStream, ConfirmStream, RemoveExport, DropSnapshot, AbandonBackup),
        *(RemoveImageCopy, EndDiskMove, SettleDiskMove),
        *(SettleLiveStart, SettleLiveCopy, FinishLiveRestore),
    )
}


class _Unknown(Step, frozen=True, kw_only=True):
    """A step that this version cannot read; its object is unknown."""

    kind = "unknown"

    why: str

    async def run(self, services: Services, key: str) -> None:
        raise GanetiError(self.why)

    def concerns(self, snapshot: Snapshot) -> Concerned:
        return Concerned()


def read_step(recorded: UndoStep) -> Step:
    """Return the recorded step; one that always fails if this version cannot read it."""
    kind = STEPS.get(recorded.procedure)
    if kind is None:
        return _Unknown(why=f"this version does not know how to undo {recorded.procedure!r}")
    try:
        return kind.read(recorded.arguments)
    except InputError as err:
        return _Unknown(why=f"this version cannot read it: {err.message}")


def describe(snapshot: Snapshot, recorded: UndoStep) -> str:
    """Describe what a step would undo: instances, nodes by their names, and the disk if there is one."""
    concerned = read_step(recorded).concerns(snapshot)
    nodes = sorted(
        snapshot.nodes[NodeUuid(uuid)].name if NodeUuid(uuid) in snapshot.nodes else uuid
        for uuid in concerned.nodes
    )
    disk = recorded.arguments.get("disk")
    words = (disk.get("part") or disk.get("logical_id")) if isinstance(disk, dict) else None
    path = words[-1] if words else ""
    images = sorted(
        image.name if (image := snapshot.images.get(uuid)) is not None else uuid
        for uuid in concerned.images
    )
    parts = [
        recorded.procedure.replace("_", " "),
        f"of image {', '.join(images)}" if images else "",
        f"of {', '.join(sorted(concerned.instances))}" if concerned.instances else "",
        f"on {', '.join(nodes)}" if nodes else "",
        f"({path})" if path else "",
    ]
    return " ".join(part for part in parts if part)


def locks_of(snapshot: Snapshot, recorded: Sequence[UndoStep]) -> list[LockRequest]:
    """Return the locks for deferred steps: their instances and nodes."""
    instances: set[str] = set()
    nodes: set[str] = set()
    images: set[str] = set()
    for one in recorded:
        concerned = read_step(one).concerns(snapshot)
        instances |= concerned.instances
        nodes |= concerned.nodes
        images |= concerned.images
    return [
        lock(Level.INSTANCE, instances),
        lock(Level.NODE, nodes, Mode.SHARED),
        lock(Level.IMAGE, images),
    ]


async def run_steps(
    services: Services, job_id: int, recorded: Sequence[UndoStep], *, deferred: bool = False
) -> list[tuple[UndoStep, str]]:
    """Run recorded steps, last first; return the failed ones, first first, each with the reason.

    A failure does not block other steps, except that a disk is not removed if an object whose undo failed may
    use it: an instance that is still recorded keeps its disks (G1). With `deferred` other jobs may have used these
    objects since, and their results are kept.
    """
    failed: list[tuple[UndoStep, str]] = []
    in_the_way: list[tuple[UndoStep, Step]] = []
    for one in reversed(recorded):
        step = read_step(one)
        above = next((other for other, what in in_the_way if _may_use(what, step)), None)
        if above is not None:
            why = f"not tried, because {above.procedure} could not be undone"
            failed.insert(0, (one, why))
            continue
        try:
            await _run_step(services, job_id, step, deferred=deferred)
        except Exception as err:  # noqa: BLE001 - the other steps must be tried nevertheless
            text = err.message if isinstance(err, GanetiError) else repr(err)
            _log.warning("job %d: undo %s failed: %s", job_id, one.procedure, text)
            failed.insert(0, (one, text))
            in_the_way.append((one, step))
    return failed


def _may_use(failed: Step, step: Step) -> bool:
    """Return whether the failed step may still use the disk that `step` removes, if it removes one."""
    return step.removes is not None and failed.uses_disk(step.removes)


async def _run_step(services: Services, job_id: int, step: Step, *, deferred: bool) -> None:
    """Run one step; raise GanetiError if the effect to undo may remain."""
    key = f"{job_id}/undo/{step.kind}/{services.ids.token(4)}"
    if not deferred:
        await step.run(services, key)
    elif step.superseded(services.config.snapshot):
        _log.info("job %d: %s is not needed any more", job_id, step.kind)
    else:
        await step.run_deferred(services, key)
