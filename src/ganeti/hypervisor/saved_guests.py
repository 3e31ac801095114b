"""Running guests that are saved with their memory: an optional part of a driver; and the file of a saved guest.

0        magic line, facts about the guest (JSON), zeros
256 KiB  the hypervisor's own stream
"""

import abc
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import HypervisorError, InputError
from ganeti.model import wire
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.instance_spec import InstanceSpec
from ganeti.rpc.procedures.migration import MigrationInfo

HEADER = 256 * 1024
"""Bytes before the stream."""
MAGIC = b"GANETI SAVED GUEST 1\n"

TakeDisks = Callable[[], Awaitable[None]]
"""Takes the snapshots of the disks; called while the guest is paused."""


@dataclass(frozen=True)
class SavedGuest:
    """The part of a file that counts, its SHA-256, and how long the guest was paused."""

    length: int
    sha256: str
    paused_ms: int = 0


class SavesGuests(abc.ABC):
    """Saves running guests with their memory, and continues them from it."""

    @abc.abstractmethod
    async def save(
        self, instance: InstanceSpec, path: Path, capacity: int, take_disks: TakeDisks
    ) -> SavedGuest:
        """Write the guest's memory and devices of one moment to an open disk of `capacity` bytes.

        The guest runs meanwhile, and is paused for the end and for `take_disks`. It continues after success and error;
        if this daemon dies, with the next one.
        """

    @abc.abstractmethod
    async def misfits(self, instance: InstanceSpec, path: Path) -> list[str]:
        """Return why the guest cannot continue here from its saved memory, a clause each; empty if it can."""

    @abc.abstractmethod
    async def restore(
        self, instance: InstanceSpec, disk_paths: list[str], path: Path, saved: SavedGuest
    ) -> None:
        """Start a guest from its saved memory, paused; fail and leave nothing if that does not fit or is damaged."""


def write_header(descriptor: int, info: MigrationInfo) -> None:
    """Write the facts about a guest, and move the file's position to its stream."""
    content = MAGIC + wire.encode(info) + b"\n"
    if len(content) >= HEADER:
        raise HypervisorError(
            f"{info.instance.name}: its parameters have too many bytes to be saved"
        )
    content = content.ljust(HEADER, b"\0")
    done = 0
    try:
        while done < len(content):
            done += os.pwrite(descriptor, content[done:], done)
    except OSError as err:
        raise HypervisorError(f"the memory cannot be written: {err.strerror}") from err
    os.lseek(descriptor, HEADER, os.SEEK_SET)


def read_header(descriptor: int) -> MigrationInfo:
    """Return the facts about a saved guest, and move the file's position to its stream; HypervisorError if damaged."""
    content = os.pread(descriptor, HEADER, 0)
    if not content.startswith(MAGIC):
        raise HypervisorError("it does not contain the memory of a guest")
    text = content[len(MAGIC) :].rstrip(b"\0")
    try:
        found = wire.decode(text, MigrationInfo, what="the facts about the saved guest")
    except InputError as err:
        raise HypervisorError(str(err)) from err
    os.lseek(descriptor, HEADER, os.SEEK_SET)
    return found


def misfits(saved: InstanceSpec, now: InstanceSpec) -> list[str]:
    """Return why an instance cannot continue from its saved memory, a clause each; empty if it can.

    The guest continues with the values of its start, so each of them must still be that of the instance.
    """
    return list(_misfits(saved, now))


def _misfits(saved: InstanceSpec, now: InstanceSpec) -> Iterator[str]:
    for what, before, after in (
        ("hypervisor", saved.hypervisor, now.hypervisor),
        ("memory in MiB", saved.memory, now.memory),
        ("vcpus", saved.vcpus, now.vcpus),
    ):
        if before != after:
            yield f"{what} was {before} and is {after}"
    known = HYPERVISOR_PARAMS.get(now.hypervisor, {})
    for name, param in known.items():
        if param.is_global or name.startswith("migration_"):
            continue
        before, after = (one.hvparams.get(name, param.default) for one in (saved, now))
        if before != after:
            yield f"hypervisor parameter {name} was {before!r} and is {after!r}"
    if [one.uuid for one in saved.disks] != [one.uuid for one in now.disks]:
        yield f"it had {len(saved.disks)} disks, and not the present {len(now.disks)}"
    if [(one.uuid, one.mac) for one in saved.nics] != [(one.uuid, one.mac) for one in now.nics]:
        yield f"it had {len(saved.nics)} network interfaces, and not the present {len(now.nics)}"
