"""What one simulated node is and has, and how it answers a call."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

from ganeti.base.errors import (
    HypervisorError,
    NotMaster,
)
from ganeti.model.disk_templates import THIN_POOL, VOLUME_GROUP, StorageUnit
from ganeti.model.hooks import Phase
from ganeti.model.hypervisors import HYPERVISORS
from ganeti.model.hypervisors.kvm import MOST_CPUS, MOST_MEMORY_MIB
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.objects import NodeUuid
from ganeti.model.progress import Progress
from ganeti.model.recovery import GuestFault
from ganeti.node.grants import GrantRecords, guarded
from ganeti.node.repeats import Repeats
from ganeti.placement.answers import Settings, answer
from ganeti.placement.places import Rules
from ganeti.recovery.grants import CopyRecord
from ganeti.rpc.calls import Call, Handler, Handlers
from ganeti.rpc.procedures import PROCEDURES
from ganeti.rpc.procedures.agent import AgentInfo
from ganeti.rpc.procedures.commands import (
    CommandOutput,
    FenceAgentArgs,
    OobArgs,
)
from ganeti.rpc.procedures.figures import HistoryPart, NodeFigures
from ganeti.rpc.procedures.files import NodeFile
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.procedures.hooks import HookResult, HooksArgs
from ganeti.rpc.procedures.instances import Lowered
from ganeti.rpc.procedures.programs import (
    AllocatorOutput,
)
from ganeti.rpc.procedures.recovery import HeartbeatArgs
from ganeti.rpc.procedures.streams import (
    ReceiveArgs,
)
from ganeti.simulation.nodes.storage import SharedDirectory
from ganeti.store.register import MemoryRegister, Promise, Register, check_epoch

PORT = 8102
STREAM_PORT = 40100


@dataclass
class Guest:
    """One guest, or one end of its migration; the states are those of `RunningInstance`."""

    spec: InstanceSpec
    state: str = "running"
    runs_on: bool = True
    """Whether it goes on by itself after a migration."""
    lowered: Lowered | None = None


class Guests(dict[str, Guest]):
    """Guests by the UUIDs of their instances; the master asks each node of a large cluster for their memory."""

    _memory: int | None = None
    """The sum; None: a guest may have changed since."""

    @property
    def memory(self) -> int:
        """MiB of all."""
        if self._memory is None:
            self._memory = sum([guest.spec.memory for guest in self.values()])
        return self._memory

    def __setitem__(self, uuid: str, guest: Guest) -> None:
        self._memory = None
        super().__setitem__(uuid, guest)

    def __delitem__(self, uuid: str) -> None:
        self._memory = None
        super().__delitem__(uuid)

    def pop(self, uuid: str, default: Any = None) -> Any:
        """Remove a guest and return it."""
        self._memory = None
        return super().pop(uuid, default)

    def clear(self) -> None:
        """Remove all."""
        self._memory = None
        super().clear()


@dataclass
class DiskMoveRecord:
    """What a node knows of the last move of a guest's disks; it survives the guest."""

    token: str
    old: tuple[DiskSpec, ...]
    new: tuple[DiskSpec, ...]
    is_moved: bool = False
    is_copying: bool = True
    looks: int = 0
    """How often its progress was queried."""


def hail(message: dict[str, Any]) -> AllocatorOutput:
    """The built-in allocator, as its script answers."""
    return AllocatorOutput(
        found=True, stdout=json.dumps(answer(message, Settings(Rules(capacity=False))))
    )


@cache
def _procedures_of(kind: type) -> tuple[str, ...]:
    """The procedures that have a method of this kind of node."""
    return tuple(name.removeprefix("on_") for name in dir(kind) if name.startswith("on_"))


class MemoryRecords(GrantRecords):
    """What a node knows of grants, without a file."""

    def __init__(self, node: Callable[[], NodeUuid]) -> None:
        super().__init__(Path("/not/used"), node)
        self.content: dict[str, CopyRecord] = {}

    async def _load(self) -> dict[str, CopyRecord]:
        return self.content

    async def _store(self, records: dict[str, CopyRecord]) -> None:
        self.content = records


