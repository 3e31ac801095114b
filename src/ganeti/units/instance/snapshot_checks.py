"""Refusals because of an instance's snapshots, or of disks that are a mixture."""

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.model.names import Consistency
from ganeti.model.objects import Instance

MEANING = {
    Consistency.DOWN: "the guest was down",
    Consistency.AGENT: "the agent in the guest had frozen its file systems",
    Consistency.CRASH: "the disks are as after a loss of power, all at the same moment",
    Consistency.MEMORY: "the disks and the memory of the guest are of the same moment",
}


def check_no_snapshots(instance: Instance, participle: str, why: str) -> None:
    """Refuse an operation that would lose snapshots, or make them unusable; `participle` names it."""
    if instance.snapshots:
        names = ", ".join(one.name for one in instance.snapshots)
        raise PrereqError(
            f"{instance.name} cannot be {participle} while it has snapshots ({names}): {why}; first run:"
            f" gnt-instance snapshot remove {instance.name} SNAPSHOT",
            ErrorCode.WRONG_STATE,
        )


def why_not_started(instance: Instance) -> str:
    """Return why the guest cannot start, with the command that allows it; '' if it may."""
    if instance.template:
        return (
            f"it is a template, which is only cloned; run: gnt-instance clone {instance.name} NEW-NAME,"
            f" or make it an instance again: gnt-instance modify --template=no {instance.name}"
        )
    return why_unfinished(instance)


def why_unfinished(instance: Instance) -> str:
    """Return why the disks must not be used, with the command that completes the work on them; '' if they may."""
    if (restoring := instance.restoring) is not None:
        if restoring.live is not None:
            return (
                f"its live restore from backup {restoring.point} is not complete, and only its node has what it has"
                f" written since; run: gnt-backup restore --live {instance.name}"
            )
        only = "" if restoring.disk is None else f" --disk={restoring.disk}"
        return (
            f"its restore from backup {restoring.point} is not complete; run: gnt-backup restore"
            f" --point={restoring.point}{only} {instance.name}"
        )
    if instance.rolling_back is None:
        return ""
    name = next(one.name for one in instance.snapshots if one.uuid == instance.rolling_back)
    return (
        f"its rollback to snapshot {name} is not complete; run: gnt-instance snapshot rollback"
        f" {instance.name} {name}"
    )


def check_not_rolling_back(instance: Instance) -> None:
    """Refuse to use disks that are a mixture of two contents."""
    if why := why_unfinished(instance):
        raise PrereqError(f"{instance.name}: {why}", ErrorCode.WRONG_STATE)


def check_may_start(instance: Instance) -> None:
    """Refuse to start a template, or a guest whose disks are a mixture of two contents."""
    if why := why_not_started(instance):
        raise PrereqError(f"{instance.name} cannot start: {why}", ErrorCode.WRONG_STATE)
