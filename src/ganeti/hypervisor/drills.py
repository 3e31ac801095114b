"""Guests that boot the disks of backups and are thrown away: an optional part of a driver beside `Hypervisor`."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ganeti.model.params import Params


@dataclass(frozen=True)
class Equipment:
    """What runs the guest on this node: a program, its accelerator, and the device for that ('' for none)."""

    program: str
    accelerator: str
    device: str


@dataclass(frozen=True)
class DrillDisk:
    """A disk: descriptors of its images, the newest first, and of a new image above them."""

    uuid: str
    layers: Sequence[int]
    overlay: int


@dataclass(frozen=True)
class DrillGuest:
    """The guest, with descriptors of its files; memory in MiB, 0 for a file that it does not have."""

    equipment: Equipment
    hvparams: Params
    """As of `harmless`."""
    uuid: str
    memory: int
    vcpus: int
    disks: Sequence[DrillDisk]
    console: int
    """The writing end of a pipe."""
    kernel: int = 0
    initrd: int = 0
    variables: int = 0
    """A new copy of the variables of the firmware."""
    agent: bool = False
    """Whether the standard input and output are a channel for an agent."""


class BootsDrills(abc.ABC):
    """Boots disks in a guest without a network and without anything of the host, in a program of its own.

    The methods raise only HypervisorError.
    """

    @abc.abstractmethod
    async def equipment(self, hvparams: Params) -> Equipment:
        """Return what runs a guest with these parameters here, for a user without privileges."""

    @abc.abstractmethod
    def harmless(self, hvparams: Params, equipment: Equipment) -> Params:
        """Return complete parameters, with the default of each one that reaches beyond the guest."""

    @abc.abstractmethod
    def variables(self, hvparams: Params) -> Path | None:
        """Return the file with the initial variables of the guest's firmware, if that has some."""

    @abc.abstractmethod
    def command(self, guest: DrillGuest) -> list[str]:
        """Return the words that start the guest. Every file is a descriptor that the program inherits."""
