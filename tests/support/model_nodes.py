"""Nodes for tests of the master: their disks and guests as plain data, behind the real procedures.

They keep the contracts of the drivers: every operation may be repeated, a start that fails leaves
nothing, and no end of a migration is removed while the guest runs there.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ganeti import __version__
from ganeti.base import certificates
from ganeti.base.errors import (
    ErrorCode,
    GuestOsError,
    HostError,
    HypervisorError,
    InputError,
    NotMaster,
    PrereqError,
    StorageError,
)
from ganeti.base.identifiers import interface_name, plain_name
from ganeti.guest_os.definitions import split_name
from ganeti.hypervisor.hotplug import (
    incoming_instance,
    with_disk,
    with_nic,
    without_disk,
    without_nic,
)
from ganeti.model.compression import check_compression
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.hooks import Phase
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.objects import NodeUuid
from ganeti.model.progress import Progress
from ganeti.model.recovery import GuestFault, Token
from ganeti.node.carrier.keys import check_key_name
from ganeti.node.grants import GrantRecords, guarded
from ganeti.node.repeats import Repeats
from ganeti.placement.answers import Settings, answer
from ganeti.placement.places import Rules
from ganeti.recovery.grants import CopyRecord
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures import PROCEDURES
from ganeti.rpc.procedures.agent import AgentInfo, Frozen, FrozenArgs
from ganeti.rpc.procedures.commands import (
    CommandOutput,
    FenceAgentArgs,
    FenceAgentsArgs,
    OobArgs,
    ProgramsArgs,
    RestrictedArgs,
    ShellArgs,
)
from ganeti.rpc.procedures.devices import (
    DeviceAction,
    DiskChangeArgs,
    MediumArgs,
    MediumResult,
    MemoryArgs,
    MemoryResult,
    NicChangeArgs,
)
from ganeti.rpc.procedures.disks import (
    DiskArgs,
    DiskInfo,
    DisksArgs,
    GrantsArgs,
    GrowDiskArgs,
    StorageUnits,
    StoredDisk,
)
from ganeti.rpc.procedures.files import NodeFile, SharedFiles, SsconfArgs
from ganeti.rpc.procedures.form import Nothing, Procedure
from ganeti.rpc.procedures.hardware import ForgetNvramArgs, Nvram, Screenshot, WriteNvramArgs
from ganeti.rpc.procedures.hooks import HookDirectory, HookResult, HooksArgs
from ganeti.rpc.procedures.host import (
    HypervisorsArgs,
    LeaveArgs,
    NodeInfo,
    NodeInfoArgs,
    NodeVersion,
    StorageSpace,
    VerifyArgs,
    VerifyReport,
)
from ganeti.rpc.procedures.host import TestDelayArgs as DelayArgs
from ganeti.rpc.procedures.instances import (
    ConsoleInfo,
    HvParamsArgs,
    InstanceArgs,
    RebootArgs,
    RunningInstance,
    ShutdownArgs,
    StartArgs,
)
from ganeti.rpc.procedures.mastership import MasterIpArgs, RegisterAnswer
from ganeti.rpc.procedures.migration import (
    FinishMigrationArgs,
    Incoming,
    IncomingArgs,
    MigrateArgs,
    MigrationInfo,
    MigrationResult,
)
from ganeti.rpc.procedures.networks import NicsArgs
from ganeti.rpc.procedures.power import PowercycleResult
from ganeti.rpc.procedures.programs import (
    AllocatorArgs,
    AllocatorOutput,
    OsCreateArgs,
    OsInfo,
    OsRenameArgs,
    OsValidateArgs,
    OsVerified,
    ScriptResult,
)
from ganeti.rpc.procedures.progress import ProgressArgs
from ganeti.rpc.procedures.recovery import HeartbeatArgs, HeartbeatResult, RelayArgs
from ganeti.rpc.procedures.stale_work import EndWorkArgs, EndWorkResult, UnfinishedWork
from ganeti.rpc.procedures.streams import (
    CopyArgs,
    ReceiveArgs,
    Receiving,
    SendArgs,
    StreamArgs,
    StreamResult,
    TransferCertificate,
    TransferKeyArgs,
)
from ganeti.rpc.procedures.uids import UidPoolArgs, UidPoolUse
from ganeti.ssconf import checksum
from ganeti.store.election import Vote, Voter
from ganeti.store.register import MemoryRegister, Promise, Register, check_epoch
from ganeti.uidpool import CheckUidPool
from tests.support.virtual_time import LoopClock

PORT = 8102
STREAM_PORT = 40100


@dataclass
class Guest:
    """One guest, or one end of its migration; the states are those of `RunningInstance`."""

    spec: InstanceSpec
    state: str = "running"
    runs_on: bool = True
    """Whether it goes on by itself after a migration."""


@dataclass
class SharedDirectory:
    """A directory that every node sees."""

    total: int = 100_000
    disks: dict[str, int] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    """UUID of the disk that a file says to be; one that says nothing is believed."""
    contents: dict[str, str] = field(default_factory=dict)
    """What was written to a disk, where a test has written anything."""

    @property
    def free(self) -> int:
        return self.total - sum(self.disks.values())

    def size_of(self, disk: DiskSpec) -> int | None:
        """What there is of a disk, in MiB; a file of another disk is none of it."""
        path = path_of(disk)
        return self.disks.get(path) if self.owners.get(path) in (None, disk.uuid) else None


def path_of(disk: DiskSpec) -> str:
    return str(disk.logical_id[1])


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
class ModelNode:
    """One node; `allocators` are the programs in its search path."""

    name: str
    cluster_uuid: str
    shared: SharedDirectory
    memory: int = 4096
    guests_keep_memory: bool = False
    """Guests without a balloon."""
    local: SharedDirectory = field(default_factory=SharedDirectory)
    guests: dict[str, Guest] = field(default_factory=dict)
    verify_says: str = ""
    """What the verify script of every definition prints."""
    oses: dict[str, str] = field(default_factory=lambda: {"tiny": "1.0"})
    wrong_osparams: set[tuple[str, str]] = field(default_factory=set)
    allocators: dict[str, Callable[[dict[str, Any]], AllocatorOutput]] = field(
        default_factory=lambda: {"hail": hail}
    )
    peers: "dict[str, ModelNode]" = field(default_factory=dict)
    ssconf_position: int = -1
    ssconf: dict[str, str] = field(default_factory=dict)
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
    hotplug_obstacles: list[str] = field(default_factory=list)
    declares_variants: bool = True
    """Whether OS definitions declare the variants that are asked for."""
    hypervisors: tuple[str, ...] = ("fake", "kvm")
    networked: tuple[str, ...] = ("fake", "kvm")
    """Hypervisors whose guests are on bridges of the host."""
    directories: dict[str, str] = field(
        default_factory=lambda: {"file": "/local", "sharedfile": "/shared"}
    )
    """Storage kind -> the directory that the administrator allows."""
    groups: dict[str, SharedDirectory] = field(default_factory=dict)
    """Volume groups by name."""
    hooks: dict[tuple[str, Phase], list[HookResult] | Callable[[HooksArgs], list[HookResult]]] = (
        field(default_factory=dict)
    )
    oob_programs: dict[str, Callable[[OobArgs], CommandOutput]] = field(default_factory=dict)
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
        answer = self._answer
        return {name: partial(answer, PROCEDURES[name]) for name in _procedures_of(type(self))}  # type: ignore[arg-type]  # a class is hashable, whatever its objects are

    async def _answer(self, procedure: Procedure[Any, Any], args: Any, call: Call) -> Any:
        async def handle(args: Any, call: Call) -> Any:
            self.call = call
            return getattr(self, f"on_{procedure.name}")(args)

        if procedure.changes:
            self._check_epoch(call)
        name = procedure.name
        checked = guarded({name: handle}, self.grants)
        return await self.repeats.wrap(checked)[name](args, call)

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
        return name == "kvm"

    # --- the node itself ---

    def on_oob_run(self, args: OobArgs) -> CommandOutput:
        self.oob_ran.append((args.command, args.node_name))
        if args.program not in self.oob_programs:
            raise HostError(f"out-of-band program {args.program}: No such file or directory")
        return self.oob_programs[args.program](args)

    def on_oob_problems(self, args: ProgramsArgs) -> dict[str, str]:
        return {
            one: "No such file or directory"
            for one in args.programs
            if one not in self.oob_programs
        }

    def on_fence_agent_run(self, args: FenceAgentArgs) -> CommandOutput:
        if args.agent not in self.fence_agents:
            raise HostError(f"fence agent {args.agent}: it is not installed")
        self.fence_agents_ran.append(args)
        return self.fence_agents[args.agent](args)

    def on_fence_agent_problems(self, args: FenceAgentsArgs) -> dict[str, str]:
        return {one: "it is not installed" for one in args.agents if one not in self.fence_agents}

    def on_restricted_command(self, args: RestrictedArgs) -> CommandOutput:
        if args.command not in self.restricted_commands:
            raise HostError("this node does not run that command; the reason is in its log")
        return self.restricted_commands[args.command]

    def on_shell_command(self, args: ShellArgs) -> CommandOutput:
        if not self.runs_shell:
            raise PrereqError("this node does not run shell command lines", ErrorCode.WRONG_STATE)
        return CommandOutput(status=0, stdout=args.line)

    def on_hooks_list(self, args: Nothing) -> list[HookDirectory]:
        return [HookDirectory(hook=hook, phase=phase) for hook, phase in sorted(self.hooks)]

    def on_hooks_run(self, args: HooksArgs) -> list[HookResult]:
        self.hooks_ran.append(args)
        found = self.hooks[args.hook, args.phase]
        return found(args) if callable(found) else found

    def on_version(self, args: Nothing) -> NodeVersion:
        return NodeVersion(
            software=__version__,
            protocol=1,
            node_name=self.name,
            cluster_uuid="" if self.left else self.cluster_uuid,
        )

    def on_node_info(self, args: NodeInfoArgs) -> NodeInfo:
        used = sum(guest.spec.memory for guest in self.guests.values())
        return NodeInfo(
            memory_total=self.memory,
            memory_free=self.memory - used,
            memory_node=0,
            cpu_total=4,
            cpu_nodes=1,
            cpu_sockets=1,
            cpu_node=0,
            boot_id=self.boot_id,
            time=self.time,
            storage=[
                StorageSpace(unit=unit, total=place.total, free=place.free)
                for unit, place in self._units(args.storage)
            ],
            hypervisor_versions={
                name: "0" if name in self.hypervisors else "" for name in args.hypervisors
            },
        )

    def on_node_verify(self, args: VerifyArgs) -> VerifyReport:
        return VerifyReport(
            software=__version__,
            protocol=1,
            time=self.time,
            hypervisor_problems={
                name: [] if name in self.hypervisors else [f"this node has no hypervisor {name}"]
                for name in args.hypervisors
            },
            storage_problems=[
                f"lvm-vg storage: there is no volume group {unit.key}"
                for unit in args.storage
                if unit.kind == "lvm-vg" and unit.key not in self.groups
            ],
            connection_problems={},
            certificate_not_after=self.time + 1e9,
            ssconf_position=self.ssconf_position,
            writable_problems=[],
            ssconf_checksum=checksum(self.ssconf) if self.ssconf else "",
            file_checksums={
                path: hashlib.sha256(self.files[path].content).hexdigest()
                for path in args.files
                if path in self.files
            },
        )

    def on_leave_cluster(self, args: LeaveArgs) -> Nothing:
        if args.cluster_uuid != self.cluster_uuid:
            raise PrereqError(f"not in {args.cluster_uuid}", ErrorCode.WRONG_STATE)
        self.left = True
        return Nothing()

    def on_write_ssconf(self, args: SsconfArgs) -> Nothing:
        if args.position < self.ssconf_position:
            raise PrereqError("the set is older than the one here", ErrorCode.WRONG_STATE)
        self.ssconf_position, self.ssconf = args.position, args.values
        return Nothing()

    def on_register_read(self, args: Nothing) -> RegisterAnswer:
        register = self.register.read()
        assert register is not None
        voter = Voter(older_calls=tuple(self.older_calls))
        return RegisterAnswer(vote=Vote(True, register, voter=voter))

    def on_shared_files(self, args: Any) -> SharedFiles:
        return SharedFiles(files=self.shared_files, problems=[])

    def on_write_file(self, args: NodeFile) -> Nothing:
        parts = args.path.split("/")
        if parts[0] or len(parts) == 1 or any(part in ("", ".", "..") for part in parts[1:]):
            raise PrereqError(f"{args.path} is not a plain path", ErrorCode.WRONG_INPUT)
        if args.path in self.forbidden_files:
            raise PrereqError(f"not allowed: {args.path}", ErrorCode.WRONG_STATE)
        self.files[args.path] = args
        return Nothing()

    def on_master_ip_up(self, args: MasterIpArgs) -> Nothing:
        if args.netdev:
            check_address(args)
            self.has_master_ip = True
        return Nothing()

    def on_master_ip_down(self, args: MasterIpArgs) -> Nothing:
        if args.netdev:
            check_address(args)
            self.has_master_ip = False
        return Nothing()

    def _units(self, asked: Sequence[StorageUnit]) -> list[tuple[StorageUnit, SharedDirectory]]:
        places = {"file": self.local, "sharedfile": self.shared}
        found = [(unit, places[unit.kind]) for unit in asked if self._allows(unit.kind, unit.key)]
        groups = [unit for unit in asked if unit.kind == "lvm-vg" and unit.key in self.groups]
        return found + [(unit, self.groups[unit.key]) for unit in groups]

    def _allows(self, kind: str, path: str) -> bool:
        directory = self.directories.get(kind)
        return directory is not None and f"{path}/".startswith(f"{directory}/")

    def on_stored_disks(self, args: StorageUnits) -> list[StoredDisk]:
        return [
            StoredDisk(unit=unit, name=path, size=size)
            for unit, place in self._units(args.units)
            for path, size in sorted(place.disks.items())
        ]

    def on_node_powercycle(self, args: Nothing) -> PowercycleResult:
        self._check_epoch(self.call)
        self.restarts += 1
        return PowercycleResult(delay_s=5)

    def on_heartbeat(self, args: HeartbeatArgs) -> HeartbeatResult:
        self._check_epoch(self.call)
        self.beats.append(args)
        return HeartbeatResult(
            token=Token(self.boot_id, self.time),
            is_armed=not self.why_unarmed,
            why_unarmed=self.why_unarmed,
            faults={one: fault for one, fault in self.faults.items() if one in args.wanted},
        )

    def on_relay_heartbeat(self, args: RelayArgs) -> HeartbeatResult:
        target = self.peers.get(args.node.name)
        if target is None or target.is_off:
            raise HostError(f"node {args.node.name}: no answer")
        target.call = self.call
        return target.on_heartbeat(args.heartbeat)

    def on_test_delay(self, args: DelayArgs) -> Nothing:
        if args.duration_s < 0:
            raise InputError("must not be negative", "duration_s")
        return Nothing()

    # --- disks ---

    def _place(self, disk: DiskSpec) -> SharedDirectory:
        if disk.template == "plain":
            return self.groups[str(disk.logical_id[0])]
        if not self._allows(disk.template, path_of(disk)):
            raise StorageError(f"{path_of(disk)} is not below a directory that this node allows")
        return self.shared if disk.template == "sharedfile" else self.local

    def on_blockdev_create(self, args: DiskArgs) -> DiskInfo:
        disk, path, place = args.disk, path_of(args.disk), self._place(args.disk)
        if disk.size <= 0:
            raise StorageError(f"{disk.size} MiB is not a size")
        if path in place.disks and place.size_of(disk) != disk.size:
            raise StorageError(f"{path}: something else is there")
        if path not in place.disks and disk.size > place.free:
            raise StorageError(f"{path}: no space left on device")
        place.disks[path] = disk.size
        place.owners[path] = disk.uuid
        place.contents.setdefault(path, "")
        return DiskInfo(exists=True, path=path, size=disk.size)

    def on_blockdev_remove(self, args: DiskArgs) -> Nothing:
        for key, (_epoch, spec) in self.scripts.items():
            if args.disk.logical_id in [disk.logical_id for disk in spec.disks]:
                raise AssertionError(f"{self.name}: script {key} lost a disk under its hands")
        path, place = path_of(args.disk), self._place(args.disk)
        if place.size_of(args.disk) is not None:
            del place.disks[path]
            place.owners.pop(path, None)
            place.contents.pop(path, None)
        return Nothing()

    def on_transfer_key_create(self, args: TransferKeyArgs) -> TransferCertificate:
        name = check_key_name(args.key_name)
        made = certificates.for_transfer(certificates.new_key(), name, LoopClock().time())
        return TransferCertificate(certificate=self.certificates.setdefault(name, made.decode()))

    def on_transfer_key_remove(self, args: TransferKeyArgs) -> Nothing:
        self.certificates.pop(check_key_name(args.key_name), None)
        return Nothing()

    def on_stream_receive(self, args: ReceiveArgs) -> Receiving:
        self._check_key(args.key_name)
        assert args.disk is not None
        self._check_disk(args.disk.instance.disks[args.disk.index])
        self.receiving[args.token] = args
        return Receiving(port=STREAM_PORT, sealed=not args.sha256, inflates=True)

    def on_stream_send(self, args: SendArgs) -> StreamResult:
        check_compression(args.pack, "pack")
        wanted = self._called(args).receiving.pop(args.token)
        assert args.disk is not None
        assert wanted.disk is not None
        source, target = (one.instance.disks[one.index] for one in (args.disk, wanted.disk))
        return self._copied(args.instance_name, source, self.peers[args.address], target)

    def _called(self, args: SendArgs) -> "ModelNode":
        """The receiver, which waits for this sender; both have the other's certificate."""
        self._check_key(args.key_name)
        receiver = self.peers[args.address]
        wanted = receiver.receiving.get(args.token)
        if self.stream_fails or wanted is None or args.port != STREAM_PORT:
            raise HostError(self.stream_fails or "nobody listens")
        shown = receiver.certificates[wanted.key_name], self.certificates[args.key_name]
        if (args.peer, wanted.peer) != shown:
            raise HostError("the other end's certificate is another one")
        if args.pack != wanted.unpack and None not in (args.disk, wanted.disk):
            raise HostError("the sender's data has a different format")
        return receiver

    def on_stream_copy(self, args: CopyArgs) -> StreamResult:
        if self.stream_fails:
            raise HostError(self.stream_fails)
        return self._copied(args.instance_name, args.source, self, args.target)

    def _copied(
        self, name: str, source: DiskSpec, receiver: "ModelNode", target: DiskSpec
    ) -> StreamResult:
        self._check_disk(source)
        receiver._check_disk(target)
        if any(guest.spec.name == name for guest in self.guests.values()):
            self.violations.append(f"a disk of {name} is copied while it runs")
        data = self._place(source).contents.get(path_of(source), "")
        receiver._place(target).contents[path_of(target)] = data
        return StreamResult(data_bytes=source.size, seconds=0.1)

    def on_stream_end(self, args: StreamArgs) -> Nothing:
        if args.receives:
            self.receiving.pop(args.token, None)
        return Nothing()

    def _check_key(self, name: str) -> None:
        if name not in self.certificates:
            raise HostError(f"this node has no key {name}")

    def on_call_progress(self, args: ProgressArgs) -> Progress | None:
        return self.progress.get(args.key)

    def _copy_to(self, receiver: "ModelNode", disk: DiskSpec) -> None:
        path = str(disk.logical_id[1])
        receiver.local.contents[path] = self.local.contents.get(path, "")

    def _check_disk(self, disk: DiskSpec) -> None:
        """Whether it is there, whole, and itself."""
        size = self._place(disk).size_of(disk)
        if size is None or size < disk.size:
            raise StorageError(f"disk {path_of(disk)} is not there, or not whole")

    def on_blockdev_info(self, args: DiskArgs) -> DiskInfo:
        path = path_of(args.disk)
        try:
            size = self._place(args.disk).size_of(args.disk)
        except StorageError as err:
            return DiskInfo(exists=False, problem=err.message)
        if size is None:
            return DiskInfo(exists=False, path=path)
        problem = "" if size >= args.disk.size else f"has {size} MiB"
        return DiskInfo(exists=True, path=path, size=size, problem=problem)

    def on_disks_info(self, args: DisksArgs) -> list[DiskInfo]:
        return [self.on_blockdev_info(disk) for disk in args.disks]

    def on_blockdev_grow(self, args: GrowDiskArgs) -> DiskInfo:
        self._check_disk(args.disk)
        path, place = path_of(args.disk), self._place(args.disk)
        if args.size - place.disks[path] > place.free:
            raise StorageError(f"{path}: no space left on device")
        place.disks[path] = max(args.size, place.disks[path])
        return DiskInfo(exists=True, path=path, size=args.size)

    def on_blockdev_assemble(self, args: DiskArgs) -> DiskInfo:
        self._check_disk(args.disk)
        return DiskInfo(exists=True, path=path_of(args.disk), size=args.disk.size)

    def on_disk_grants(self, args: GrantsArgs) -> Nothing:
        raise AssertionError("answered by `guarded`")

    def on_blockdev_shutdown(self, args: DiskArgs) -> Nothing:
        return Nothing()

    def _check_disks(self, spec: InstanceSpec) -> None:
        for disk in spec.disks:
            self._check_disk(disk)

    # --- OS definitions and allocators ---

    def on_os_diagnose(self, args: Nothing) -> list[OsInfo]:
        return [
            OsInfo(
                name=name,
                path=f"/os/{name}",
                problem="",
                api_versions=[20],
                variants=[],
                parameters=[],
                version=version,
                scripts=["create", "rename"],
            )
            for name, version in sorted(self.oses.items())
        ]

    def on_os_validate(self, args: OsValidateArgs) -> OsVerified:
        name, _variant = split_name(args.os)
        if name not in self.oses and args.are_defaults:
            return OsVerified()
        self._check_os(args.os, force_variant=args.force_variant)
        if wrong := self.wrong_osparams & args.osparams.items():
            raise GuestOsError(f"the script verify refuses {wrong}")
        return OsVerified(said=self.verify_says)

    def _check_os(self, os: str, *, force_variant: bool = False) -> None:
        name, variant = split_name(os)
        declared = force_variant or self.declares_variants
        if name not in self.oses or (variant and not declared):
            raise GuestOsError(f"there is no OS definition {os}")

    def _check_script(self, instance: InstanceSpec) -> None:
        """Whether a script for an instance's disks may begin."""
        self._check_disks(instance)
        if not self.call.key:
            raise InputError("a call that runs a script needs a key", "key")
        if self.call.key in self.killed_scripts:
            raise GuestOsError(f"{self.call.key} was ended by signal 15")
        if self.call.key in self.ended_scripts:
            raise HostError(f"{self.call.key} was ended before it began")

    def on_os_create(self, args: OsCreateArgs) -> ScriptResult:
        self._check_script(args.instance)
        self._check_os(args.os, force_variant=args.force_variant)
        if self.scripts_stay:
            self.scripts[self.call.key] = self.call.epoch, args.instance
        for disk in args.instance.disks:
            self.installed[disk.uuid] = (args.os, args.instance.name)
        return ScriptResult(tail="installed", log_path="/log")

    def on_end_stale_work(self, args: EndWorkArgs) -> EndWorkResult:
        self._check_epoch(self.call)
        chosen = {
            key
            for key, (epoch, _spec) in self.scripts.items()
            if key in args.keys or (args.older and epoch < self.call.epoch)
        }
        if self.refuses_to_end:
            left = [
                UnfinishedWork(what=f"task {key}", instance=self.scripts[key][1].name)
                for key in sorted(chosen)
            ]
            return EndWorkResult(ended=[], unfinished=left)
        for key in chosen:
            del self.scripts[key]
        self.killed_scripts |= chosen
        self.ended_scripts += sorted({*chosen, *args.keys})
        return EndWorkResult(ended=[f"task {key}" for key in sorted(chosen)], unfinished=[])

    def on_os_rename(self, args: OsRenameArgs) -> ScriptResult:
        self._check_script(args.instance)
        self._check_os(args.os, force_variant=True)
        if self.rename_script_fails:
            raise GuestOsError(self.rename_script_fails)
        for disk in args.instance.disks:
            self.installed[disk.uuid] = (args.os, args.instance.name)
        return ScriptResult(tail=f"renamed from {args.old_name}", log_path="/log")

    def on_allocator_run(self, args: AllocatorArgs) -> AllocatorOutput:
        plain_name(args.name, "iallocator")
        if wrong := [option for option in args.options if not option.startswith("--")]:
            raise InputError(f"{wrong} are no options", "options")
        program = self.allocators.get(args.name)
        return program(json.loads(args.message)) if program else AllocatorOutput(found=False)

    # --- guests ---

    def _running(self, guest: Guest) -> RunningInstance:
        return RunningInstance(
            name=guest.spec.name,
            uuid=guest.spec.uuid,
            hypervisor=guest.spec.hypervisor,
            memory=guest.spec.memory,
            vcpus=guest.spec.vcpus,
            state=guest.state,
            cpu_time_s=0.0,
        )

    def on_instances_info(self, args: HypervisorsArgs) -> list[RunningInstance]:
        for name in args.hypervisors:
            self._check_hypervisor(name)
        return [
            self._running(guest)
            for guest in self.guests.values()
            if guest.spec.hypervisor in args.hypervisors
        ]

    def on_instance_info(self, args: InstanceArgs) -> RunningInstance | None:
        self._check_hypervisor(args.instance.hypervisor)
        guest = self.guests.get(args.instance.uuid)
        return self._running(guest) if guest else None

    def on_instance_start(self, args: StartArgs) -> Nothing:
        self._check_may_start()
        self._check_hypervisor(args.instance.hypervisor)
        self._check_disks(args.instance)
        if self.refuses_start:
            raise HypervisorError(self.refuses_start)
        guest = self.guests.get(args.instance.uuid)
        if guest and guest.state in ("incoming", "postmigrate"):
            raise HypervisorError(f"{args.instance.name} is in an unfinished migration")
        if guest is None or guest.state != "running":
            state = "paused" if args.paused else "running"
            self.guests[args.instance.uuid] = Guest(args.instance, state)
        return Nothing()

    def _check_may_start(self) -> None:
        if self.name in self.ssconf.get("offline_nodes", "").split():
            raise PrereqError("this node is marked offline", ErrorCode.WRONG_STATE)

    def on_instance_shutdown(self, args: ShutdownArgs) -> Nothing:
        self._check_hypervisor(args.instance.hypervisor)
        self.guests.pop(args.instance.uuid, None)
        return Nothing()

    def on_instance_reboot(self, args: RebootArgs) -> Nothing:
        self._check_may_start()
        if args.reboot_type not in ("soft", "hard"):
            raise InputError(f"{args.reboot_type} is neither soft nor hard", "reboot_type")
        guest = self._here(args.instance)
        if guest.state in ("incoming", "postmigrate"):
            raise HypervisorError(f"{args.instance.name} is in an unfinished migration")
        guest.state = "running"
        return Nothing()

    def on_instance_console(self, args: InstanceArgs) -> ConsoleInfo:
        self._here(args.instance)
        return ConsoleInfo(kind="msg", message=f"{args.instance.name} has no console")

    def on_nics_check(self, args: NicsArgs) -> list[str]:
        self._check_hypervisor(args.hypervisor)
        if args.hypervisor not in self.networked:
            return []
        return [
            f"NIC {nic.index}: the bridge {nic.link!r} does not exist"
            for nic in args.nics
            if nic.mode == "bridged" and nic.link not in self.bridges
        ]

    def on_uid_pool_use(self, args: UidPoolArgs) -> UidPoolUse:
        pool = CheckUidPool(args.uid_pool)
        asked = {uid for low, high in pool for uid in range(low, high + 1)}
        in_use = [uid for uid in self.uids_in_use if uid in asked]
        return UidPoolUse(conflicts=self.uid_conflicts, in_use=in_use)

    def on_validate_hvparams(self, args: HvParamsArgs) -> list[str]:
        self._check_hypervisor(args.hypervisor)
        return self.wrong_hvparams

    def on_pinned_hvparams(self, args: HvParamsArgs) -> dict[str, Any]:
        return dict(self.pinned_hvparams) if self._is_able(args.hypervisor) else {}

    def on_instance_screenshot(self, args: InstanceArgs) -> Screenshot:
        self._check_able(args.instance)
        return Screenshot(png=f"screen of {self._here(args.instance).spec.name}".encode())

    def on_agent_info(self, args: InstanceArgs) -> AgentInfo | None:
        return self.agents.get(args.instance.uuid)

    def _check_able(self, instance: InstanceSpec) -> None:
        if not self._is_able(instance.hypervisor):
            raise HypervisorError(f"instances of {instance.hypervisor} have nothing like that")

    def on_agent_freeze(self, args: FrozenArgs) -> Frozen:
        self._check_able(args.instance)
        self._here(args.instance)
        return Frozen(file_systems=1)

    def on_agent_thaw(self, args: InstanceArgs) -> Frozen:
        self._check_able(args.instance)
        return Frozen(file_systems=int(args.instance.uuid in self.guests))

    def on_nvram_read(self, args: InstanceArgs) -> Nvram:
        return Nvram(content=self.nvram.get(args.instance.uuid))

    def on_nvram_write(self, args: WriteNvramArgs) -> Nothing:
        self._check_able(args.instance)
        self.nvram[args.instance.uuid] = args.content
        return Nothing()

    def on_nvram_forget(self, args: ForgetNvramArgs) -> Nothing:
        self.nvram.pop(args.instance.uuid, None)
        return Nothing()

    def _here(self, spec: InstanceSpec) -> Guest:
        self._check_hypervisor(spec.hypervisor)
        if spec.uuid not in self.guests:
            raise HypervisorError(f"{spec.name} does not run on this node")
        return self.guests[spec.uuid]

    # --- running guests that change ---

    def on_hotplug_obstacles(self, args: InstanceArgs) -> list[str]:
        if args.instance.hypervisor not in self.hypervisors:
            return [f"hypervisor {args.instance.hypervisor} cannot change running guests"]
        return self.hotplug_obstacles if args.instance.uuid in self.guests else []

    def on_hotplug_disk(self, args: DiskChangeArgs) -> Nothing:
        if args.action is DeviceAction.MODIFY:
            raise InputError("a disk is not modified", "action")
        if args.action is DeviceAction.ADD:
            self._check_disk(args.disk)
        if guest := self.guests.get(args.instance.uuid):
            if args.action is DeviceAction.REMOVE:
                guest.spec = without_disk(guest.spec, args.disk.uuid)
            else:
                guest.spec = with_disk(guest.spec, args.disk)
        return Nothing()

    def on_hotplug_nic(self, args: NicChangeArgs) -> Nothing:
        if args.action is DeviceAction.GROW:
            raise InputError("a NIC does not grow", "action")
        if guest := self.guests.get(args.instance.uuid):
            if args.action is DeviceAction.REMOVE:
                guest.spec = without_nic(guest.spec, args.nic.uuid)
            else:
                guest.spec = with_nic(guest.spec, args.nic)
        return Nothing()

    def on_hotplug_medium(self, args: MediumArgs) -> MediumResult:
        self._check_hypervisor(args.instance.hypervisor)
        if guest := self.guests.get(args.instance.uuid):
            if not guest.spec.hvparams.get(args.drive):
                return MediumResult(is_changed=False)
            image = args.instance.hvparams.get(args.drive) or "empty"
            guest.spec = replace(guest.spec, hvparams={**guest.spec.hvparams, args.drive: image})
        return MediumResult(is_changed=True)

    def on_instance_memory(self, args: MemoryArgs) -> MemoryResult:
        self._check_hypervisor(args.instance.hypervisor)
        guest = self.guests.get(args.instance.uuid)
        if guest is None:
            return MemoryResult(memory=0)
        if not self.guests_keep_memory:
            guest.spec = replace(guest.spec, memory=args.memory)
        return MemoryResult(memory=guest.spec.memory)

    # --- migration ---

    def on_migration_info(self, args: InstanceArgs) -> MigrationInfo:
        guest = self._here(args.instance)
        is_running = guest.state == "running"
        return MigrationInfo(
            instance=guest.spec, running=is_running, mirrors_disks=self.mirrors_disks
        )

    def on_migration_accept(self, args: IncomingArgs) -> Incoming:
        self._check_may_start()
        uuid = args.instance.uuid
        spec = incoming_instance(args.instance, args.info.instance)
        self._check_disks(spec)
        if uuid in self.guests and self.guests[uuid].state != "incoming":
            raise HypervisorError(f"{args.instance.name} is on this node already")
        if uuid not in self.guests:
            self.guests[uuid] = Guest(spec, "incoming", runs_on=args.info.running)
            self.let_go_on.discard(uuid)
        disks_port = STREAM_PORT if args.copies_disks else 0
        return Incoming(address=args.address, port=PORT, disks_port=disks_port, certificate="pem")

    def on_migration_run(self, args: MigrateArgs) -> MigrationResult:
        guest = self._here(args.instance)
        if guest.state == "incoming":
            raise HypervisorError(f"{args.instance.name} has not arrived on this node yet")
        target = self.peers[args.address].guests.get(args.instance.uuid)
        problem = self.migration_fails or ("" if target else "connection refused")
        if problem:
            return MigrationResult(
                status="failed", total_ms=0, downtime_ms=0, transferred=0, error=problem
            )
        if args.disks_port:
            for disk in args.instance.disks:
                self._copy_to(self.peers[args.address], disk)
        if guest.state != "postmigrate":
            guest.runs_on = guest.state == "running"
            # Where the guest went on after an earlier migration, it went on from another state.
            for node in (self, *self.peers.values()):
                node.let_go_on.discard(args.instance.uuid)
        guest.state = "postmigrate"
        return MigrationResult(status="completed", total_ms=9, downtime_ms=1, transferred=4096)

    def on_migration_finish_source(self, args: FinishMigrationArgs) -> Nothing:
        self._check_hypervisor(args.instance.hypervisor)
        guest = self.guests.get(args.instance.uuid)
        if args.success:
            if guest and guest.state != "postmigrate":
                raise HypervisorError(f"{args.instance.name} still runs here; not ended")
            self.guests.pop(args.instance.uuid, None)
        elif guest is None:
            raise HypervisorError(f"{args.instance.name} is gone from the node that keeps it")
        elif guest.state == "postmigrate":
            if any(args.instance.uuid in peer.let_go_on for peer in self.peers.values()):
                self.violations.append(f"{args.instance.name} goes on from a state of the past")
            guest.state = "running" if guest.runs_on else "paused"
        return Nothing()

    def on_migration_finish_target(self, args: FinishMigrationArgs) -> Nothing:
        guest = self.guests.get(args.instance.uuid)
        if args.success:
            if guest is None:
                raise HypervisorError(f"{args.instance.name} did not arrive here")
            if guest.state == "incoming":
                self._check_arrived(args.instance)
                self.let_go_on.add(args.instance.uuid)
                guest.state = "running" if guest.runs_on else "paused"
        elif guest and guest.state != "incoming":
            raise HypervisorError(f"{args.instance.name} runs here; not ended")
        else:
            self.guests.pop(args.instance.uuid, None)
        return Nothing()

    def _check_arrived(self, spec: InstanceSpec) -> None:
        ends = (peer.guests.get(spec.uuid) for peer in self.peers.values() if peer is not self)
        if not any(end and end.state == "postmigrate" for end in ends):
            raise HypervisorError("the guest has not arrived here")


def check_address(args: MasterIpArgs) -> None:
    """Refuse what no host could have as an address."""
    interface_name(args.netdev, "netdev")
    try:
        ip_interface(f"{args.address}/{args.netmask}")
    except ValueError as err:
        raise PrereqError(str(err), ErrorCode.WRONG_INPUT) from err
    if not args.netmask:
        raise PrereqError("0 is not a netmask's length", ErrorCode.WRONG_INPUT)
