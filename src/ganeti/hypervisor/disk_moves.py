"""Moves of the disks of running guests to other storage of the node: an optional part of a driver."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from ganeti.base.errors import HypervisorError, InputError
from ganeti.base.files import sync_directory, write_atomically
from ganeti.base.paths import Paths
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.wire import decode, encode
from ganeti.rpc.procedures.disk_moves import DiskMoveStatus


class DiskMove(msgspec.Struct, frozen=True, kw_only=True):
    """The durable record of a guest's last move, also after the guest and the host have ended."""

    token: str
    disks: tuple[DiskSpec, ...]
    """The new disks."""
    paths: tuple[str, ...]
    sides: tuple[int, ...] = ()
    """Of each new disk: which of the driver's two names of a disk's storage it has."""
    is_moved: bool = False
    """True if the guest has used the new disks, which so have its last writes."""


@dataclass(frozen=True)
class DiskMoveRecords:
    """The records of this node, a file for each instance; only the drivers change them."""

    paths: Paths

    def read(self, instance_uuid: str) -> DiskMove | None:
        """Return the record of an instance, or None; HypervisorError if it is damaged."""
        path = self.paths.disk_move(instance_uuid)
        try:
            return decode(path.read_bytes(), DiskMove, what=str(path))
        except FileNotFoundError:
            return None
        except InputError as err:
            raise HypervisorError(f"the record of a disk move is damaged: {err}") from err

    def write(self, instance_uuid: str, move: DiskMove) -> None:
        """Make a record durable."""
        path = self.paths.disk_move(instance_uuid)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, encode(move))

    def forget(self, instance_uuid: str) -> None:
        """Remove the record; no-op if there is none."""
        path = self.paths.disk_move(instance_uuid)
        if path.exists():
            path.unlink()
            sync_directory(path.parent)


class MovesDisks(abc.ABC):
    """Copies the disks of running guests, and lets the guests use the copies.

    Every operation may be repeated. After a failure of any of them the guest uses its old disks, unless the record
    says otherwise.
    """

    @abc.abstractmethod
    async def obstacles(self, instance: InstanceSpec) -> list[str]:
        """Return the reasons against a move now, a sentence each."""

    @abc.abstractmethod
    async def begin(
        self,
        instance: InstanceSpec,
        disks: Sequence[DiskSpec],
        paths: Sequence[str],
        *,
        token: str,
        bandwidth_mib_s: int,
    ) -> None:
        """Begin to copy all disks of the guest to `disks`, which have the same UUIDs and sizes.

        The limit of the bandwidth applies to each disk; 0 means none.
        """

    @abc.abstractmethod
    async def status(self, instance: InstanceSpec, token: str) -> DiskMoveStatus:
        """Return the progress; HypervisorError if a copy has failed or does not exist."""

    @abc.abstractmethod
    async def switch(self, instance: InstanceSpec, token: str) -> int:
        """Let the guest use the copies, which must be in step; return the milliseconds for which it was paused."""

    @abc.abstractmethod
    async def end(self, instance: InstanceSpec, token: str) -> bool:
        """Stop copying, and let the hypervisor close the disks that the guest does not use; return whether the new ones are right.

        Also for a guest that has ended, and for a move that is unknown here.
        """

    @abc.abstractmethod
    def forget(self, instance: InstanceSpec, token: str) -> None:
        """Remove the record of this move."""
