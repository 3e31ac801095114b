"""Queries and commands of LVM on this host."""

from collections.abc import Sequence
from dataclasses import dataclass

from ganeti.base.errors import HostError, StorageError
from ganeti.base.process import CommandFailed, Completed, Run, run
from ganeti.storage.lvm import commands, reports
from ganeti.storage.lvm.commands import VolumeName
from ganeti.storage.lvm.reports import Group, Part, Physical, Volume

TIMEOUT_S = 120.0
"""LVM waits for other LVM commands on the same group."""
_NO_PROGRAM = 127


class LvmMissing(StorageError):
    """LVM is not installed on this node."""


@dataclass(frozen=True)
class Lvm:
    """LVM's own programs; `options` follow each program's name."""

    run: Run = run
    options: tuple[str, ...] = ()

    async def act(self, words: Sequence[str]) -> Completed:
        """Run one command to its end; StorageError contains its output."""
        program, *rest = words
        try:
            return await self.run([program, *self.options, *rest], timeout_s=TIMEOUT_S)
        except CommandFailed as err:
            if err.completed.status == _NO_PROGRAM:
                raise LvmMissing(
                    f"{program} cannot be run; install the package lvm2 on this node"
                ) from err
            raise StorageError(err.message) from err
        except HostError as err:
            raise StorageError(err.message) from err

    async def volume(self, name: VolumeName) -> Volume | None:
        """Return a volume, or None; StorageError if its group does not exist."""
        found = await self.volumes(name.group, [name.name])
        return found[0] if found else None

    async def volumes(self, group: str, names: Sequence[str] = ()) -> list[Volume]:
        """Return volumes of a group by their names, or all."""
        return reports.volumes((await self.act(commands.list_volumes(group, names))).stdout)

    async def parts(self, group: str = "") -> list[Part]:
        """Return all volumes with their physical volumes."""
        return reports.parts((await self.act(commands.list_parts(group))).stdout)

    async def groups(self) -> list[Group]:
        return reports.groups((await self.act(commands.list_groups())).stdout)

    async def physical(self) -> list[Physical]:
        return reports.physical((await self.act(commands.list_physical())).stdout)
