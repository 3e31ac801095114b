"""Procedures about lasting snapshots of an instance's disks; those for exports are in `streams`."""

from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.names import Consistency
from ganeti.rpc.procedures.form import HOURS_S, NORMAL_S, SLOW_S, Message, Nothing, Procedure
from ganeti.rpc.procedures.streams import SnapshotArgs


class TakeSnapshotsArgs(Message, frozen=True, kw_only=True):
    """A snapshot of every disk at the same moment; `names` in the order of the disks.

    A guest that runs is held for at most `limit_s`. Snapshots of these names from an earlier call are replaced.
    """

    instance: InstanceSpec
    names: list[str]
    limit_s: float = 60.0


class SnapshotsTaken(Message, frozen=True, kw_only=True):
    """What the snapshots contain."""

    consistency: Consistency


class SaveGuestArgs(Message, frozen=True, kw_only=True):
    """A snapshot of every disk and of the guest's memory at the same moment; `names` in the order of the disks.

    The memory is written to a disk that exists. Snapshots of these names from an earlier call are replaced.
    """

    instance: InstanceSpec
    names: list[str]
    memory: DiskSpec


class GuestSaved(Message, frozen=True, kw_only=True):
    """What was written, and the milliseconds for which the guest was paused."""

    length: int
    sha256: str
    paused_ms: int = 0


class SavedGuestArgs(Message, frozen=True, kw_only=True):
    """A guest that was saved with its memory: bytes, and SHA-256."""

    instance: InstanceSpec
    memory: DiskSpec
    length: int
    sha256: str


SNAPSHOTS_TAKE = Procedure(
    "snapshots_take", TakeSnapshotsArgs, SnapshotsTaken, SLOW_S, changes=True
)
"""All snapshots, or none."""

SNAPSHOT_ROLL_BACK = Procedure("snapshot_roll_back", SnapshotArgs, Nothing, HOURS_S, changes=True)
"""Give a disk, which must be closed, the content of a snapshot. It may be repeated."""

SAVE_GUEST = Procedure("save_guest", SaveGuestArgs, GuestSaved, HOURS_S, changes=True)
"""All snapshots and the memory, or nothing; a running guest continues."""

SAVED_GUEST_MISFITS = Procedure(
    "saved_guest_misfits", SavedGuestArgs, list[str], NORMAL_S, changes=False
)
"""Return why the guest cannot continue here from its saved memory, a clause each; empty if it can."""

RESTORE_GUEST = Procedure("restore_guest", SavedGuestArgs, Nothing, HOURS_S, changes=True)
"""Start the guest from its saved memory, paused: INSTANCE_START lets it continue. Its disks have the content of the same moment."""
