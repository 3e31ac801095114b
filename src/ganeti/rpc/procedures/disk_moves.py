"""Procedures that move the disks of a running guest to other storage of its node.

The hypervisor copies them meanwhile, without the node daemon: the master queries the progress. Each move has a token,
and the node has a durable record of the last move: whether the guest uses the new disks.
"""

from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.rpc.procedures.form import NORMAL_S, QUICK_S, SLOW_S, Message, Nothing, Procedure
from ganeti.rpc.procedures.instances import InstanceArgs


class DiskMoveArgs(Message, frozen=True, kw_only=True):
    """The move of an instance's disks that has this token."""

    instance: InstanceSpec
    token: str


class BeginDiskMoveArgs(DiskMoveArgs, frozen=True, kw_only=True):
    """Copy all disks of the running guest to `disks`, which exist and have the same UUIDs."""

    disks: tuple[DiskSpec, ...]
    bandwidth_mib_s: int = 0
    """The limit for each disk in MiB/s; 0: none."""


class DiskMoveStatus(Message, frozen=True, kw_only=True):
    """The progress of the copies, in bytes. `total` grows while the guest writes."""

    done: int
    total: int
    in_step: bool
    """True if only the guest's latest writes may be missing."""


class DiskMoveSwitched(Message, frozen=True, kw_only=True):
    """The time for which the guest was paused; 0 if the switch was done before."""

    paused_ms: int


class EndDiskMoveArgs(DiskMoveArgs, frozen=True, kw_only=True):
    forget: bool = False
    """Remove the record as well, because the configuration has the disks that the guest uses."""


class DiskMoveEnd(Message, frozen=True, kw_only=True):
    is_moved: bool
    """True if the new disks have the guest's last writes; False if the old ones have them."""


DISK_MOVE_OBSTACLES = Procedure(
    "disk_move_obstacles", InstanceArgs, list[str], QUICK_S, changes=False
)
"""Reasons against moving the disks of the running guest, a sentence each."""

DISK_MOVE_BEGIN = Procedure("disk_move_begin", BeginDiskMoveArgs, Nothing, SLOW_S, changes=True)

DISK_MOVE_STATUS = Procedure(
    "disk_move_status", DiskMoveArgs, DiskMoveStatus, NORMAL_S, changes=False
)

DISK_MOVE_SWITCH = Procedure(
    "disk_move_switch", DiskMoveArgs, DiskMoveSwitched, SLOW_S, changes=True
)
"""Let the guest use the new disks; on failure it uses the old ones."""

DISK_MOVE_END = Procedure("disk_move_end", EndDiskMoveArgs, DiskMoveEnd, SLOW_S, changes=True)
"""Stop copying; QEMU closes the disks that the guest does not use, and the caller closes them on the node."""
