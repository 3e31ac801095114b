"""Every call from the master to a node, declared once: arguments, result, deadline, whether it changes the host.

`PROCEDURES` is what the client, the server and the fake are made from, so that both ends cannot
disagree. Unknown fields are ignored here (nodes are upgraded first); sizes and memory are MiB.
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.params import Params

A = TypeVar("A", bound=msgspec.Struct)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """The form of all arguments and results."""


@dataclass(frozen=True)
class Procedure(Generic[A]):
    """One procedure. A changing one is refused without the current epoch, and is repeatable by its key."""

    name: str
    arguments: type[A]
    result: Any
    """The type of the result: a type, or a union or container of types."""
    deadline_s: float
    changes: bool
    is_long: bool = False
    """Runs as a task of the node with a durable record, which outlives the node daemon (`node/tasks.py`)."""


class Nothing(Message, frozen=True, kw_only=True):
    """No arguments, or no result."""


# --- the node itself -------------------------------------------------------------------------


class NodeVersion(Message, frozen=True, kw_only=True):
    """Who answers: software and RPC version, name and cluster ('' before a join)."""

    software: str
    protocol: int
    node_name: str
    cluster_uuid: str


class NodeInfoArgs(Message, frozen=True, kw_only=True):
    hypervisors: list[str]
    file_storage_dir: str = ""
    shared_file_storage_dir: str = ""


class StorageSpace(Message, frozen=True, kw_only=True):
    """Space of one place for disks: `kind` is a disk template."""

    kind: str
    name: str
    total: int
    free: int


class NodeInfo(Message, frozen=True, kw_only=True):
    memory_total: int
    memory_free: int
    memory_node: int
    """Used by the host itself."""
    cpu_total: int
    cpu_nodes: int
    cpu_sockets: int
    cpu_node: int
    """Processors kept for the host itself."""
    boot_id: str
    time: float
    storage: list[StorageSpace]
    hypervisor_versions: dict[str, str]


class VerifyArgs(Message, frozen=True, kw_only=True):
    hypervisors: list[str]
    file_storage_dir: str = ""
    shared_file_storage_dir: str = ""
    nodes: list[tuple[str, str, int]] = []
    """(name, address, port) of nodes that this one must reach."""
    files: list[str] = []
    """Files of which the checksums are wanted."""


class VerifyReport(Message, frozen=True, kw_only=True):
    """What a node found out about itself; each problem is a sentence."""

    software: str
    protocol: int
    time: float
    hypervisor_problems: dict[str, list[str]]
    storage_problems: list[str]
    connection_problems: dict[str, str]
    """Name of another node -> why it cannot be reached."""
    certificate_not_after: float
    ssconf_position: int
    """Position of the ssconf set that is current here; -1 without one."""
    writable_problems: list[str]
    """Directories of ours that cannot be written."""
    ssconf_checksum: str = ""
    """Of the current set (`ganeti.ssconf.checksum`); '' if it cannot be read."""
    file_checksums: dict[str, str] = {}
    """SHA-256 of the wanted files that are here."""
    authority: str = ""
    """Fingerprint of the cluster's authority, as this node has it."""
    authority_not_after: float | None = None


# --- register, ssconf, membership ------------------------------------------------------------


class PromiseArgs(Message, frozen=True, kw_only=True):
    cluster_uuid: str
    epoch: int
    candidate_uuid: str
    kind: str = "vote"
    """`vote`, `hand-over` or `force` (R8, R10)."""


class RenewArgs(Message, frozen=True, kw_only=True):
    """The master says that it is the master still."""

    cluster_uuid: str
    epoch: int
    master_uuid: str


