"""Nodes for tests of the master: their disks and guests as plain data, behind the real procedures.

They keep the contracts of the drivers: every operation may be repeated, a start that fails leaves
nothing, and no end of a migration is removed while the guest runs there.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ganeti import __version__
from ganeti.base.errors import (
    ErrorCode,
    GuestOsError,
    HypervisorError,
    PrereqError,
    StorageError,
)
from ganeti.model.instance_spec import InstanceSpec
from ganeti.placement.allocate import Rules
from ganeti.placement.answers import Settings, answer
from ganeti.rpc.calls import Call, Handler, Handlers
from ganeti.rpc.procedures.disks import DiskArgs, DiskFile, DiskFilesArgs, DiskInfo
from ganeti.rpc.procedures.files import NodeFile, SharedFiles, SsconfArgs
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.host import NodeInfo, NodeVersion, StorageSpace, VerifyReport
from ganeti.rpc.procedures.instances import (
    ConsoleInfo,
    HvParamsArgs,
    InstanceArgs,
    RunningInstance,
    StartArgs,
)
from ganeti.rpc.procedures.mastership import MasterIpArgs, RegisterState
from ganeti.rpc.procedures.migration import (
    FinishMigrationArgs,
    Incoming,
    IncomingArgs,
    MigrateArgs,
    MigrationResult,
)
from ganeti.rpc.procedures.programs import (
    AllocatorArgs,
    AllocatorOutput,
    OsCreateArgs,
    OsInfo,
    OsValidateArgs,
    ScriptResult,
)
from ganeti.ssconf import checksum

PORT = 8102


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
    local: SharedDirectory = field(default_factory=SharedDirectory)
    guests: dict[str, Guest] = field(default_factory=dict)
    oses: dict[str, str] = field(default_factory=lambda: {"tiny": "1.0"})
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
    wrong_hvparams: list[str] = field(default_factory=list)

    def handlers(self) -> Handlers:
        """A handler for every procedure that has a method here."""
        found: dict[str, Handler] = {}
        for name in dir(self):
            if name.startswith("on_"):
                found[name.removeprefix("on_")] = self._handler(getattr(self, name))
        return found

    def _handler(self, act: Callable[[Any], Any]) -> Handler:
        async def handle(args: Any, call: Call) -> Any:
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
                StorageSpace(kind="file", name="/local", total=100_000, free=self.local.free),
                StorageSpace(
                    kind="sharedfile", name="/shared", total=100_000, free=self.shared.free
                ),
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

    def on_register_read(self, args: Nothing) -> RegisterState:
        return RegisterState(
            granted=True,
            why="",
            cluster_uuid=self.cluster_uuid,
            promised_epoch=1,
            promised_to="",
            accepted_epoch=0,
            accepted_version=0,
            accepted_master="",
            sync_set=[],
            job_id_ceiling=0,
            older_calls=self.older_calls,
        )

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

    def on_disk_files(self, args: DiskFilesArgs) -> list[DiskFile]:
        wanted = [
            ("file", args.file_storage_dir, self.local),
            ("sharedfile", args.shared_file_storage_dir, self.shared),
        ]
        return [
            DiskFile(template=template, path=path, size=size)
            for template, directory, place in wanted
            if directory
            for path, size in place.disks.items()
        ]

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
        return DiskInfo(exists=True, path=path, size=args.disk.size)

    def on_blockdev_remove(self, args: DiskArgs) -> Nothing:
        self._place(args).disks.pop(str(args.disk.logical_id[1]), None)
        return Nothing()

    def on_blockdev_info(self, args: DiskArgs) -> DiskInfo:
        path = str(args.disk.logical_id[1])
        return DiskInfo(exists=path in self._place(args).disks, path=path, size=args.disk.size)

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
        if args.os.partition("+")[0] not in self.oses:
            raise GuestOsError(f"there is no OS definition {args.os}")
        return Nothing()

    def on_os_create(self, args: OsCreateArgs) -> ScriptResult:
        self._check_disks(args.instance)
        return ScriptResult(tail="installed", log_path="/log")

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

    def on_validate_hvparams(self, args: HvParamsArgs) -> list[str]:
        return self.wrong_hvparams

    def _here(self, spec: InstanceSpec) -> Guest:
        if spec.uuid not in self.guests:
            raise HypervisorError(f"{spec.name} does not run on this node")
        return self.guests[spec.uuid]

    # --- migration ---

    def on_migration_info(self, args: InstanceArgs) -> dict[str, Any]:
        return {"running": self._here(args.instance).state == "running"}

    def on_migration_accept(self, args: IncomingArgs) -> Incoming:
        uuid = args.instance.uuid
        if uuid in self.guests and self.guests[uuid].state != "incoming":
            raise HypervisorError(f"{args.instance.name} is on this node already")
        self._check_disks(args.instance)
        self.guests[uuid] = Guest(args.instance, "incoming", runs_on=args.info["running"])
        return Incoming(address=self.name, port=PORT)

    def on_migration_run(self, args: MigrateArgs) -> MigrationResult:
        guest = self._here(args.instance)
        target = self.peers[args.address].guests.get(args.instance.uuid)
        problem = self.migration_fails or ("" if target else "connection refused")
        if problem:
            return MigrationResult(
                status="failed", total_ms=0, downtime_ms=0, transferred=0, error=problem
            )
        guest.runs_on = guest.state == "running"
        guest.state = "postmigrate"
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
            guest.state = "running" if guest.runs_on else "paused"
        return Nothing()

    def on_migration_finish_target(self, args: FinishMigrationArgs) -> Nothing:
        guest = self.guests.get(args.instance.uuid)
        if args.success:
            if guest is None:
                raise HypervisorError(f"{args.instance.name} did not arrive here")
            if guest.state == "incoming":
                self._check_arrived(args.instance)
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
