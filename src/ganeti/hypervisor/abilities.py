"""Optional abilities of hypervisor drivers, each a part of its own; `Options` has those of one driver.

Like all of a driver, they raise only HypervisorError, and every operation may be repeated.
"""

import abc
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from ganeti.hypervisor.disk_moves import MovesDisks
from ganeti.hypervisor.drills import BootsDrills
from ganeti.hypervisor.hotplug import Hotplug
from ganeti.hypervisor.live_restores import StartsAbove
from ganeti.hypervisor.saved_guests import SavesGuests
from ganeti.model.figures import Reading
from ganeti.model.instance_spec import InstanceSpec, NicSpec
from ganeti.model.names import Consistency
from ganeti.model.params import Params
from ganeti.model.recovery import GuestFault
from ganeti.rpc.procedures.agent import AgentInfo
from ganeti.rpc.procedures.consoles import ConsoleKind


class PinsMachine(abc.ABC):
    """Knows versions of virtual hardware; an instance keeps the one of its creation."""

    @abc.abstractmethod
    async def pinned(self, hvparams: Params) -> Params:
        """Return parameters to store with a new instance, so that later versions of the hypervisor keep it."""


class TakesScreenshots(abc.ABC):
    """Takes pictures of a guest's screen."""

    @abc.abstractmethod
    async def screenshot(self, instance: InstanceSpec) -> bytes:
        """Return a PNG picture of at most 8 MiB."""


ConsoleAddress = Path | tuple[str, int]
"""A socket or a log of the node, or a local host and port."""


class ServesConsoles(abc.ABC):
    """Has consoles to which the node daemon can connect for other hosts."""

    @abc.abstractmethod
    def console_address(self, instance: InstanceSpec, kind: ConsoleKind) -> ConsoleAddress:
        """Return the address of a console of a running guest; HypervisorError if it has none of this kind."""


class WarmsUp(abc.ABC):
    """Probes the host at start, so that the first guest does not wait for it."""

    @abc.abstractmethod
    async def warm_up(self) -> None:
        """Probe facts that hold until the host reboots or its programs are replaced."""


class LooksAfterGuests(abc.ABC):
    """Has periodic work for guests."""

    @abc.abstractmethod
    async def look_after(self) -> None:
        """Truncate large logs; thaw guests that were frozen for too long."""


class TalksToAgent(abc.ABC):
    """Reaches an agent in guests, whose reports are not trusted."""

    @abc.abstractmethod
    async def agent_info(self, instance: InstanceSpec) -> AgentInfo | None:
        """Return the guest's report about itself; None if no agent answers."""

    @abc.abstractmethod
    async def freeze(self, instance: InstanceSpec, limit_s: float) -> int:
        """Freeze its file systems, for at most `limit_s`; return how many. Idempotent."""

    @abc.abstractmethod
    async def thaw(self, instance: InstanceSpec) -> int:
        """Thaw them; return how many. Idempotent."""


@dataclass
class Held:
    """What a guest's disks contain while it is held; final after the block."""

    consistency: Consistency


class HoldsGuests(abc.ABC):
    """Keeps guests from writing to their disks for a moment."""

    @abc.abstractmethod
    def held(self, instance: InstanceSpec, limit_s: float) -> AbstractAsyncContextManager[Held]:
        """Return a block in which a running guest writes nothing, and all that it has written is on its disks.

        If this daemon dies in the block, the guest continues after `limit_s`, or with the next daemon.
        """


@dataclass(frozen=True)
class Moment:
    """All disks of a running guest as they were at one moment, at a socket that speaks NBD.

    An export has the UUID of its disk. With `has_changes` it has the dirty bitmap of the blocks that have changed
    since the earlier moment.
    """

    consistency: Consistency
    socket: Path
    has_changes: bool


class ShowsMoments(abc.ABC):
    """Shows the disks of running guests as they were at one moment, for backups."""

    @abc.abstractmethod
    async def begin(
        self, instance: InstanceSpec, *, base: str, bitmap: str, limit_s: float
    ) -> Moment:
        """Show all disks as they are now, and record later changes in `bitmap`.

        `base` is the bitmap of an earlier moment. The guest is held meanwhile, for at most `limit_s`.
        """

    @abc.abstractmethod
    async def end(self, instance: InstanceSpec, *, base: str, bitmap: str, keep: bool) -> None:
        """Stop showing them, and `keep` the new bitmap instead of `base`; or keep `base`, with all later changes.

        No-op if the guest has ended meanwhile.
        """


@dataclass(frozen=True)
class Sighting:
    """A guest of which a node has a trace."""

    name: str
    """The instance's."""
    fault: GuestFault | None = None
    """None if it runs, or was ended by its user."""