@dataclass
class NodeState:
    """One node; `allocators` are the programs in its search path."""

    name: str
    cluster_uuid: str
    shared: SharedDirectory
    memory: int = 4096
    cpus: int = 4
    guests_keep_memory: bool = False
    """Guests without a balloon."""
    local: SharedDirectory = field(default_factory=SharedDirectory)
    guests: Guests = field(default_factory=Guests)
    disk_moves: dict[str, DiskMoveRecord] = field(default_factory=dict)
    """By the UUID of the instance."""
    disk_move_looks: int = 2
    """After so many queries of its progress, a copy is in step."""
    disk_move_obstacles: list[str] = field(default_factory=list)
    verify_says: str = ""
    """What the verify script of every definition prints."""
    oses: dict[str, str] = field(default_factory=lambda: {"tiny": "1.0"})
    wrong_osparams: set[tuple[str, str]] = field(default_factory=set)
    allocators: dict[str, Callable[[dict[str, Any]], AllocatorOutput]] = field(
        default_factory=lambda: {"hail": hail}
    )
    peers: "dict[str, Self]" = field(default_factory=dict)
    ssconf_position: int = -1
    ssconf: Mapping[str, str] = field(default_factory=dict)
    files: dict[str, NodeFile] = field(default_factory=dict)
    shared_files: list[NodeFile] = field(default_factory=list)
    forbidden_files: set[str] = field(default_factory=set)
    has_master_ip: bool = False
    older_calls: list[str] = field(default_factory=list)
    time: float = 0.0
    boot_id: str = "boot"
    why_unarmed: str = ""
    """Why no watchdog is armed."""
    faults: dict[str, GuestFault] = field(default_factory=dict)
    """UUIDs of instances whose guests have failed."""
    beats: list[HeartbeatArgs] = field(default_factory=list)
    is_off: bool = False
    """Other nodes do not reach it; whether the master does is the business of its `FakeRpc`."""
    left: bool = False
    refuses_start: str = ""
    migration_fails: str = ""
    rename_script_fails: str = ""
    restarts: int = 0
    bridges: set[str] = field(default_factory=lambda: {f"br{number}" for number in range(10)})
    stream_fails: str = ""
    mirrors_disks: bool = True
    migration_obstacle: str = ""
    """Why guests cannot run while they are sent from here."""
    migration_obstacles: list[str] = field(default_factory=list)
    """Why this node cannot receive a guest."""
    let_go_on: set[str] = field(default_factory=set)
    """Guests that came by a migration and have run here."""
    violations: list[str] = field(default_factory=list)
    """What must never happen, and did."""
    certificates: dict[str, str] = field(default_factory=dict)
    """Name of a key -> its certificate."""
    receiving: dict[str, ReceiveArgs] = field(default_factory=dict)
    wrong_hvparams: list[str] = field(default_factory=list)
    pinned_hvparams: dict[str, Any] = field(
        default_factory=lambda: {"machine_version": "pc-i440fx-7.2"}
    )
    agents: dict[str, AgentInfo] = field(default_factory=dict)
    figures: NodeFigures = field(default_factory=NodeFigures)
    histories: dict[str, HistoryPart] = field(default_factory=dict)
    """UUID of an instance, '' for the node -> its history, whatever the step."""
    """UUID of an instance -> what the agent in its guest says."""
    nvram: dict[str, bytes] = field(default_factory=dict)
    """UUID of an instance -> what only this node has."""
    call: Call = field(default_factory=Call)
    """The call that is being answered."""
    scripts_stay: bool = False
    """Whether create scripts go on although their call has been answered: it was given up."""
    scripts: dict[str, tuple[int, InstanceSpec]] = field(default_factory=dict)
    """Key -> epoch and instance, of scripts that run."""
    killed_scripts: set[str] = field(default_factory=set)
    ended_scripts: list[str] = field(default_factory=list)
    refuses_to_end: bool = False
    """Whether scripts resist being ended."""
    uid_conflicts: list[str] = field(default_factory=list)
    uids_in_use: list[int] = field(default_factory=list)
    installed: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Disk -> the OS that was put onto it, and the name that its system believes to have."""
    guests_may_have_vcpus: int = MOST_CPUS
    guests_may_have_memory: int = MOST_MEMORY_MIB
    hotplug_obstacles: list[str] = field(default_factory=list)
    declares_variants: bool = True
    """Whether OS definitions declare the variants that are asked for."""
    hypervisors: tuple[str, ...] = field(default_factory=lambda: tuple(HYPERVISORS))
    networked: tuple[str, ...] = field(default_factory=lambda: tuple(HYPERVISORS))
    """Hypervisors whose guests are on bridges of the host."""
    directories: dict[str, str] = field(
        default_factory=lambda: {"file": "/local", "sharedfile": "/shared"}
    )
    """Storage kind -> the directory that the administrator allows."""
    groups: dict[str, SharedDirectory] = field(default_factory=dict)
    """Volume groups by name."""
    pools: dict[str, SharedDirectory] = field(default_factory=dict)
    """Thin pools by group and name, `xenvg/thin`."""
    hooks: dict[tuple[str, Phase], list[HookResult] | Callable[[HooksArgs], list[HookResult]]] = (
        field(default_factory=dict)
    )
    oob_programs: dict[str, Callable[[OobArgs], CommandOutput]] = field(default_factory=dict)
    fenced_disks: set[tuple[str, str]] = field(default_factory=set)
    """Disks by UUID, and names of nodes whose writes their storage refuses, as this node has asked."""
    oob_ran: list[tuple[str, str]] = field(default_factory=list)
    fence_agents: dict[str, Callable[[FenceAgentArgs], CommandOutput]] = field(default_factory=dict)
    fence_agents_ran: list[FenceAgentArgs] = field(default_factory=list)
    restricted_commands: dict[str, CommandOutput] = field(default_factory=dict)
    runs_shell: bool = False
    hooks_ran: list[HooksArgs] = field(default_factory=list)
    uuid: str = ""
    register: MemoryRegister = field(init=False)
    grants: "MemoryRecords" = field(init=False)
    repeats: Repeats = field(default_factory=Repeats)
    progress: dict[str, Progress] = field(default_factory=dict)
    """Key of a call -> how far it is."""

    def __post_init__(self) -> None:
        promised = Promise(0, NodeUuid(""))
        self.register = MemoryRegister(Register(self.cluster_uuid, promised))
        self.grants = MemoryRecords(self.own_uuid)

    def own_uuid(self) -> NodeUuid:
        return NodeUuid(self.uuid)

    def restart_daemon(self) -> None:
        """What only the daemon knew is forgotten."""
        self.repeats = Repeats()

    def handlers(self) -> Handlers:
        """A handler for every procedure that has a method here."""
        names = _procedures_of(type(self))  # type: ignore[arg-type]  # a class is hashable, whatever its objects are
        answer = self._answer
        guards = guarded({name: partial(answer, PROCEDURES[name]) for name in names}, self.grants)
        return {
            name: partial(self._change, name, guards[name])
            if PROCEDURES[name].changes
            else guards[name]
            for name in names
        }

    async def _change(self, name: str, handler: Handler, args: Any, call: Call) -> Any:
        self._check_epoch(call)
        return await self.repeats.wrap({name: handler})[name](args, call)

    async def _answer(self, procedure: Procedure[Any, Any], args: Any, call: Call) -> Any:
        if seconds := self._seconds_of(procedure, args):
            await asyncio.sleep(seconds)
        self.call = call
        return getattr(self, f"on_{procedure.name}")(args)

    def _seconds_of(self, procedure: Procedure[Any, Any], args: Any) -> float:
        """Return how long the work of a call takes, whose effect happens at its end: here no time."""
        del procedure, args
        return 0.0

    def _check_epoch(self, call: Call) -> None:
        """As the node's register: only the latest master may change anything."""
        epoch, master = call.epoch, NodeUuid(call.master_uuid)
        if epoch <= 0 or not master:
            raise NotMaster("a changing call needs the epoch and the UUID of the master")
        answer = self.register.decide(lambda old: check_epoch(old, epoch, master))
        if not answer.granted:
            raise NotMaster(answer.reason)

    def _check_hypervisor(self, name: str) -> None:
        if name not in self.hypervisors:
            raise HypervisorError(f"this node has no hypervisor {name!r}")

    def _is_able(self, name: str) -> bool:
        """Whether a hypervisor has NVRAM, agents and screens."""
        self._check_hypervisor(name)
        return HYPERVISORS[name].runs_guests

    def _units(self, asked: Sequence[StorageUnit]) -> list[tuple[StorageUnit, SharedDirectory]]:
        places = {"file": self.local, "sharedfile": self.shared}
        found, groups = [], []
        for unit in asked:
            if unit.kind == THIN_POOL:
                groups += [(unit, self.pools[unit.key])] if unit.key in self.pools else []
            elif unit.kind != VOLUME_GROUP:
                if self._allows(unit.kind, unit.key):
                    found.append((unit, places[unit.kind]))
            elif unit.key in self.groups:
                groups.append((unit, self.groups[unit.key]))
        return found + groups

    def _allows(self, kind: str, path: str) -> bool:
        directory = self.directories.get(kind)
        return directory is not None and f"{path}/".startswith(f"{directory}/")
