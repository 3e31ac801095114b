"""What some hypervisor drivers can do beside `Hypervisor`, each a part of its own; `Options` has those of one driver.

Like all of a driver, they raise only HypervisorError, and may be repeated.
"""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ganeti.hypervisor.hotplug import Hotplug
from ganeti.model.instance_spec import InstanceSpec, NicSpec
from ganeti.model.params import Params
from ganeti.rpc.procedures.agent import AgentInfo


class PinsMachine(abc.ABC):
    """Knows versions of virtual hardware; an instance keeps the one it was made with."""

    @abc.abstractmethod
    async def pinned(self, hvparams: Params) -> Params:
        """Parameters to store with a new instance, so that another version of the hypervisor does not change it."""


class TakesScreenshots(abc.ABC):
    """Can show what a guest's screen shows."""

    @abc.abstractmethod
    async def screenshot(self, instance: InstanceSpec) -> bytes:
        """A PNG picture of at most 8 MiB."""


class WarmsUp(abc.ABC):
    """Probes the host at start, so that the first guest does not wait for it."""

    @abc.abstractmethod
    async def warm_up(self) -> None:
        """Probe what holds until the host reboots or its programs are replaced."""


class LooksAfterGuests(abc.ABC):
    """Has periodic work for guests."""

    @abc.abstractmethod
    async def look_after(self) -> None:
        """Cut logs that have grown too big; thaw guests that were frozen for too long."""


class TalksToAgent(abc.ABC):
    """Reaches an agent in guests, which say of themselves what they like."""

    @abc.abstractmethod
    async def agent_info(self, instance: InstanceSpec) -> AgentInfo | None:
        """Return what the guest says of itself; None if no agent answers."""

    @abc.abstractmethod
    async def freeze(self, instance: InstanceSpec, limit_s: float) -> int:
        """Let its file systems stand still, at most `limit_s`; how many. May be repeated."""

    @abc.abstractmethod
    async def thaw(self, instance: InstanceSpec) -> int:
        """Thaw them; return how many. Idempotent."""


class KeepsNvram(abc.ABC):
    """Keeps what a guest's board remembers while the guest is down: UEFI variables, a TPM's state."""

    @abc.abstractmethod
    async def read_nvram(self, instance: InstanceSpec, disk_paths: Sequence[str]) -> bytes | None:
        """All that only this node has, for `write_nvram` on another; None if there is nothing."""

    @abc.abstractmethod
    async def write_nvram(
        self, instance: InstanceSpec, disk_paths: Sequence[str], content: bytes
    ) -> None:
        """Put here what another node has read; the guest is down."""

    @abc.abstractmethod
    async def forget_nvram(
        self, instance: InstanceSpec, disk_paths: Sequence[str], *, everywhere: bool
    ) -> None:
        """Remove what only this node has; with `everywhere` also what all see. No-op if there is none."""


class ChecksNics(abc.ABC):
    """Has guests on real networks, and says beforehand whether it could connect them on this node."""

    @abc.abstractmethod
    async def wrong_nics(self, nics: Sequence[NicSpec]) -> list[str]:
        """Return what keeps network interfaces from being connected here, a sentence each; empty if nothing."""


@dataclass(frozen=True)
class Adoption:
    """What became of each guest that upstream Ganeti left on a node."""

    adopted: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """Why others were not adopted; they run on, unknown to this implementation."""
    unknown: tuple[str, ...] = ()
    """Guests that no record describes and of which the node does not know the UUID."""


class AdoptsGuests(abc.ABC):
    """Goes on with guests that upstream Ganeti has started on this node, and gives them back. Its methods block."""

    @abc.abstractmethod
    def adopt(self, uuids: Mapping[str, str]) -> Adoption:
        """Write a record of each; `uuids` has those of the instances that the node knows, by name. May be repeated."""

    @abc.abstractmethod
    def hidden_guests(self) -> list[str]:
        """Return names of guests that upstream has not started and could not find."""

    @abc.abstractmethod
    def give_back(self) -> None:
        """Let upstream know again all guests that it can find."""


@dataclass(frozen=True)
class Options:
    """What one driver has beside the operations of `Hypervisor`; None where it has not."""

    hotplug: Hotplug | None = None
    """Changes the devices of running guests."""
    networks: ChecksNics | None = None
    machines: PinsMachine | None = None
    screens: TakesScreenshots | None = None
    nvram: KeepsNvram | None = None
    agents: TalksToAgent | None = None
    warm_up: WarmsUp | None = None
    upkeep: LooksAfterGuests | None = None
    adoption: AdoptsGuests | None = None
    shared_files: tuple[str, ...] = ()
    """Files of the host that must be the same on all nodes, as far as the master has them (S67)."""


NO_OPTIONS = Options()
