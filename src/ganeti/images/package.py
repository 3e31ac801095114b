"""Inspection of foreign images: one image of a disk, or a machine as an OVA or OVF (A51-A53).

An OVA is a tar archive. It is never unpacked by names: members must be plain files with plain names, each once, at
positions inside the file; links, devices and extensions that change names or sizes are refused (A52).
"""

import contextlib
import hashlib
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ganeti.base.errors import HostError, InputError
from ganeti.base.identifiers import plain_name
from ganeti.protocols.image_headers import (
    FORMATS,
    RAW,
    VMDK,
    ImageFacts,
    inspect_image,
    is_archive,
)
from ganeti.protocols.ovf import TEXT_LIMIT, OvfMachine, parse_ovf

AUTO, OVA, OVF = "auto", "ova", "ovf"
SOURCE_FORMATS = (AUTO, *FORMATS, OVA, OVF)
_BLOCK = tarfile.BLOCKSIZE
_MEMBERS_LIMIT = 64
_MANIFEST_LIMIT = 64 * 1024
_DIGESTS = {"SHA1": "sha1", "SHA256": "sha256", "SHA512": "sha512"}
_OVF_HEADS = (b"<?xml", b"<Envelope", b"<ovf:Envelope", b"\xef\xbb\xbf<?xml")

OpenFile = Callable[[str], int]
"""Opens a regular file beside the source for reading, by its plain name."""