class NoticesFaults(abc.ABC):
    """Notices guests that failed."""

    @abc.abstractmethod
    def seen(self, wanted: Collection[str]) -> dict[str, Sighting]:
        """Return, by UUID, the guests that should run here and have left a trace. Quick: it does not ask guests."""

    @abc.abstractmethod
    async def look(self, wanted: Collection[str]) -> None:
        """Ask the guests that can report faults, for `seen`."""


class MeasuresGuests(abc.ABC):
    """Reads the figures of guests."""

    @abc.abstractmethod
    def measure(self) -> dict[str, Reading]:
        """Return what was read of each guest that runs here, by the instance's UUID.

        It blocks, is called by one thread at a time, and asks neither guests nor their monitors.
        """


@dataclass(frozen=True, kw_only=True)
class GuestAmount:
    """The memory of a running guest, in MiB."""

    uuid: str
    name: str
    memory: int
    before: int
    """What it had before the node took some of it, else `memory`."""
    used: int | None = None
    """What its own system uses, if it reports that."""


class SharesMemory(abc.ABC):
    """Takes memory from guests while their node has too little, and gives it back."""

    @abc.abstractmethod
    async def amounts(self, *, everyone: bool) -> Sequence[GuestAmount]:
        """Return the guests that can change now; without `everyone` only those from which memory was taken."""

    @abc.abstractmethod
    async def set_share(self, uuid: str, memory: int, goal: int) -> None:
        """Give a guest this memory; what it had before is recorded with the node's goal until it has that again."""


class KeepsNvram(abc.ABC):
    """Keeps the memory of a guest's board while the guest is down: UEFI variables, a TPM's state."""

    @abc.abstractmethod
    async def read_nvram(self, instance: InstanceSpec, disk_paths: Sequence[str]) -> bytes | None:
        """Return the data that only this node has, for `write_nvram` on another; None if there is none."""

    @abc.abstractmethod
    async def write_nvram(
        self, instance: InstanceSpec, disk_paths: Sequence[str], content: bytes
    ) -> None:
        """Store the data that another node has read; the guest is down."""

    @abc.abstractmethod
    async def forget_nvram(
        self, instance: InstanceSpec, disk_paths: Sequence[str], *, everywhere: bool
    ) -> None:
        """Remove the data that only this node has.

        With `everywhere` also data that all nodes see. No-op if there is none.
        """


class ChecksNics(abc.ABC):
    """Has guests on real networks, and checks beforehand whether this node could connect them."""

    @abc.abstractmethod
    async def wrong_nics(self, nics: Sequence[NicSpec]) -> list[str]:
        """Return the reasons against connecting network interfaces here, a sentence each; empty if there are none."""


@dataclass(frozen=True)
class Adoption:
    """The result of the adoption of each guest that upstream Ganeti left on a node."""

    adopted: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """Why the other guests were not adopted; they keep running, unknown to this implementation."""
    unknown: tuple[str, ...] = ()
    """Guests without a record whose UUID the node does not know."""


class AdoptsGuests(abc.ABC):
    """Continues guests that upstream Ganeti has started on this node, and returns them. Its methods block."""

    @abc.abstractmethod
    def adopt(self, uuids: Mapping[str, str]) -> Adoption:
        """Write a record of each; `uuids` has the UUIDs of the node's instances, by name. Idempotent."""

    @abc.abstractmethod
    def hidden_guests(self) -> list[str]:
        """Return names of guests that upstream has not started and could not find."""

    @abc.abstractmethod
    def give_back(self) -> None:
        """Make all guests that upstream can find known to it again."""


@dataclass(frozen=True)
class Options:
    """The abilities of one driver beside the operations of `Hypervisor`; None for a missing one."""

    hotplug: Hotplug | None = None
    """Changes the devices of running guests."""
    networks: ChecksNics | None = None
    machines: PinsMachine | None = None
    screens: TakesScreenshots | None = None
    consoles: ServesConsoles | None = None
    nvram: KeepsNvram | None = None
    agents: TalksToAgent | None = None
    holding: HoldsGuests | None = None
    saved: SavesGuests | None = None
    moments: ShowsMoments | None = None
    disk_moves: MovesDisks | None = None
    live_restores: StartsAbove | None = None
    drills: BootsDrills | None = None
    faults: NoticesFaults | None = None
    figures: MeasuresGuests | None = None
    shares: SharesMemory | None = None
    warm_up: WarmsUp | None = None
    upkeep: LooksAfterGuests | None = None
    adoption: AdoptsGuests | None = None
    shared_files: tuple[str, ...] = ()
    """Files of the host that must be the same on all nodes, if the master has them (S67)."""


NO_OPTIONS = Options()