class RegisterState(Message, frozen=True, kw_only=True):
    """The node's register (architecture.md, section 5); `granted` answers the request that asked."""

    granted: bool
    why: str
    cluster_uuid: str
    promised_epoch: int
    promised_to: str
    accepted_epoch: int
    accepted_version: int
    accepted_master: str
    sync_set: list[str]
    job_id_ceiling: int
    voters: list[str] = []
    heard_master: str = ""
    """The master that this node heard last, and how many seconds ago; -1 if none since it started."""
    heard_s: float = -1.0
    software: str = ""
    older_calls: list[str] = []
    """Changing calls and tasks of masters before the promised epoch that still run here (R8, R11)."""


class AcceptArgs(Message, frozen=True, kw_only=True):
    cluster_uuid: str
    epoch: int
    version: int
    master_uuid: str
    sync_set: list[str]
    job_id_ceiling: int
    voters: list[str] = []


class CandidateArgs(Message, frozen=True, kw_only=True):
    """Become a master candidate: the key of the cluster's authority (PEM)."""

    authority_key: str

    def __repr__(self) -> str:
        return "CandidateArgs(…)"


class SsconfArgs(Message, frozen=True, kw_only=True):
    """A whole set of ssconf files and the position of the configuration that it shows."""

    position: int
    values: dict[str, str]


class NodeFile(Message, frozen=True, kw_only=True):
    """A file that other nodes must have as well; `path` without the prefix of a virtual cluster."""

    path: str
    content: bytes
    mode: int
    candidates_only: bool = False


class SharedFiles(Message, frozen=True, kw_only=True):
    """What the master's node has to share, and why some of it cannot be (a sentence each)."""

    files: list[NodeFile]
    problems: list[str]


class MasterIpArgs(Message, frozen=True, kw_only=True):
    """The cluster's own address; nothing is done without `netdev`."""

    address: str
    netmask: int
    netdev: str


class TestDelayArgs(Message, frozen=True, kw_only=True):
    duration_s: float


# --- instances -------------------------------------------------------------------------------


class HypervisorsArgs(Message, frozen=True, kw_only=True):
    hypervisors: list[str]


class RunningInstance(Message, frozen=True, kw_only=True):
    """An instance that is on a node now.

    `state` is `running`, `paused`, `shutdown` (the guest has powered itself off), `migrating` (it is
    being sent away and still belongs here), `incoming` (a place that waits for a guest, or has
    received one and not let it go on) or `postmigrate` (sent away completely, and not ended here
    yet). In the last two states the guest does not run on this node.
    """

    name: str
    uuid: str
    hypervisor: str
    memory: int
    vcpus: int
    state: str
    cpu_time_s: float

    @property
    def has_guest(self) -> bool:
        """Whether the guest itself is here, and not only one end of a migration."""
        return self.state not in ("incoming", "postmigrate")


class InstanceArgs(Message, frozen=True, kw_only=True):
    instance: InstanceSpec


class StartArgs(Message, frozen=True, kw_only=True):
    instance: InstanceSpec
    paused: bool = False


class ShutdownArgs(Message, frozen=True, kw_only=True):
    """Ask the guest; after `timeout_s` seconds end it (at once if 0)."""

    instance: InstanceSpec
    timeout_s: float


class RebootArgs(Message, frozen=True, kw_only=True):
    """`hard` resets the guest, `soft` asks it and resets it if it does not follow within `timeout_s`."""

    instance: InstanceSpec
    reboot_type: str
    timeout_s: float


class ConsoleInfo(Message, frozen=True, kw_only=True):
    """How to reach a console: `kind` is `socket` (a path on the node), `msg` and the like."""

    kind: str
    path: str = ""
    log_path: str = ""
    """Everything that the guest has said, where it is kept."""
    message: str = ""


class IncomingArgs(Message, frozen=True, kw_only=True):
    """Prepare to receive a guest; `info` is what the source said."""

    instance: InstanceSpec
    address: str
    info: Params


class Incoming(Message, frozen=True, kw_only=True):
    """Where the guest is waited for."""

    address: str
    port: int


class MigrateArgs(Message, frozen=True, kw_only=True):
    instance: InstanceSpec
    address: str
    port: int


