"""The memory of a guest's board while the guest is down: its UEFI variables and its TPM's state.

Both move with the instance: `read` on one node, `write` on another, `forget` on the former. Data beside disks that all
nodes see stays there. All but `NvramFiles` blocks, and raises HypervisorError.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from ganeti.base.errors import HypervisorError, InputError
from ganeti.base.paths import Paths
from ganeti.hypervisor.abilities import KeepsNvram
from ganeti.hypervisor.kvm import firmware, tpm
from ganeti.hypervisor.kvm.guests import Guests
from ganeti.model import wire
from ganeti.model.instance_spec import InstanceSpec


class _Nvram(msgspec.Struct, frozen=True, kw_only=True):
    """The form in which it travels; the master does not interpret it."""

    uefi: bytes | None = None
    tpm: bytes | None = None


class NvramFiles(KeepsNvram):
    """This node's data for the boards of its guests."""

    def __init__(self, paths: Paths, guests: Guests) -> None:
        self._paths, self._guests = paths, guests

    async def read_nvram(self, instance: InstanceSpec, disk_paths: Sequence[str]) -> bytes | None:
        return await asyncio.to_thread(read, self._paths, instance, disk_paths)

    async def write_nvram(
        self, instance: InstanceSpec, disk_paths: Sequence[str], content: bytes
    ) -> None:
        self._check_down(instance)
        await asyncio.to_thread(write, self._paths, instance, disk_paths, content)

    async def forget_nvram(
        self, instance: InstanceSpec, disk_paths: Sequence[str], *, everywhere: bool
    ) -> None:
        self._check_down(instance)
        await asyncio.to_thread(forget, self._paths, instance, disk_paths, everywhere=everywhere)

    def _check_down(self, instance: InstanceSpec) -> None:
        if self._guests.peek(self._guests.files(instance.uuid)) is not None:
            raise HypervisorError(f"{instance.name} runs on this node; its NVRAM is in use")


def read(paths: Paths, instance: InstanceSpec, disk_paths: Sequence[str]) -> bytes | None:
    """Return the data that only this node has, or None if there is none."""
    is_shared = firmware.lies_beside_disks(paths, instance, disk_paths)
    found = _Nvram(
        uefi=None if is_shared else firmware.read(paths, instance, disk_paths),
        tpm=tpm.read(paths, instance.uuid),
    )
    return None if found == _Nvram() else wire.encode(found)


def write(paths: Paths, instance: InstanceSpec, disk_paths: Sequence[str], content: bytes) -> None:
    """Store the data that another node has read."""
    try:
        found = wire.decode(content, _Nvram, what="the NVRAM of a guest")
    except InputError as err:
        raise HypervisorError(err.message) from err
    if found.uefi is not None:
        firmware.write(paths, instance, disk_paths, found.uefi)
    if found.tpm is not None:
        tpm.write(paths, instance.uuid, found.tpm)


def forget(
    paths: Paths, instance: InstanceSpec, disk_paths: Sequence[str], *, everywhere: bool
) -> None:
    """Remove the data that only this node has; with `everywhere` also data that all nodes see."""
    if everywhere or not firmware.lies_beside_disks(paths, instance, disk_paths):
        firmware.forget(paths, instance, disk_paths)
    tpm.forget(paths, instance.uuid)
