"""Procedures about instances and their guests."""

from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params
from ganeti.rpc.procedures.form import (
    NORMAL_S,
    QUICK_S,
    SHUTDOWN_LIMIT_S,
    SLOW_S,
    Message,
    Nothing,
    Procedure,
    optional,
)
from ganeti.rpc.procedures.host import HypervisorsArgs


class Lowered(Message, frozen=True, kw_only=True):
    """That a node has taken memory from a guest; memory in MiB."""

    before: int
    since: float
    """Seconds since the epoch."""
    goal: int
    """What the node keeps free."""


class RunningInstance(Message, frozen=True, kw_only=True):
    """An instance that is on a node now.

    `state` is `running`, `paused`, `shutdown` (the guest has powered itself off), `migrating` (it
    is being sent away and still belongs here), `incoming` (waits for a guest, or has received one
    and not resumed it) or `postmigrate` (sent away completely, and not ended here yet). In the last
    two states the guest does not run on this node.
    """

    name: str
    uuid: str
    hypervisor: str
    memory: int
    vcpus: int
    state: str
    cpu_time_s: float
    lowered: Lowered | None = None

    @property
    def has_guest(self) -> bool:
        """Return whether the guest itself is here, and not only one end of a migration."""
        return self.state not in ("incoming", "postmigrate")


class InstanceArgs(Message, frozen=True, kw_only=True):
    instance: InstanceSpec


class StartArgs(Message, frozen=True, kw_only=True):
    instance: InstanceSpec
    paused: bool = False


class ShutdownArgs(Message, frozen=True, kw_only=True):
    """Ask the guest to shut down; end it after `timeout_s` seconds (at once if 0)."""

    instance: InstanceSpec
    timeout_s: float


class Stopped(Message, frozen=True, kw_only=True):
    """The guest does not run here."""

    has_history: bool = True
    """There may be a history of its figures here."""


class RebootArgs(Message, frozen=True, kw_only=True):
    """`hard` resets the guest, `soft` asks it and resets it if it does not follow within `timeout_s`."""

    instance: InstanceSpec
    reboot_type: str
    timeout_s: float


class ConsoleInfo(Message, frozen=True, kw_only=True):
    """The address of a console.

    `kind` is `socket` (a path on the node), `vnc` or `spice` (a port of `host`, or of the node
    where that is empty), or `msg` (the reason why there is none).
    """

    kind: str
    path: str = ""
    log_path: str = ""
    """The file with all console output, if it is recorded."""
    message: str = ""
    host: str = ""
    port: int = 0


class HvParamsArgs(Message, frozen=True, kw_only=True):
    hypervisor: str
    hvparams: Params


INSTANCES_INFO = Procedure(
    "instances_info", HypervisorsArgs, list[RunningInstance], NORMAL_S, changes=False
)

INSTANCE_INFO = Procedure(
    "instance_info", InstanceArgs, optional(RunningInstance), NORMAL_S, changes=False
)

INSTANCE_START = Procedure("instance_start", StartArgs, Nothing, SLOW_S, changes=True)

INSTANCE_SHUTDOWN = Procedure(
    "instance_shutdown", ShutdownArgs, Stopped, SHUTDOWN_LIMIT_S, changes=True
)

INSTANCE_REBOOT = Procedure("instance_reboot", RebootArgs, Nothing, SHUTDOWN_LIMIT_S, changes=True)

INSTANCE_CONSOLE = Procedure("instance_console", InstanceArgs, ConsoleInfo, QUICK_S, changes=False)

VALIDATE_HVPARAMS = Procedure("validate_hvparams", HvParamsArgs, list[str], NORMAL_S, changes=False)
