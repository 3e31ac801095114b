"""Additions, changes and removals of an instance's disks, in the configuration."""

from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.sizes import parse_mib
from ganeti.config.fill import group_of
from ganeti.config.view import View
from ganeti.layouts.planner import Site
from ganeti.model.applies import Applies
from ganeti.model.disk_params import check_disk_params
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.limits import MAX_DISKS
from ganeti.model.objects import DetachedDisk, Disk, Instance
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.param import typed_value
from ganeti.model.param_checks import changed
from ganeti.model.params import Params
from ganeti.units.context import UnitContext
from ganeti.units.instance.device_changes import (
    DeviceChange,
    check_device_names,
    insert_position,
    position_of,
    text_or_none,
)
from ganeti.units.instance.disks import JobNames, planner_of
from ganeti.units.instance.field_changes import FieldChange
from ganeti.units.instance.grants import closed
from ganeti.units.instance.requests import (
    build_disk,
    check_disks,
    disk_mode,
)
from ganeti.units.instance.snapshot_checks import check_no_snapshots

Results = list[FieldChange]
_COMMON = ("size", "mode", "name")


@dataclass(frozen=True)
class DiskChanges:
    """The result of a request for changes of disks."""

    after: Instance
    results: Results
    attached: tuple[DetachedDisk, ...] = ()
    detached: tuple[DetachedDisk, ...] = ()


def changed_disks(
    ctx: UnitContext, instance: Instance, changes: list[DeviceChange], directory: str | None = None
) -> DiskChanges:
    """Apply all changes in turn.

    Return the instance and the changes. `directory` is for new disks of a diskless one.
    """
    left, results = list(instance.disks), Results()
    attached, detached = list[DetachedDisk](), list[DetachedDisk]()
    for number, change in enumerate(changes):
        field = f"disks[{number}]"
        if change.action == "add":
            at = insert_position(len(left), change.identifier, field)
            site = _site(ctx, instance, directory, at, field)
            request = _request(instance.disk_template, change.params, field)
            planner, names = planner_of(instance), JobNames(ctx)
            disk = build_disk(request, planner, site, names)
            left.insert(at, planner.placed(disk, instance.all_nodes, names))
            added = f"add:size={disk.size},mode={disk.mode}"
            results.append(FieldChange("disk", str(at), added, Applies.BY_HOTPLUG))
        elif change.action == "attach":
            at = insert_position(len(left), change.identifier, field)
            found = wanted_disk(ctx.snapshot, change.params, field)
            instance = attaching(replace(instance, disks=tuple(left)), found, field)
            left.insert(at, found.disk)
            attached.append(found)
            added = f"attach:size={found.disk.size},mode={found.disk.mode}"
            results.append(FieldChange("disk", str(at), added, Applies.BY_HOTPLUG))
        elif change.action in ("remove", "detach"):
            at = position_of(left, change.identifier, field)
            if left[at] not in instance.disks or left[at].uuid in {one.uuid for one in attached}:
                raise InputError("is added by the same request", field)
            if any(left[at].uuid == one.disk for had in instance.snapshots for one in had.disks):
                check_no_snapshots(instance, f"without disk {at}", "they contain it")
            if change.action == "detach":
                detached.append(detaching(instance, left[at]))
            del left[at]
            results.append(FieldChange("disk", str(at), change.action, Applies.BY_HOTPLUG))
        else:
            at = position_of(left, change.identifier, field)
            left[at], done = _modified(left[at], change.params, at, field)
            results += done
    if len(left) > MAX_DISKS:
        raise InputError(f"{len(left)} disks: at most {MAX_DISKS} are possible", "disks")
    check_device_names(
        (disk.name for disk in left), "disks", (disk.name for disk in instance.disks)
    )
    after = replace(instance, disks=tuple(left))
    return DiskChanges(after, results, tuple(attached), tuple(detached))


def check_sizes(changes: list[DeviceChange]) -> None:
    """Refuse new disks without a valid size."""
    for number, change in enumerate(changes):
        if change.action == "add":
            size_of(change.params, f"disks[{number}]")


