"""The steps of `burnin` as lists of opcodes. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ganeti.model.disk_templates import TEMPLATES, DiskTemplate
from ganeti.model.names import RebootType
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.backup import OpBackupExport, OpBackupRemove
from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.model.opcodes.instance import (
    OpInstanceCreate,
    OpInstanceMigrate,
    OpInstanceReboot,
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.model.opcodes.instance_changes import (
    OpInstanceActivateDisks,
    OpInstanceDeactivateDisks,
    OpInstanceGrowDisk,
    OpInstanceReplaceDisks,
    OpInstanceSetParams,
)
from ganeti.model.opcodes.instance_system import OpInstanceReinstall, OpInstanceRename
from ganeti.model.opcodes.moving import OpInstanceFailover, OpInstanceMove


class BurninOptions(NamedTuple):
    """The instances to create and the steps to run on them; sizes in MiB."""

    os: str
    template: str = "drbd"
    sizes: tuple[int, ...] = (1024,)
    growths: tuple[int, ...] = (128,)
    maxmem: int = 256
    minmem: int = 128
    vcpus: int = 3
    hypervisor: str | None = None
    hvparams: Mapping[str, Any] = {}
    osparams: Mapping[str, str] = {}
    has_nics: bool = True
    iallocator: str | None = None
    name_check: bool = False
    ip_check: bool = False
    early_release: bool = False
    reboots: tuple[RebootType, ...] = tuple(RebootType)
    rename: str | None = None
    without: frozenset[str] = frozenset()
    """Names of the steps to leave out."""

    @property
    def kind(self) -> DiskTemplate:
        return TEMPLATES[self.template]

    def create(self, name: str, tag: str, nodes: Sequence[str]) -> OpInstanceCreate:
        """Return the opcode that creates the instance on the first one or two `nodes`, or by the allocator."""
        primary, secondary = (*nodes, None, None)[:2] if not self.iallocator else (None, None)
        return OpInstanceCreate(
            instance_name=name,
            disk_template=self.template,
            disks=[DiskRequest(size=size) for size in self.sizes] if self.kind.has_disks else [],
            nics=[NicRequest()] if self.has_nics else [],
            os_type=self.os,
            osparams=dict(self.osparams),
            hypervisor=self.hypervisor,
            hvparams=dict(self.hvparams),
            beparams={"maxmem": self.maxmem, "minmem": self.minmem, "vcpus": self.vcpus},
            pnode=primary,
            snode=secondary if self.kind.mirrored else None,
            iallocator=self.iallocator,
            name_check=self.name_check,
            ip_check=self.ip_check,
            tags=[tag],
        )


class Guest(NamedTuple):
    """One of the instances, and the other nodes of the test in the order of their use."""

    name: str
    tag: str
    primary: str
    secondary: str | None = None
    others: tuple[str, ...] = ()

    @property
    def nodes(self) -> list[str]:
        return [self.primary, *([self.secondary] if self.secondary else [])]


class Step(NamedTuple):
    """A step: `--no-NAME` with its `name` leaves it out; `ops` is one job for each instance."""

    name: str
    title: str
    ops: Callable[[BurninOptions, Guest], list[OpCode]]
    fits: Callable[[BurninOptions, int], bool] = lambda _options, _nodes: True
    """Return True if the step is possible with this number of nodes and this template."""
    starts: bool = False
    """True if the step starts the guest, so that it must answer again."""


def _stopped(*between: OpCode, name: str, started: str | None = None) -> list[OpCode]:
    return [
        OpInstanceShutdown(instance_name=name),
        *between,
        OpInstanceStartup(instance_name=started or name),
    ]


def _change_memory(options: BurninOptions, guest: Guest) -> list[OpCode]:
    return [
        OpInstanceSetParams(instance_name=guest.name, runtime_mem=size)
        for size in (options.minmem, options.maxmem)
    ]


def _replace_copies(options: BurninOptions, guest: Guest) -> list[OpCode]:
    return [
        OpInstanceReplaceDisks(
            instance_name=guest.name,
            mode=mode,
            disks=list(range(len(options.sizes))),
            early_release=options.early_release,
        )
        for mode in ("replace_on_secondary", "replace_on_primary")
    ]


def _replace_secondary(options: BurninOptions, guest: Guest) -> list[OpCode]:
    return [
        OpInstanceReplaceDisks(
            instance_name=guest.name,
            mode="replace_new_secondary",
            remote_node=None if options.iallocator else guest.others[0],
            iallocator=options.iallocator,
            early_release=options.early_release,
        )
    ]


def _grow(options: BurninOptions, guest: Guest) -> list[OpCode]:
    return [
        OpInstanceGrowDisk(instance_name=guest.name, disk=number, amount=growth)
        for number, growth in enumerate(options.growths)
        if growth
    ]


def _there_and_back(options: BurninOptions, guest: Guest) -> list[dict[str, Any]]:
    """Return the target of both directions: a mirrored instance needs no target node."""
    if options.kind.mirrored:
        return [{}, {}]
    return [{"target_node": guest.others[0]}, {"target_node": guest.primary}]


def _fail_over(options: BurninOptions, guest: Guest) -> list[OpCode]:
    return [
        OpInstanceFailover(instance_name=guest.name, **way)
        for way in _there_and_back(options, guest)
    ]


def _migrate(options: BurninOptions, guest: Guest) -> list[OpCode]:
    there, back = _there_and_back(options, guest)
    return [
        OpInstanceMigrate(instance_name=guest.name, **there),
        OpInstanceMigrate(instance_name=guest.name, cleanup=True),
        OpInstanceMigrate(instance_name=guest.name, **back),
    ]


def _move(_options: BurninOptions, guest: Guest) -> list[OpCode]:
    return [
        OpInstanceMove(instance_name=guest.name, target_node=node)
        for node in (guest.others[0], guest.primary)
    ]


def _export_and_import(options: BurninOptions, guest: Guest) -> list[OpCode]:
    name, where = guest.name, (*guest.others, *reversed(guest.nodes))[0]
    made = options.create(name, guest.tag, guest.nodes)
    return [
        OpInstanceShutdown(instance_name=name),
        OpBackupExport(instance_name=name, target_node=where),
        OpInstanceRemove(instance_name=name),
        _imported(made, where),
        OpBackupRemove(instance_name=name),
    ]


def _imported(made: OpInstanceCreate, where: str) -> OpInstanceCreate:
    import msgspec

    return msgspec.structs.replace(
        made, mode="import", src_node=where, src_path=made.instance_name, disks=[], os_type=None
    )


def _reinstall(options: BurninOptions, guest: Guest) -> list[OpCode]:
    name = guest.name
    return _stopped(
        OpInstanceReinstall(instance_name=name),
        OpInstanceReinstall(instance_name=name, os_type=options.os),
        name=name,
    )


def _reboot(options: BurninOptions, guest: Guest) -> list[OpCode]:
    return [OpInstanceReboot(instance_name=guest.name, reboot_type=one) for one in options.reboots]


def _renamed(options: BurninOptions, name: str, new: str) -> OpInstanceRename:
    return OpInstanceRename(
        instance_name=name, new_name=new, name_check=options.name_check, ip_check=options.ip_check
    )


def _rename_to_itself(options: BurninOptions, guest: Guest) -> list[OpCode]:
    return _stopped(_renamed(options, guest.name, guest.name), name=guest.name)


def _rename(options: BurninOptions, guest: Guest) -> list[OpCode]:
    new = options.rename or guest.name
    return [
        *_stopped(_renamed(options, guest.name, new), name=guest.name, started=new),
        *_stopped(_renamed(options, new, guest.name), name=new, started=guest.name),
    ]


def _change_nics(_options: BurninOptions, guest: Guest) -> list[OpCode]:
    return [
        OpInstanceSetParams(instance_name=guest.name, nics=[change])
        for change in (["add", -1, {}], ["remove", -1, {}])
    ]


def _activate(_options: BurninOptions, guest: Guest) -> list[OpCode]:
    """Activate the disks while the guest runs, while it is down, and twice; the guest must not notice it."""
    active = OpInstanceActivateDisks(instance_name=guest.name)
    inactive = OpInstanceDeactivateDisks(instance_name=guest.name)
    return [active, *_stopped(active, active, inactive, name=guest.name)]


def _change_disks(options: BurninOptions, guest: Guest) -> list[OpCode]:
    name, spare = guest.name, f"{guest.name}.spare"
    add = ["add", -1, {"size": options.sizes[0], "name": spare}]
    parts = [["detach", -1, {}], ["attach", -1, {"name": spare}], ["remove", -1, {}]]
    return [
        OpInstanceSetParams(instance_name=name, disks=[add]),
        *_stopped(
            *(OpInstanceSetParams(instance_name=name, disks=[part]) for part in parts), name=name
        ),
    ]


def _stop_and_start(_options: BurninOptions, guest: Guest) -> list[OpCode]:
    return _stopped(name=guest.name)


def _balloons(options: BurninOptions, _nodes: int) -> bool:
    return options.minmem < options.maxmem


def _is_mirror(options: BurninOptions, _nodes: int) -> bool:
    return options.kind.mirrored


def _has_spare_node(options: BurninOptions, nodes: int) -> bool:
    return options.kind.mirrored and nodes > options.kind.nodes_needed


def _grows(options: BurninOptions, _nodes: int) -> bool:
    return options.kind.has_disks and any(options.growths)


def _goes_to_another(options: BurninOptions, nodes: int) -> bool:
    return options.kind.can_fail_over and nodes > 1


def _moves(options: BurninOptions, nodes: int) -> bool:
    return options.kind.is_local and nodes > 1


def _has_disks(options: BurninOptions, _nodes: int) -> bool:
    return options.kind.has_disks


def _has_new_name(options: BurninOptions, _nodes: int) -> bool:
    return options.rename is not None


STEPS = (
    Step("startstop", "Stopping and starting instances", _stop_and_start, starts=True),
    Step("runtime-memory", "Changing the memory of running instances", _change_memory, _balloons),
    Step("replace1", "Replacing disks on the same nodes", _replace_copies, _is_mirror),
    Step("replace2", "Changing the secondary node", _replace_secondary, _has_spare_node),
    Step("grow", "Growing disks", _grow, _grows),
    Step("failover", "Failing over instances", _fail_over, _goes_to_another, starts=True),
    Step("migrate", "Migrating instances", _migrate, _goes_to_another),
    Step("move", "Moving instances", _move, _moves, starts=True),
    Step(
        "importexport",
        "Exporting, removing and importing instances",
        _export_and_import,
        _has_disks,
        starts=True,
    ),
    Step("reinstall", "Reinstalling instances", _reinstall, starts=True),
    Step("reboot", "Rebooting instances", _reboot, starts=True),
    Step("renamesame", "Renaming instances to their own names", _rename_to_itself, starts=True),
    Step("add-nics", "Adding and removing network interfaces", _change_nics),
    Step("activate-disks", "Activating and deactivating disks", _activate, _has_disks, starts=True),
    Step("add-disks", "Adding, detaching, attaching and removing disks", _change_disks, _has_disks),
    Step("rename", "Renaming instances, and back", _rename, _has_new_name, starts=True),
)
"""All steps, in order."""
OPTIONAL = tuple(one.name for one in STEPS if one.name not in ("grow", "rename"))


def steps(options: BurninOptions, nodes: int) -> list[Step]:
    """Return the steps that are possible with this number of nodes."""
    return [one for one in STEPS if one.name not in options.without and one.fits(options, nodes)]
