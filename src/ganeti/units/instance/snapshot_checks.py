"""Refusals because of an instance's snapshots."""

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.model.objects import Instance


def check_no_snapshots(instance: Instance, participle: str, why: str) -> None:
    """Refuse an operation that would lose snapshots, or make them unusable; `participle` names it."""
    if instance.snapshots:
        names = ", ".join(one.name for one in instance.snapshots)
        raise PrereqError(
            f"{instance.name} cannot be {participle} while it has snapshots ({names}): {why}; first run:"
            f" gnt-instance snapshot remove {instance.name} SNAPSHOT",
            ErrorCode.WRONG_STATE,
        )


def why_unfinished(instance: Instance) -> str:
    """Return why the disks must not be used, with the command that completes a rollback; '' if they may."""
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