def wanted_disk(view: View, params: Params, field: str) -> DetachedDisk:
    """Return the named detached disk; InputError or PrereqError if it does not exist."""
    match sorted(params.items()):
        case [("name" | "uuid" as key, str(wanted))] if wanted:
            pass
        case _:
            raise InputError(
                "accepts the name or the UUID of a detached disk, and nothing else", field
            )
    disks = view.table(DetachedDisk).values()
    found = [one for one in disks if wanted == getattr(one, key)]
    if not found:
        raise PrereqError(
            f"{field}: no detached disk has the {key} {wanted!r:.80}; 'gnt-cluster verify' lists them",
            ErrorCode.UNKNOWN_ENTITY,
        )
    if len(found) > 1:
        raise PrereqError(
            f"{field}: {len(found)} detached disks have the name {wanted!r:.80}; use a UUID",
            ErrorCode.NOT_UNIQUE,
        )
    return found[0]


def attaching(instance: Instance, detached: DetachedDisk, field: str) -> Instance:
    """Return the instance with the attached disk; PrereqError if it cannot have it."""
    template = detached.disk.template
    own = instance.disk_template
    if own != template and DISK_TEMPLATES[own].has_disks:
        raise PrereqError(
            f"{field}: {detached.what} is of the template {template}, {instance.name} of {own}",
            ErrorCode.WRONG_STATE,
        )
    if DISK_TEMPLATES[template].shared:
        return replace(instance, disk_template=template)
    if own != template and instance.primary_node == detached.nodes[0]:
        others = detached.nodes[1:]
        return replace(instance, disk_template=template, secondary_nodes=others)
    if instance.all_nodes != detached.nodes:
        raise PrereqError(
            f"{field}: {detached.what} is on other nodes than {instance.name}, or has another primary node",
            ErrorCode.WRONG_STATE,
        )
    return instance


def detaching(instance: Instance, disk: Disk) -> DetachedDisk:
    """Return the disk without an instance."""
    is_shared = DISK_TEMPLATES[disk.template].shared
    return DetachedDisk(
        uuid=disk.uuid,
        name=disk.name or "",
        disk=closed(disk),
        nodes=() if is_shared else instance.all_nodes,
        last_instance=instance.name,
    )


def size_of(params: Params, field: str) -> int:
    """Return the requested size in MiB; InputError if it is missing."""
    given = params.get("size")
    if given is None:
        raise InputError("a new disk needs a size, for example add:size=10g", f"{field}.size")
    if isinstance(given, str):
        return parse_mib(given, f"{field}.size")
    size: int = typed_value(given, 0, f"{field}.size")
    return size


def _request(template: str, params: Params, field: str) -> DiskRequest:
    request = DiskRequest(
        size=size_of(params, field),
        mode=str(params.get("mode", "rw")),
        name=text_or_none(params.get("name"), f"{field}.name"),
        params=_of_template(template, params, field),
    )
    check_disks([request], None)
    return request


def _of_template(template: str, params: Params, field: str) -> Params:
    """Return the parameters of the disk template, in their types."""
    others = {name: value for name, value in params.items() if name not in _COMMON}
    return check_disk_params(template, others, field, of_disk=True)


def _site(ctx: UnitContext, instance: Instance, given: str | None, index: int, field: str) -> Site:
    """Return the owner for whom a disk is made; PrereqError or InputError if the disk is not possible."""
    template = DISK_TEMPLATES[instance.disk_template]
    if not template.has_disks:
        raise InputError(f"template {template.name} of {instance.name} has no disks", field)
    group = group_of(ctx.snapshot, instance.primary_node)
    site = Site(ctx.snapshot.cluster, instance.name, index, given, instance.disks, group=group)
    planner_of(instance).check_site(site)
    return site


def _modified(disk: Disk, params: Params, at: int, field: str) -> tuple[Disk, Results]:
    if "size" in params:
        raise InputError("use gnt-instance grow-disk to grow a disk", f"{field}.size")
    of_template = _of_template(disk.template, params, field)
    for fixed in DISK_TEMPLATES[disk.template].fixed_params:
        if fixed in of_template:
            raise InputError(
                "is part of a disk's location or form, and cannot change", f"{field}.{fixed}"
            )
    results = [
        FieldChange(f"disk.{name}", str(at), value, Applies.AT_START)
        for name, value in of_template.items()
    ]
    disk = replace(disk, params=changed(disk.params, of_template))
    if "mode" in params:
        check_disks([DiskRequest(size=disk.size, mode=str(params["mode"]))], None)
        disk = replace(disk, mode=disk_mode(str(params["mode"])))
        results.append(FieldChange("disk.mode", str(at), disk.mode, Applies.AT_START))
    if "name" in params:
        name = text_or_none(params["name"], f"{field}.name")
        check_disks([DiskRequest(size=disk.size, name=name)], None)
        disk = replace(disk, name=name)
        results.append(FieldChange("disk.name", str(at), name, Applies.NOW))
    return disk, results
