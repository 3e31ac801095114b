"""Adding, changing and removing the disks of an instance, in the configuration."""

from msgspec.structs import replace

from ganeti.base.errors import InputError
from ganeti.base.sizes import parse_mib
from ganeti.layouts.planner import Site
from ganeti.model.disk_params import check_disk_params
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.objects import Disk, Instance
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.param import typed_value
from ganeti.model.param_checks import changed
from ganeti.model.params import Params
from ganeti.units.context import UnitContext
from ganeti.units.instance.device_changes import (
    DeviceChange,
    insert_position,
    position_of,
    text_or_none,
)
from ganeti.units.instance.disks import JobNames, planner_of
from ganeti.units.instance.field_changes import Applies, FieldChange
from ganeti.units.instance.requests import (
    MAX_DISKS,
    build_disk,
    check_disks,
    disk_mode,
)

Results = list[FieldChange]
_COMMON = ("size", "mode", "name")


def changed_disks(
    ctx: UnitContext, instance: Instance, changes: list[DeviceChange], directory: str | None = None
) -> tuple[tuple[Disk, ...], Results]:
    """The disks after all changes in turn, and what was changed; `directory` is for those of instances that have none."""
    left, results = list(instance.disks), Results()
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
        elif change.action == "remove":
            at = position_of(left, change.identifier, field)
            del left[at]
            results.append(FieldChange("disk", str(at), "remove", Applies.BY_HOTPLUG))
        else:
            at = position_of(left, change.identifier, field)
            left[at], done = _modified(left[at], change.params, at, field)
            results += done
    if len(left) > MAX_DISKS:
        raise InputError(f"{len(left)} disks: at most {MAX_DISKS} are possible", "disks")
    return tuple(left), results


def size_of(params: Params, field: str) -> int:
    """The size that is asked for, in MiB; InputError if there is none."""
    given = params.get("size")
    if given is None:
        raise InputError("a new disk needs a size, as in add:size=10g", f"{field}.size")
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
    """What is no parameter of every disk, in the types that the disk template has for it."""
    others = {name: value for name, value in params.items() if name not in _COMMON}
    return check_disk_params(template, others, field)


def _site(ctx: UnitContext, instance: Instance, given: str | None, index: int, field: str) -> Site:
    """For whom a disk is made; PrereqError or InputError if it could be nowhere."""
    template = DISK_TEMPLATES[instance.disk_template]
    if not template.has_disks:
        raise InputError(f"template {template.name} of {instance.name} has no disks", field)
    site = Site(ctx.snapshot.cluster, instance.name, index, given, instance.disks)
    planner_of(instance).check_site(site)
    return site


def _modified(disk: Disk, params: Params, at: int, field: str) -> tuple[Disk, Results]:
    if "size" in params:
        raise InputError("a disk is grown by gnt-instance grow-disk", f"{field}.size")
    of_template = _of_template(disk.template, params, field)
    for fixed in DISK_TEMPLATES[disk.template].fixed_params:
        if fixed in of_template:
            raise InputError("says where a disk is, and cannot change", f"{field}.{fixed}")
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
