"""The procedure that boots a backup in a throw-away guest."""

from ganeti.model.params import Params
from ganeti.rpc.procedures.backups import PointOf
from ganeti.rpc.procedures.form import HOURS_S, Message, Procedure


class DrillArgs(PointOf, frozen=True, kw_only=True):
    """A backup, the machine that boots it, and the sign of life to wait for."""

    hypervisor: str
    hvparams: Params
    """Of the instance; those that reach beyond the guest are not used, except for the kernel."""
    vcpus: int
    memory: int
    """MiB"""
    less_memory: bool
    """Take less if the node has less than twice as much free."""
    expect: str
    """Text on the serial console."""
    agent: bool
    """Wait for the agent in the guest instead."""
    timeout_s: float


class DrillResult(Message, frozen=True, kw_only=True):
    """What was seen; text of the guest is escaped."""

    problem: str = ""
    """Why the backup is not good; '' if the guest gave the sign of life."""
    seen: str = ""
    seconds: float = 0.0
    lines: list[str] = []
    """The last lines of the console."""
    memory: int = 0
    """MiB of the guest; 0 if it was not started."""
    accelerator: str = ""
    unrecorded: str = ""
    """Why the result is not in the proof of the backup."""


BACKUP_DRILL = Procedure(
    "backup_drill", DrillArgs, DrillResult, HOURS_S, changes=True, is_long=True
)
