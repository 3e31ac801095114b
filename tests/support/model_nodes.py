"""Nodes for tests of the master: their disks and guests as plain data, behind the real procedures.

They keep the contracts of the drivers: every operation may be repeated, a start that fails leaves
nothing, and no end of a migration is removed while the guest runs there.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ganeti import __version__
from ganeti.base.errors import (
    ErrorCode,
    GuestOsError,
    HypervisorError,
    PrereqError,
    StorageError,
)
from ganeti.hypervisor.hotplug import (
    incoming_instance,
    with_disk,
    with_nic,
    without_disk,
    without_nic,
)
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.objects import NodeUuid
from ganeti.placement.answers import Settings, answer
from ganeti.placement.places import Rules
from ganeti.rpc.calls import Call, Handler, Handlers
from ganeti.rpc.procedures.agent import AgentInfo, Frozen, FrozenArgs
from ganeti.rpc.procedures.devices import (
    DiskChangeArgs,
    MediumArgs,
    MediumResult,
    MemoryArgs,
    MemoryResult,
    NicChangeArgs,
)
from ganeti.rpc.procedures.disks import DiskArgs, DiskInfo, GrowDiskArgs, StorageUnits, StoredDisk
from ganeti.rpc.procedures.earlier import EndWorkArgs, EndWorkResult, UnfinishedWork
from ganeti.rpc.procedures.files import NodeFile, SharedFiles, SsconfArgs
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.hardware import ForgetNvramArgs, Nvram, Screenshot, WriteNvramArgs
from ganeti.rpc.procedures.host import NodeInfo, NodeVersion, StorageSpace, VerifyReport
from ganeti.rpc.procedures.instances import (
    ConsoleInfo,
    HvParamsArgs,
    InstanceArgs,
    RunningInstance,
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
    ScriptResult,
)
from ganeti.rpc.procedures.transfers import (
    DiskListenArgs,
    DiskListening,
    DiskProgress,
    DiskProgressArgs,
    DiskSendArgs,
    DiskSent,
)
from ganeti.rpc.procedures.uids import UidPoolArgs, UidPoolUse
from ganeti.ssconf import checksum
from ganeti.store.election import Vote, Voter
from ganeti.store.register import Promise, Register

PORT = 8102
COPY_PORT = 40100


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
    contents: dict[str, str] = field(default_factory=dict)
    """What was written to a disk, where a test has written anything."""

    @property
    def free(self) -> int:
        return self.total - sum(self.disks.values())


def hail(message: dict[str, Any]) -> AllocatorOutput:
    """The built-in allocator, as its script answers."""
    return AllocatorOutput(
        found=True, stdout=json.dumps(answer(message, Settings(Rules(capacity=False))))
    )


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
    oses: dict[str, str] = field(default_factory=lambda: {"tiny": "1.0"})
    wrong_osparams: set[tuple[str, str]] = field(default_factory=set)
    allocators: dict[str, Callable[[dict[str, Any]], AllocatorOutput]] = field(
        default_factory=lambda: {"hail": hail}
    )
    peers: "dict[str, ModelNode]" = field(default_factory=dict)
    ssconf_position: int = 0
    ssconf: dict[str, str] = field(default_factory=dict)
    files: dict[str, NodeFile] = field(default_factory=dict)
    shared_files: list[NodeFile] = field(default_factory=list)
    forbidden_files: set[str] = field(default_factory=set)
    has_master_ip: bool = False
    older_calls: list[str] = field(default_factory=list)
    time: float = 0.0
    left: bool = False
    refuses_start: str = ""
    migration_fails: str = ""
    rename_script_fails: str = ""
    restarts: int = 0
    bridges: set[str] = field(default_factory=lambda: {f"br{number}" for number in range(10)})
    copy_fails: str = ""
    mirrors_disks: bool = True
    let_go_on: set[str] = field(default_factory=set)
    """Guests that came by a migration and have run here."""
    violations: list[str] = field(default_factory=list)
    """What must never happen, and did."""
    listening: dict[str, DiskListenArgs] = field(default_factory=dict)
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
    ended_scripts: list[str] = field(default_factory=list)
    refuses_to_end: bool = False
    """Whether scripts resist being ended."""
    uid_conflicts: list[str] = field(default_factory=list)
    uids_in_use: list[int] = field(default_factory=list)
    installed: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Disk -> the OS that was put onto it, and the name that its system believes to have."""
    hotplug_obstacles: list[str] = field(default_factory=list)

    def handlers(self) -> Handlers:
        """A handler for every procedure that has a method here."""
        found: dict[str, Handler] = {}
        for name in dir(self):
            if name.startswith("on_"):
                found[name.removeprefix("on_")] = self._handler(getattr(self, name))
        return found

    def _handler(self, act: Callable[[Any], Any]) -> Handler:
        async def handle(args: Any, call: Call) -> Any:
            self.call = call
            return act(args)

        return handle

    # --- the node itself ---

    def on_version(self, args: Nothing) -> NodeVersion:
        return NodeVersion(
            software=__version__, protocol=1, node_name=self.name, cluster_uuid=self.cluster_uuid
        )

    def on_node_info(self, args: Any) -> NodeInfo:
        used = sum(guest.spec.memory for guest in self.guests.values())
        return NodeInfo(
            memory_total=self.memory,
            memory_free=self.memory - used,
            memory_node=0,
            cpu_total=4,
            cpu_nodes=1,
            cpu_sockets=1,
            cpu_node=0,
            boot_id="boot",
            time=self.time,
            storage=[
                StorageSpace(unit=unit, total=place.total, free=place.free)
                for unit, place in self._units().items()
            ],
            hypervisor_versions={"fake": "0"},
        )

    def on_node_verify(self, args: Any) -> VerifyReport:
        return VerifyReport(
            software=__version__,
            protocol=1,
            time=self.time,
            hypervisor_problems={},
            storage_problems=[],
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

    def on_leave_cluster(self, args: Any) -> Nothing:
        self.left = True
        return Nothing()

    def on_write_ssconf(self, args: SsconfArgs) -> Nothing:
        self.ssconf_position, self.ssconf = args.position, args.values
        return Nothing()

    def on_register_read(self, args: Nothing) -> RegisterAnswer:
        register = Register(self.cluster_uuid, Promise(1, NodeUuid("")))
        voter = Voter(older_calls=tuple(self.older_calls))
        return RegisterAnswer(vote=Vote(True, register, voter=voter))

    def on_shared_files(self, args: Any) -> SharedFiles:
        return SharedFiles(files=self.shared_files, problems=[])

    def on_write_file(self, args: NodeFile) -> Nothing:
        if args.path in self.forbidden_files:
            raise PrereqError(f"not allowed: {args.path}", ErrorCode.WRONG_STATE)
        self.files[args.path] = args
        return Nothing()

    def on_master_ip_up(self, args: MasterIpArgs) -> Nothing:
        self.has_master_ip = bool(args.netdev)
        return Nothing()

    def on_master_ip_down(self, args: MasterIpArgs) -> Nothing:
        self.has_master_ip = False
        return Nothing()

    def _units(self) -> dict[StorageUnit, SharedDirectory]:
        return {
            StorageUnit(kind="file", key="/local"): self.local,
            StorageUnit(kind="sharedfile", key="/shared"): self.shared,
        }

    def on_stored_disks(self, args: StorageUnits) -> list[StoredDisk]:
        return [
            StoredDisk(unit=unit, name=path, size=size)
            for unit, place in self._units().items()
            if unit in args.units
            for path, size in place.disks.items()
        ]

    def on_node_powercycle(self, args: Nothing) -> PowercycleResult:
        self.restarts += 1
        return PowercycleResult(delay_s=5)

    def on_test_delay(self, args: Any) -> Nothing:
        return Nothing()

    # --- disks ---

    def _place(self, disk: DiskArgs) -> SharedDirectory:
        return self.shared if disk.disk.template == "sharedfile" else self.local

    def on_blockdev_create(self, args: DiskArgs) -> DiskInfo:
        path, place = str(args.disk.logical_id[1]), self._place(args)
        if path not in place.disks and args.disk.size > place.free:
            raise StorageError(f"{path}: no space left on device")
        place.disks[path] = args.disk.size
        place.contents.setdefault(path, "")
        return DiskInfo(exists=True, path=path, size=args.disk.size)

    def on_blockdev_remove(self, args: DiskArgs) -> Nothing:
        for key, (_epoch, spec) in self.scripts.items():
            if args.disk.logical_id in [disk.logical_id for disk in spec.disks]:
                raise AssertionError(f"{self.name}: script {key} lost a disk under its hands")
        self._place(args).disks.pop(str(args.disk.logical_id[1]), None)
        path, place = str(args.disk.logical_id[1]), self._place(args)
        place.disks.pop(path, None)
        place.contents.pop(path, None)
        return Nothing()

    def on_disk_listen(self, args: DiskListenArgs) -> DiskListening:
        self._check_disk(args.instance_name, args.disk)
        self.listening[args.token] = args
        return DiskListening(port=COPY_PORT)

    def on_disk_send(self, args: DiskSendArgs) -> DiskSent:
        self._check_disk(args.instance_name, args.disk)
        if any(guest.spec.name == args.instance_name for guest in self.guests.values()):
            self.violations.append(f"a disk of {args.instance_name} is copied while it runs")
        receiver = self.peers[args.address]
        wanted = receiver.listening.get(args.token)
        if self.copy_fails or wanted is None or args.port != COPY_PORT:
            raise StorageError(self.copy_fails or "nobody listens")
        self._copy_to(receiver, args.disk)
        return DiskSent(data_bytes=args.disk.size, seconds=0.1, sha256="0" * 64)

    def on_disk_progress(self, args: DiskProgressArgs) -> DiskProgress | None:
        return DiskProgress(done=1, total=2)

    def _copy_to(self, receiver: "ModelNode", disk: DiskSpec) -> None:
        path = str(disk.logical_id[1])
        receiver.local.contents[path] = self.local.contents.get(path, "")

    def _check_disk(self, instance_name: str, disk: DiskSpec) -> None:
        place = self._place(DiskArgs(instance_name=instance_name, disk=disk))
        if str(disk.logical_id[1]) not in place.disks:
            raise StorageError(f"{instance_name}: disk {disk.logical_id[1]} does not exist")

    def on_blockdev_info(self, args: DiskArgs) -> DiskInfo:
        path = str(args.disk.logical_id[1])
        return DiskInfo(exists=path in self._place(args).disks, path=path, size=args.disk.size)

    def on_blockdev_grow(self, args: GrowDiskArgs) -> DiskInfo:
        path = str(args.disk.logical_id[1])
        place = self._place(DiskArgs(instance_name=args.instance_name, disk=args.disk))
        if path not in place.disks:
            raise StorageError(f"{path} does not exist")
        if args.size - place.disks[path] > place.free:
            raise StorageError(f"{path}: no space left on device")
        place.disks[path] = max(args.size, place.disks[path])
        return DiskInfo(exists=True, path=path, size=args.size)

    def on_blockdev_assemble(self, args: DiskArgs) -> DiskInfo:
        found = self.on_blockdev_info(args)
        if not found.exists:
            raise StorageError(f"{found.path} does not exist")
        return found

    def on_blockdev_shutdown(self, args: DiskArgs) -> Nothing:
        return Nothing()

    def _check_disks(self, spec: InstanceSpec) -> None:
        for disk in spec.disks:
            place = self._place(DiskArgs(instance_name=spec.name, disk=disk))
            if str(disk.logical_id[1]) not in place.disks:
                raise HypervisorError(f"{spec.name}: disk {disk.logical_id[1]} does not exist")

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
                scripts=["create"],
            )
            for name, version in self.oses.items()
        ]

    def on_os_validate(self, args: OsValidateArgs) -> Nothing:
        if args.os.partition("+")[0] not in self.oses and not args.are_defaults:
            raise GuestOsError(f"there is no OS definition {args.os}")
        if wrong := self.wrong_osparams & args.osparams.items():
            raise GuestOsError(f"the script verify refuses {wrong}")
        return Nothing()

    def on_os_create(self, args: OsCreateArgs) -> ScriptResult:
        self._check_disks(args.instance)
        if self.call.key in self.ended_scripts:
            raise GuestOsError(f"{self.call.key} was ended before it began")
        if self.scripts_stay:
            self.scripts[self.call.key] = self.call.epoch, args.instance
        for disk in args.instance.disks:
            self.installed[disk.uuid] = (args.os, args.instance.name)
        return ScriptResult(tail="installed", log_path="/log")

    def on_work_end(self, args: EndWorkArgs) -> EndWorkResult:
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
        self.ended_scripts += sorted({*chosen, *args.keys})
        return EndWorkResult(ended=[f"task {key}" for key in sorted(chosen)], unfinished=[])

    def on_os_rename(self, args: OsRenameArgs) -> ScriptResult:
        self._check_disks(args.instance)
        if self.rename_script_fails:
            raise GuestOsError(self.rename_script_fails)
        for disk in args.instance.disks:
            self.installed[disk.uuid] = (args.os, args.instance.name)
        return ScriptResult(tail=f"renamed from {args.old_name}", log_path="/log")

    def on_allocator_run(self, args: AllocatorArgs) -> AllocatorOutput:
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

    def on_instances_info(self, args: Any) -> list[RunningInstance]:
        return [self._running(guest) for guest in self.guests.values()]

    def on_instance_info(self, args: InstanceArgs) -> RunningInstance | None:
        guest = self.guests.get(args.instance.uuid)
        return self._running(guest) if guest else None

    def on_instance_start(self, args: StartArgs) -> Nothing:
        if self.refuses_start:
            raise HypervisorError(self.refuses_start)
        self._check_disks(args.instance)
        guest = self.guests.get(args.instance.uuid)
        if guest and guest.state in ("incoming", "postmigrate"):
            raise HypervisorError(f"{args.instance.name} is in a migration that was not finished")
        if guest is None or guest.state != "running":
            state = "paused" if args.paused else "running"
            self.guests[args.instance.uuid] = Guest(args.instance, state)
        return Nothing()

    def on_instance_shutdown(self, args: Any) -> Nothing:
        self.guests.pop(args.instance.uuid, None)
        return Nothing()

    def on_instance_reboot(self, args: Any) -> Nothing:
        self._here(args.instance).state = "running"
        return Nothing()

    def on_instance_console(self, args: InstanceArgs) -> ConsoleInfo:
        return ConsoleInfo(kind="msg", message=f"{args.instance.name} has no console")

    def on_nics_check(self, args: NicsArgs) -> list[str]:
        return [
            f"NIC {nic.index}: there is no bridge {nic.link!r}"
            for nic in args.nics
            if nic.mode == "bridged" and nic.link not in self.bridges
        ]

    def on_uid_pool_use(self, args: UidPoolArgs) -> UidPoolUse:
        asked = {uid for low, high in args.uid_pool for uid in range(low, high + 1)}
        in_use = [uid for uid in self.uids_in_use if uid in asked]
        return UidPoolUse(conflicts=self.uid_conflicts, in_use=in_use)

    def on_validate_hvparams(self, args: HvParamsArgs) -> list[str]:
        return self.wrong_hvparams

    def on_pinned_hvparams(self, args: HvParamsArgs) -> dict[str, Any]:
        return dict(self.pinned_hvparams)

    def on_instance_screenshot(self, args: InstanceArgs) -> Screenshot:
        return Screenshot(png=f"screen of {self._here(args.instance).spec.name}".encode())

    def on_agent_info(self, args: InstanceArgs) -> AgentInfo | None:
        return self.agents.get(args.instance.uuid)

    def on_agent_freeze(self, args: FrozenArgs) -> Frozen:
        return Frozen(file_systems=1)

    def on_agent_thaw(self, args: InstanceArgs) -> Frozen:
        return Frozen(file_systems=1)

    def on_nvram_read(self, args: InstanceArgs) -> Nvram:
        return Nvram(content=self.nvram.get(args.instance.uuid))

    def on_nvram_write(self, args: WriteNvramArgs) -> Nothing:
        self.nvram[args.instance.uuid] = args.content
        return Nothing()

    def on_nvram_forget(self, args: ForgetNvramArgs) -> Nothing:
        self.nvram.pop(args.instance.uuid, None)
        return Nothing()

    def _here(self, spec: InstanceSpec) -> Guest:
        if spec.uuid not in self.guests:
            raise HypervisorError(f"{spec.name} does not run on this node")
        return self.guests[spec.uuid]

    # --- running guests that change ---

    def on_hotplug_obstacles(self, args: InstanceArgs) -> list[str]:
        return self.hotplug_obstacles if args.instance.uuid in self.guests else []

    def on_hotplug_disk(self, args: DiskChangeArgs) -> Nothing:
        if guest := self.guests.get(args.instance.uuid):
            if args.action == "remove":
                guest.spec = without_disk(guest.spec, args.disk.uuid)
            else:
                self.on_blockdev_assemble(DiskArgs(instance_name=guest.spec.name, disk=args.disk))
                guest.spec = with_disk(guest.spec, args.disk)
        return Nothing()

    def on_hotplug_nic(self, args: NicChangeArgs) -> Nothing:
        if guest := self.guests.get(args.instance.uuid):
            if args.action == "remove":
                guest.spec = without_nic(guest.spec, args.nic.uuid)
            else:
                guest.spec = with_nic(guest.spec, args.nic)
        return Nothing()

    def on_hotplug_medium(self, args: MediumArgs) -> MediumResult:
        if guest := self.guests.get(args.instance.uuid):
            if not guest.spec.hvparams[args.drive]:
                return MediumResult(is_changed=False)
            image = args.instance.hvparams[args.drive] or "empty"
            guest.spec = replace(guest.spec, hvparams={**guest.spec.hvparams, args.drive: image})
        return MediumResult(is_changed=True)

    def on_instance_memory(self, args: MemoryArgs) -> MemoryResult:
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
        uuid = args.instance.uuid
        if uuid in self.guests and self.guests[uuid].state != "incoming":
            raise HypervisorError(f"{args.instance.name} is on this node already")
        self._check_disks(args.instance)
        spec = incoming_instance(args.instance, args.info.instance)
        self.guests[uuid] = Guest(spec, "incoming", runs_on=args.info.running)
        self.let_go_on.discard(uuid)
        disks_port = COPY_PORT if args.copies_disks else 0
        return Incoming(address=self.name, port=PORT, disks_port=disks_port, certificate="pem")

    def on_migration_run(self, args: MigrateArgs) -> MigrationResult:
        guest = self._here(args.instance)
        target = self.peers[args.address].guests.get(args.instance.uuid)
        problem = self.migration_fails or ("" if target else "connection refused")
        if problem:
            return MigrationResult(
                status="failed", total_ms=0, downtime_ms=0, transferred=0, error=problem
            )
        if args.disks_port:
            for disk in args.instance.disks:
                self._copy_to(self.peers[args.address], disk)
        guest.runs_on = guest.state == "running"
        guest.state = "postmigrate"
        self.let_go_on.discard(args.instance.uuid)
        return MigrationResult(status="completed", total_ms=9, downtime_ms=1, transferred=4096)

    def on_migration_finish_source(self, args: FinishMigrationArgs) -> Nothing:
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