class MigrationResult(Message, frozen=True, kw_only=True):
    """What a migration took, in milliseconds and bytes."""

    status: str
    total_ms: int
    downtime_ms: int
    transferred: int
    error: str = ""


class FinishMigrationArgs(Message, frozen=True, kw_only=True):
    """Tell one end how the migration ended: the source removes or keeps the guest, the target the reverse."""

    instance: InstanceSpec
    success: bool


class HvParamsArgs(Message, frozen=True, kw_only=True):
    hypervisor: str
    hvparams: Params


# --- disks -----------------------------------------------------------------------------------


class DiskArgs(Message, frozen=True, kw_only=True):
    instance_name: str
    disk: DiskSpec


class DiskInfo(Message, frozen=True, kw_only=True):
    """One disk as the node sees it."""

    exists: bool
    path: str = ""
    size: int = 0
    problem: str = ""


class DiskFilesArgs(Message, frozen=True, kw_only=True):
    """Directories of disks in files; '' is not looked at."""

    file_storage_dir: str = ""
    shared_file_storage_dir: str = ""


class DiskFile(Message, frozen=True, kw_only=True):
    """A file in a directory of disks; `template` says of which kind, `size` is in MiB."""

    template: str
    path: str
    size: int


# --- OS definitions, allocators --------------------------------------------------------------


class OsInfo(Message, frozen=True, kw_only=True):
    """One OS definition on one node; `problem` is '' if it can be used."""

    name: str
    path: str
    problem: str
    api_versions: list[int]
    variants: list[str]
    parameters: list[tuple[str, str]]
    version: str
    scripts: list[str]
    hypervisors: list[str] = []
    """Empty means all."""


class OsCreateArgs(Message, frozen=True, kw_only=True):
    """Run the `create` script: `os` with its variant, `osparams` already layered."""

    instance: InstanceSpec
    os: str
    osparams: dict[str, str]
    debug: int = 0
    force_variant: bool = False


class ScriptResult(Message, frozen=True, kw_only=True):
    """The end of a script that succeeded: the tail of what it said for people, and where all of it is kept."""

    tail: str
    log_path: str


class OsValidateArgs(Message, frozen=True, kw_only=True):
    os: str
    osparams: dict[str, str]
    force_variant: bool = False


class AllocatorArgs(Message, frozen=True, kw_only=True):
    """Run the allocator `name`, found in the search path, on a message (JSON text)."""

    name: str
    message: str


class AllocatorOutput(Message, frozen=True, kw_only=True):
    """How the allocator's program ended; `found` is False if there is none of that name."""

    found: bool
    status: int = 0
    stdout: str = ""
    stderr: str = ""


class LeaveArgs(Message, frozen=True, kw_only=True):
    """Forget the cluster: certificates, ssconf, register, storage lists go."""

    cluster_uuid: str


QUICK_S, NORMAL_S, SLOW_S, HOURS_S = 5.0, 60.0, 300.0, 6 * 3600.0
SHUTDOWN_LIMIT_S = 3600.0