@dataclass(frozen=True)
class Member:
    """Return the number of bytes of an open file."""

    name: str
    descriptor: int
    offset: int
    length: int

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes at an offset; fewer at the end."""
        length = max(0, min(length, self.length - offset))
        return os.pread(self.descriptor, length, self.offset + offset) if length else b""


@dataclass(frozen=True)
class DiskImage:
    """The data of one disk, and its expected digest: name of an algorithm and hexadecimal digits."""

    member: Member
    facts: ImageFacts
    digest: tuple[str, str] | None = None


@dataclass(frozen=True)
class Package:
    """A machine, or only a disk; `disks` has None for an empty one."""

    machine: OvfMachine | None
    disks: tuple[DiskImage | None, ...]
    sizes: tuple[int, ...]
    """Bytes of each disk."""


@contextlib.contextmanager
def opened_package(open_file: OpenFile, name: str, form: str = AUTO) -> Iterator[Package]:
    """Open the source called `name`, for the time of a block; InputError says why it is not accepted."""
    if form not in SOURCE_FORMATS:
        raise InputError(f"{form!r:.40} is not one of {', '.join(SOURCE_FORMATS)}", "format")
    with contextlib.ExitStack() as stack:

        def opened(one: str) -> Member:
            descriptor = open_file(one)
            stack.callback(os.close, descriptor)
            return Member(one, descriptor, 0, os.fstat(descriptor).st_size)

        source = opened(name)
        if form == AUTO:
            form = _detect(source)
        if form == OVA:
            yield _archive(source)
        elif form == OVF:
            yield _machine(source, _beside(opened, _manifest_name(name)), opened)
        else:
            facts = inspect_image(source.read, source.length, "" if form == AUTO else form)
            yield Package(None, (DiskImage(source, facts),), (facts.size,))


def _detect(source: Member) -> str:
    if is_archive(source.read):
        return OVA
    if source.read(0, 64).lstrip().startswith(_OVF_HEADS):
        return OVF
    return AUTO


def _archive(source: Member) -> Package:
    members = _members(source)
    descriptions = [one for one in members.values() if one.name.lower().endswith(".ovf")]
    if len(descriptions) != 1:
        raise _refused(f"it has {len(descriptions)} OVF descriptions; an OVA has one")

    def inside(name: str) -> Member:
        if name not in members:
            raise _refused(f"it has no file {name}")
        return members[name]

    manifest = members.get(_manifest_name(descriptions[0].name))
    return _machine(descriptions[0], manifest, inside)


def _manifest_name(description: str) -> str:
    return description.rpartition(".")[0] + ".mf"


def _beside(opened: Callable[[str], Member], name: str) -> Member | None:
    """Return an optional file."""
    try:
        return opened(name)
    except HostError:
        return None


def _members(source: Member) -> dict[str, Member]:
    """The files of a tar archive."""
    found: dict[str, Member] = {}
    offset = 0
    while head := source.read(offset, _BLOCK):
        if not head.strip(b"\0"):
            break
        try:
            info = tarfile.TarInfo.frombuf(head, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError, ValueError) as err:
            raise _refused(
                f"it is not a tar archive, or is damaged at byte {offset}: {err}"
            ) from err
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise _refused(f"{info.name!r:.80} in it is not a regular file")
        name = plain_name(info.name.removeprefix("./"), "name in the archive")
        offset += _BLOCK
        if not 0 <= info.size <= source.length - offset:
            raise _refused(f"{name} is truncated: {info.size} bytes do not fit into the archive")
        if name in found:
            raise _refused(f"{name} is in it twice")
        if len(found) == _MEMBERS_LIMIT:
            raise _refused(f"it has more than {_MEMBERS_LIMIT} files")
        found[name] = Member(name, source.descriptor, source.offset + offset, info.size)
        offset += -(-info.size // _BLOCK) * _BLOCK
    return found


def _machine(
    description: Member, manifest: Member | None, opened: Callable[[str], Member]
) -> Package:
    text = _text(description, TEXT_LIMIT)
    digests = {} if manifest is None else _digests(_text(manifest, _MANIFEST_LIMIT))
    if digest := digests.get(description.name):
        check_digest(description.name, digest, hashlib.new(digest[0], text, usedforsecurity=False))
    machine = parse_ovf(text)
    disks: list[DiskImage | None] = []
    sizes = []
    for disk in machine.disks:
        if not disk.file:
            disks.append(None)
            sizes.append(disk.capacity)
            continue
        member = opened(disk.file)
        facts = inspect_image(member.read, member.length)
        if disk.is_vmdk and facts.format == RAW:
            facts = inspect_image(member.read, member.length, VMDK)  # raises if it is malformed
        if facts.size > disk.capacity:
            raise _refused(f"{disk.file} has {facts.size} bytes, its description {disk.capacity}")
        disks.append(DiskImage(member, facts, digests.get(disk.file)))
        sizes.append(disk.capacity)
    return Package(machine, tuple(disks), tuple(sizes))


def check_digest(name: str, digest: tuple[str, str], found: "hashlib._Hash") -> None:
    """Refuse a file that differs from the manifest."""
    if found.hexdigest() != digest[1]:
        raise InputError(
            f"{name} is damaged: its digest differs from the manifest; if it was changed on purpose, remove"
            " the manifest (.mf)",
            "OVA",
        )


def _digests(manifest: bytes) -> dict[str, tuple[str, str]]:
    """Return the content of a manifest: algorithm and digits of each file."""
    found = {}
    for line in manifest.decode("ascii", "replace").splitlines():
        kind, _, rest = line.partition("(")
        name, _, value = rest.rpartition(")")
        algorithm = _DIGESTS.get(kind.strip().replace("-", "").upper())
        if algorithm:
            found[name.strip()] = (algorithm, value.strip(" =\t").lower())
    return found


def _text(member: Member, limit: int) -> bytes:
    if member.length > limit:
        raise _refused(f"{member.name} has more than {limit} bytes")
    return member.read(0, limit)


def _refused(why: str) -> InputError:
    return InputError(f"cannot be imported: {why}", "OVA")


def open_beside(directory: int, name: str) -> int:
    """Open a regular file of a directory, without following links; for callers that may read any file anyway."""
    try:
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
        )
    except OSError as err:
        raise HostError(f"{name} cannot be read: {err.strerror}") from err
    if os.fstat(descriptor).st_mode & 0o170000 != 0o100000:  # noqa: PLR2004 - a regular file
        os.close(descriptor)
        raise HostError(f"{name} is not a regular file")
    return descriptor
