"""Procedures about lasting snapshots of an instance's disks; those for exports are in `streams`."""

from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.names import Consistency
from ganeti.rpc.procedures.form import HOURS_S, SLOW_S, Message, Nothing, Procedure
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


SNAPSHOTS_TAKE = Procedure(
    "snapshots_take", TakeSnapshotsArgs, SnapshotsTaken, SLOW_S, changes=True
)
"""All snapshots, or none."""

SNAPSHOT_ROLL_BACK = Procedure("snapshot_roll_back", SnapshotArgs, Nothing, HOURS_S, changes=True)
"""Give a disk, which must be closed, the content of a snapshot. It may be repeated."""
