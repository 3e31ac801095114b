"""Disks of instances that get the content of an image."""

from collections.abc import Mapping

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.fill import instance_spec
from ganeti.config.os_states import base_name
from ganeti.config.resolve import resolve_image
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.undo_log import UndoLog
from ganeti.model.image_source import OS_NAME, STORED_IMAGE
from ganeti.model.objects import Image, Instance
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.rpc.procedures.streams import DiskEnd, DumpEnd
from ganeti.units.context import UnitContext
from ganeti.units.image.content import copy_image, described
from ganeti.units.telling import MIB
from ganeti.units.transfers import Load, carry, make_route

SEED_MIB = 4
_SEED_DISK, _NONE = "seed_disk", "none"
_SEED_PARAMETERS = ("user_data", "user_data_file", "ssh_key", "dns")


def image_of(os: str, osparams: Mapping[str, str]) -> str | None:
    """Return the name of the image that the OS definition `image` installs, if it is one of the cluster."""
    return osparams.get(STORED_IMAGE) if base_name(os) == OS_NAME else None


def requested_image(op: OpInstanceCreate) -> str | None:
    """Return the name of the image of a request: its field, or the parameter of the OS definition."""
    return op.image or image_of(op.os_type or "", op.osparams)


def wanted_image(snapshot: Snapshot, op: OpInstanceCreate) -> Image | None:
    """Return the image of a request."""
    name = requested_image(op)
    return None if name is None else resolve_image(snapshot, name)


def with_image(op: OpInstanceCreate, image: Image) -> OpInstanceCreate:
    """Return the request with its image, and with the OS definition `image` if settings for cloud-init are wanted.

    Another OS is a system of its own, which only has the disks of the image.
    """
    os = op.os_type or (OS_NAME if image.cloud_init or _has_settings(op) else None)
    if os is None or base_name(os) != OS_NAME:
        return replace(op, image=image.name, os_type=os)
    given = op.osparams.get(STORED_IMAGE, image.name)
    if given != image.name:
        raise InputError(
            f"is {image.name}, but the OS parameter {STORED_IMAGE} is {given}", "image"
        )
    osparams = {**op.osparams, STORED_IMAGE: image.name}
    return replace(op, image=image.name, os_type=os, osparams=osparams)


def check_image_arguments(op: OpInstanceCreate) -> None:
    """Refuse an image for an instance that gets its disks from elsewhere."""
    if requested_image(op) is None:
        return
    if op.mode != "create":
        raise InputError("only with mode create", "image")
    if any(disk.adopt for disk in op.disks):
        raise InputError("would overwrite adopted disks", "image")


def with_image_disks(op: OpInstanceCreate, image: Image) -> OpInstanceCreate:
    """Return the request with its disks: those of the image, and one for cloud-init if its system reads settings.

    InputError if a requested disk cannot hold its part of the image, or no disk is left for requested settings.
    """
    least = len(image.disks)
    if not op.disks:
        sizes = [disk.size for disk in image.disks]
        sizes[0] = image.disk_size or sizes[0]
        if image.cloud_init or _has_settings(op):
            sizes += [SEED_MIB] * _may_have_seed(op)
        op = replace(op, disks=[DiskRequest(size=size) for size in sizes])
    if len(op.disks) < least:
        raise InputError(
            f"image {image.name} has {least} disks, so the instance needs as many", "disks"
        )
    for number, has in enumerate(image.disks):
        _check_disk(op.disks[number], number, image, has.size)
    if base_name(op.os_type or "") != OS_NAME:
        return op
    seed = op.osparams.get(_SEED_DISK) or (_NONE if len(op.disks) == least else "")
    if seed.isdecimal() and int(seed) < least:
        raise InputError(
            f"must be at least {least}: the disks before that are those of image {image.name}",
            f"osparams.{_SEED_DISK}",
        )
    if seed == _NONE and _has_settings(op):
        raise InputError(
            f"no disk is left for the settings of cloud-init; add one: --disk {least}:size={SEED_MIB}m",
            "disks",
        )
    return replace(op, osparams={**op.osparams, **({_SEED_DISK: seed} if seed else {})})


def check_image_fits(instance: Instance, image: Image) -> None:
    """Refuse an image for an existing instance with too few or too small disks."""
    sizes = [disk.size for disk in instance.disks]
    for number, disk in enumerate(image.disks):
        if number >= len(sizes) or sizes[number] < disk.size:
            raise PrereqError(
                f"image {image.name} needs {disk.size} MiB for disk {number}, and {instance.name} has"
                f" {sizes[number] if number < len(sizes) else 0} MiB; enlarge the disk (gnt-instance grow-disk),"
                " or add one (gnt-instance modify --disk add)",
                ErrorCode.WRONG_STATE,
            )


def _check_disk(wanted: DiskRequest, number: int, image: Image, size: int) -> None:
    if wanted.size < size:
        raise InputError(
            f"disk {number} of image {image.name} needs {size} MiB, and the request has"
            f" {wanted.size} MiB; use --disk {number}:size={size}m or more",
            f"disks[{number}].size",
        )
    if wanted.mode != "rw":
        raise InputError("must be rw, because the image is written to it", f"disks[{number}].mode")


def _may_have_seed(op: OpInstanceCreate) -> bool:
    return base_name(op.os_type or "") == OS_NAME and op.osparams.get(_SEED_DISK) != _NONE


def _has_settings(op: OpInstanceCreate) -> bool:
    params = {**op.osparams, **op.osparams_private, **op.osparams_secret}
    return any(params.get(name) for name in _SEED_PARAMETERS)


async def write_disks(
    ctx: UnitContext, undo: UndoLog, instance: Instance, image: Image, *, holds_data: bool = False
) -> None:
    """Give the first disks of an instance, which are open, the content of an image; its node gets a copy first."""
    node = ctx.snapshot.nodes[instance.primary_node]
    now = ctx.snapshot.images[image.uuid]
    if node.uuid not in now.nodes:
        await copy_image(ctx, now, node)
    route = await make_route(ctx, undo, instance.name, node, node)
    spec, export = instance_spec(ctx.snapshot, instance), described(image)
    for number, disk in enumerate(export.disks):
        ctx.step(f"writing disk {number} ({disk.size} MiB) of image {image.name}")
        load = Load(
            what=f"disk {number}",
            size=disk.size * MIB,
            limit=spec.disks[number].size * MIB,
            source=DumpEnd(export=export.name, file=disk.dump, stored=True),
            target=DiskEnd(instance=spec, index=number, holds_data=holds_data),
            sha256=disk.sha256,
        )
        await carry(ctx, undo, route, load)