VERSION = Procedure("version", Nothing, NodeVersion, QUICK_S, changes=False)
NODE_INFO = Procedure("node_info", NodeInfoArgs, NodeInfo, NORMAL_S, changes=False)
NODE_VERIFY = Procedure("node_verify", VerifyArgs, VerifyReport, NORMAL_S, changes=False)
REGISTER_READ = Procedure("register_read", Nothing, RegisterState, QUICK_S, changes=False)
REGISTER_PROMISE = Procedure("register_promise", PromiseArgs, RegisterState, QUICK_S, changes=False)
REGISTER_ACCEPT = Procedure("register_accept", AcceptArgs, RegisterState, QUICK_S, changes=False)
REGISTER_RENEW = Procedure("register_renew", RenewArgs, RegisterState, QUICK_S, changes=False)
CANDIDATE_START = Procedure("candidate_start", CandidateArgs, Nothing, NORMAL_S, changes=True)
CANDIDATE_STOP = Procedure("candidate_stop", Nothing, Nothing, NORMAL_S, changes=True)
WRITE_SSCONF = Procedure("write_ssconf", SsconfArgs, Nothing, NORMAL_S, changes=True)
SHARED_FILES = Procedure("shared_files", HypervisorsArgs, SharedFiles, NORMAL_S, changes=False)
WRITE_FILE = Procedure("write_file", NodeFile, Nothing, NORMAL_S, changes=True)
MASTER_IP_UP = Procedure("master_ip_up", MasterIpArgs, Nothing, NORMAL_S, changes=True)
MASTER_IP_DOWN = Procedure("master_ip_down", MasterIpArgs, Nothing, NORMAL_S, changes=True)
TEST_DELAY = Procedure("test_delay", TestDelayArgs, Nothing, HOURS_S, changes=False)
LEAVE_CLUSTER = Procedure("leave_cluster", LeaveArgs, Nothing, NORMAL_S, changes=True)

INSTANCES_INFO = Procedure(
    "instances_info", HypervisorsArgs, list[RunningInstance], NORMAL_S, changes=False
)
INSTANCE_INFO = Procedure(
    "instance_info", InstanceArgs, RunningInstance | None, NORMAL_S, changes=False
)
INSTANCE_START = Procedure("instance_start", StartArgs, Nothing, SLOW_S, changes=True)
INSTANCE_SHUTDOWN = Procedure(
    "instance_shutdown", ShutdownArgs, Nothing, SHUTDOWN_LIMIT_S, changes=True
)
INSTANCE_REBOOT = Procedure("instance_reboot", RebootArgs, Nothing, SHUTDOWN_LIMIT_S, changes=True)
INSTANCE_CONSOLE = Procedure("instance_console", InstanceArgs, ConsoleInfo, QUICK_S, changes=False)
VALIDATE_HVPARAMS = Procedure("validate_hvparams", HvParamsArgs, list[str], NORMAL_S, changes=False)
MIGRATION_INFO = Procedure("migration_info", InstanceArgs, Params, NORMAL_S, changes=False)
MIGRATION_ACCEPT = Procedure("migration_accept", IncomingArgs, Incoming, NORMAL_S, changes=True)
MIGRATION_RUN = Procedure("migration_run", MigrateArgs, MigrationResult, HOURS_S, changes=True)
MIGRATION_FINISH_SOURCE = Procedure(
    "migration_finish_source", FinishMigrationArgs, Nothing, NORMAL_S, changes=True
)
MIGRATION_FINISH_TARGET = Procedure(
    "migration_finish_target", FinishMigrationArgs, Nothing, NORMAL_S, changes=True
)

BLOCKDEV_CREATE = Procedure("blockdev_create", DiskArgs, DiskInfo, SLOW_S, changes=True)
BLOCKDEV_REMOVE = Procedure("blockdev_remove", DiskArgs, Nothing, SLOW_S, changes=True)
BLOCKDEV_INFO = Procedure("blockdev_info", DiskArgs, DiskInfo, NORMAL_S, changes=False)

DISK_FILES = Procedure("disk_files", DiskFilesArgs, list[DiskFile], NORMAL_S, changes=False)

OS_DIAGNOSE = Procedure("os_diagnose", Nothing, list[OsInfo], NORMAL_S, changes=False)
OS_VALIDATE = Procedure("os_validate", OsValidateArgs, Nothing, SLOW_S, changes=False)
OS_CREATE = Procedure("os_create", OsCreateArgs, ScriptResult, HOURS_S, changes=True, is_long=True)
ALLOCATOR_RUN = Procedure("allocator_run", AllocatorArgs, AllocatorOutput, SLOW_S, changes=False)

PROCEDURES: dict[str, Procedure[Any]] = {
    procedure.name: procedure
    for procedure in list(globals().values())
    if isinstance(procedure, Procedure)
}
