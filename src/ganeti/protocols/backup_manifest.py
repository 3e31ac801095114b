"""The manifest of a backup: a JSON document beside the images of its disks. Pure.

A manifest may come from anywhere. Names of files are made from checked parts and compared, never used as they come.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from ganeti.base.errors import HostError, InputError
from ganeti.base.identifiers import host_name, is_uuid
from ganeti.model import wire
from ganeti.model.names import Consistency

FORMAT = "ganeti-backup-1"
ENCRYPTED_FORMAT = "ganeti-backup-2"
"""Of an encrypted backup: an implementation that knows no encryption refuses it."""
PIECE = 4 << 20
"""Bytes of an image with a digest of their own."""
SIZE_LIMIT = 64 << 40
"""The limit of a disk in bytes."""
SUFFIX = ".json"
_POINT = re.compile(r"[0-9]{8}-[0-9]{6}(?:-[0-9]{1,4})?\Z", re.ASCII)
_KEY_ID = re.compile(r"[0-9a-f]{16}\Z", re.ASCII)
_WRAPPED = re.compile(r"[0-9a-f]{120}\Z", re.ASCII)
_TAGS = re.compile(r"[0-9a-f]*\Z", re.ASCII)
_TAG_CHARACTERS = 32
_DIGEST = re.compile(r"[0-9a-f]{64}\Z", re.ASCII)


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """The image of a disk: the blocks that differ from the image named `backing`, or all of them."""

    disk: str
    """UUID of the disk."""
    size: int
    """Bytes of the disk."""
    file: str
    backing: str = ""
    length: int
    """Bytes of the file."""
    pieces: tuple[str, ...]
    """SHA-256 of each 4 MiB of the file, as it is stored."""
    key: str = ""
    """Of an encrypted image: its data key, wrapped; in hexadecimal."""
    tags: str = ""
    """Of an encrypted image: the 16 bytes of each piece's tag, in hexadecimal."""


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """A replacement of images that has been decided: their new form, which no longer needs the parent."""

    parent: str
    disks: tuple[Image, ...]
    seal: str = ""
    """The seal of the manifest after the merge, which any process can complete, also without the key."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One backup of an instance."""

    format: str = FORMAT
    instance: str
    instance_uuid: str
    point: str
    """Its name, a time in UTC."""
    number: int
    """Greater than that of every earlier backup in the directory, whatever the clocks say."""
    time: float
    parent: str = ""
    """The backup before it, whose images may back those of this one."""
    consistency: Consistency
    disks: tuple[Image, ...]
    description: str
    """The instance, as in the `config.ini` of an export, without secrets; encrypted in an encrypted backup."""
    merging: Merge | None = None
    schedule: str = ""
    """UUID of the schedule that made it; '': none did."""
    key_id: str = ""
    """The backup key (`backup_encryption`); '': the backup is not encrypted."""
    seal: str = ""
    """The HMAC of all other fields, by the backup key."""

    @property
    def file(self) -> str:
        return self.point + SUFFIX

    def image(self, disk: str) -> Image | None:
        """Return the image of a disk, by the UUID of the disk."""
        return next((one for one in self.disks if one.disk == disk), None)


def check_point(name: str, field: str = "point") -> str:
    """Return the name of a backup; InputError if it cannot be one."""
    if not _POINT.match(name):
        raise InputError(
            f"{name!r:.60} is not the name of a backup, such as 20261127-180500; gnt-backup points lists them",
            field,
        )
    return name


def image_file(point: str, disk: str) -> str:
    """Return the name of the image of a disk."""
    if not is_uuid(disk):
        raise InputError(f"{disk!r:.60} is not the UUID of a disk", "disk")
    return f"{check_point(point)}.{disk}.qcow2"


def point_of(file: str) -> str:
    """Return the backup that an image belongs to."""
    return file.partition(".")[0]


def parse_manifest(content: bytes, file: str) -> Manifest:
    """Return a manifest; HostError unless everything in it is possible."""
    try:
        found = wire.decode(content, Manifest, what=file)
        _check(found, file)
    except InputError as err:
        raise HostError(f"{file}: {err}") from err
    return found


def _check(found: Manifest, file: str) -> None:
    if found.format != (ENCRYPTED_FORMAT if found.key_id else FORMAT):
        raise InputError(
            f"is {found.format!r:.60}; this implementation reads {FORMAT}, and {ENCRYPTED_FORMAT} of encrypted backups",
            "format",
        )
    if found.key_id and not _KEY_ID.match(found.key_id):
        raise InputError("is not the id of a backup key", "key_id")
    host_name(found.instance, "instance")
    if check_point(found.point) + SUFFIX != file:
        raise InputError(f"is {found.point}, which is not that of the file", "point")
    if found.schedule and not is_uuid(found.schedule):
        raise InputError("is not a UUID", "schedule")
    if found.parent:
        check_point(found.parent, "parent")
    if not 0 < found.number < 1 << 53 or not 0 <= found.time < 1 << 40:
        raise InputError("is impossible", "number")
    if len({one.disk for one in found.disks}) != len(found.disks):
        raise InputError("has a disk twice", "disks")
    _check_images(found, found.disks, found.parent)
    if found.merging is not None:
        _check_images(found, found.merging.disks, found.merging.parent)


def _check_images(found: Manifest, images: Iterable[Image], parent: str) -> None:
    for one in images:
        if one.file != image_file(found.point, one.disk):
            raise InputError(
                f"is {one.file!r:.80}, which is not the name of an image", "disks.file"
            )
        if one.backing and (
            not parent or one.backing != image_file(point_of(one.backing), one.disk)
        ):
            raise InputError(
                f"is {one.backing!r:.80}, which is not an earlier image of the disk",
                "disks.backing",
            )
        if not 0 < one.size <= SIZE_LIMIT or not 0 < one.length <= 2 * SIZE_LIMIT:
            raise InputError("is impossible", "disks.size")
        if len(one.pieces) != -(-one.length // PIECE) or not all(map(_DIGEST.match, one.pieces)):
            raise InputError("are not the digests of a file of this length", "disks.pieces")
        if len({bool(found.key_id), bool(one.key), bool(one.tags)}) != 1:
            raise InputError("does not fit to the encryption of the backup", "disks.key")
        if one.key and not _WRAPPED.match(one.key):
            raise InputError("is not a wrapped key", "disks.key")
        if one.tags and (
            len(one.tags) != len(one.pieces) * _TAG_CHARACTERS or not _TAGS.match(one.tags)
        ):
            raise InputError("are not the tags of a file of this length", "disks.tags")


def chain_of(point: Manifest, disk: str, known: Mapping[str, Manifest]) -> list[Image]:
    """Return the images that make a disk, the newest first; HostError names a missing one."""
    image = point.image(disk)
    if image is None:
        raise HostError(f"backup {point.point} has no disk {disk}")
    images, at = [image], point
    while image.backing:
        wanted = point_of(image.backing)
        before = known.get(wanted)
        above = image
        image = before.image(disk) if before is not None else None
        if before is None or image is None or before.number >= at.number:
            raise HostError(
                f"{above.file} needs {above.backing}, and that backup is missing or damaged"
            )
        if before.key_id != point.key_id:
            raise HostError(
                f"{above.file} is encrypted with {point.key_id or 'no key'}, and {image.file}, which it needs, with"
                f" {before.key_id or 'no key'}: one of their manifests was replaced"
            )
        images.append(image)
        at = before
    return images
