"""The plan of a relocation, which is complete before any step is done. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.nvram import has_nvram_on_its_node
from ganeti.config.snapshot import Snapshot
from ganeti.layouts.places import Way
from ganeti.model.disk_templates import DISK_TEMPLATES, RAW, disk_format
from ganeti.model.objects import Instance, Node
from ganeti.rpc.procedures.instances import RunningInstance
from ganeti.rpc.procedures.migration import MigrationInfo
from ganeti.units.hooks.environment import node_names
from ganeti.units.instance.access import check_not_offline
from ganeti.units.node_choice import check_online

LIVE, NON_LIVE = "live", "non-live"


def check_mode(mode: str | None, *, live: bool | None) -> None:
    """Refuse a mode of migration that does not exist, and two ways to say it at once."""
    if mode not in (None, LIVE, NON_LIVE):
        raise InputError(f"must be {LIVE} or {NON_LIVE}", "mode")
    if mode is not None and live is not None:
        raise InputError("pass either mode or live, not both", "mode")


"""The modes of a migration, in the words of `--migration-mode`."""


class Operation(StrEnum):
    """The administrator's operation, in the words of errors."""

    MIGRATE = "migrate"
    FAIL_OVER = "fail over"
    MOVE = "move"

    def of(self, instance: Instance) -> str:
        """Return the name of the activity, for messages about nodes."""
        doing = {"migrate": "migrating", "fail over": "failing over", "move": "moving"}
        return f"{doing[self]} instance {instance.name}"


@dataclass(frozen=True)
class Shrinking:
    """A guest's memory, at present and requested, in MiB."""

    present: int
    wanted: int


@dataclass(frozen=True)
class LiveGuest:
    """A guest that is sent from node to node."""

    is_live: bool
    """It runs while it is sent; otherwise it is paused."""
    info: MigrationInfo
    """Its node's report about it."""
    shrinking: Shrinking | None
    """Memory that it gives back first, in order to fit."""


@dataclass(frozen=True)
class StoppedGuest:
    """A guest that is stopped, and started on the target if it should run."""

    shutdown_timeout_s: int
    start: bool


@dataclass(frozen=True, kw_only=True)
class DiskPlan:
    """The instance with its present disks, and with its new ones."""

    before: Instance
    after: Instance
    node: Node
    """The nodes of new parts."""
    disks: tuple[str, ...] = ()
    """UUIDs of the disks that are new, or get new parts."""
    is_up: bool = False
    """True if the guest runs, so that its disks stay open."""

    @property
    def moves(self) -> bool:
        """True if the secondary node changes; otherwise only parts of the same node are replaced."""
        return self.before.all_nodes != self.after.all_nodes


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An instance, its source, its target, and the way between them."""

    operation: Operation
    instance: Instance
    source: Node
    target: Node
    way: Way
    """The way of its disks."""
    guest: LiveGuest | StoppedGuest
    force: bool = False
    """True if the target's disks may lack writes."""
    new_secondary: DiskPlan | None = None
    """The replacement by which the target gets a copy first, with `Way.REPLACE`; then the way is `Way.SWAP`."""
    compress: str = "none"
    """The compression of copies of disks, while the guest is down."""
    bandwidth_mib_s: int = 0
    """The limit of each disk's data, and of the memory; 0: that of the hypervisor, or none while the guest is down."""

    def leaves_nvram(self, snapshot: Snapshot) -> bool:
        """Return whether the source has NVRAM that the target does not see."""
        return has_nvram_on_its_node(snapshot.cluster, self.instance)


def hook_nodes(snapshot: Snapshot, instance: Instance, plan: Plan | None) -> dict[str, str]:
    """Return the nodes for the variables of hooks; without a plan the instance stays on its node."""
    here = snapshot.nodes[instance.primary_node]
    source, target = (plan.source, plan.target) if plan else (here, here)
    others = [uuid for uuid in instance.secondary_nodes if uuid not in (source.uuid, target.uuid)]
    mirrored = bool(instance.secondary_nodes)
    return {
        "OLD_PRIMARY": source.name,
        "NEW_PRIMARY": target.name,
        "OLD_SECONDARY": node_names(snapshot, [target.uuid, *others]) if mirrored else "",
        "NEW_SECONDARY": node_names(snapshot, [source.uuid, *others]) if mirrored else "",
    }


def refuse_operation(operation: Operation, instance: Instance, source: Node) -> None:
    """Raise PrereqError if the configuration alone rules an operation out."""
    template = DISK_TEMPLATES[instance.disk_template]
    match operation:
        case Operation.MIGRATE:
            check_not_offline(instance)
            check_online(source)
        case Operation.FAIL_OVER if not template.can_fail_over:
            raise PrereqError(
                f"disk template {template.name} of {instance.name} keeps its data on one node, so it cannot fail"
                " over; while that node lives: gnt-instance move",
                ErrorCode.WRONG_STATE,
            )
        case Operation.MOVE:
            if template.shared or not template.has_disks:
                raise PrereqError(
                    f"disk template {template.name} of {instance.name} needs no copy: use gnt-instance migrate or"
                    " failover",
                    ErrorCode.WRONG_STATE,
                )
            check_online(source)


def refuse_source(
    operation: Operation, instance: Instance, source: Node, state: RunningInstance | None
) -> int:
    """Return the memory of the guest, in MiB; PrereqError if the source's report rules an operation out."""
    is_down = state is None or state.state == "shutdown"
    if operation is Operation.MIGRATE and is_down:
        raise PrereqError(
            f"instance {instance.name} is not running on {source.name}, so there is nothing to migrate",
            ErrorCode.WRONG_STATE,
        )
    if state is not None and state.state in ("incoming", "postmigrate", "migrating"):
        raise PrereqError(
            f"an earlier migration of {instance.name} is not finished on {source.name} ({state.state});"
            f" run: gnt-instance migrate --cleanup {instance.name}",
            ErrorCode.WRONG_STATE,
        )
    return 0 if state is None else state.memory


def why_not_sent(instance: Instance, info: MigrationInfo) -> str:
    """Return why the guest that `info` describes cannot move with its disks while it runs; '' if it can.

    A mirror also writes to its source, so it cannot copy a disk that is read-only in the guest. The configuration may
    be newer than the running guest; `info` has the guest's own disks.
    """
    if not DISK_TEMPLATES[instance.disk_template].is_local:
        return ""
    if not info.mirrors_disks:
        return (
            f"disk template {instance.disk_template} of {instance.name} keeps its data on one node, and hypervisor"
            f" {instance.hypervisor} cannot migrate disks"
        )
    for index, disk in enumerate(info.instance.disks):
        if disk.mode == "ro":
            return f"disk {index} of {instance.name} is read-only, so it cannot migrate while the guest runs"
        if (form := disk_format(disk.template, disk.params)) != RAW:
            return f"disk {index} of {instance.name} has format={form}, so it cannot migrate while the guest runs"
    return ""
