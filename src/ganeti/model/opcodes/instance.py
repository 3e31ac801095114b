"""Opcodes about instances."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.names import AdminStateSource, RebootType
from ganeti.model.opcodes.base import (
    DiskRequest,
    ForceVariant,
    Iallocator,
    IgnoreIpolicy,
    MigrationMode,
    NicRequest,
    NoConflictsCheck,
    NonLive,
    NoRuntimeChanges,
    NoWaitForSync,
    OpCode,
    OpportunisticLocking,
    PrivateOsParams,
    SecretOsParams,
    ShutdownTimeout,
)
from ganeti.model.operation import (
    DRY_RUN,
    FORCE,
    INSTANCE,
    Command,
    Loss,
    Parameter,
    Rest,
    Right,
    Value,
)
from ganeti.model.params import Params

DEFAULT_SHUTDOWN_TIMEOUT_S = 120


class OpInstanceCreate(OpCode, frozen=True, kw_only=True, tag="OP_INSTANCE_CREATE"):
    """Create an instance: choose its nodes, create its disks, record it, install it and start it."""

    instance_name: Annotated[str, RefersTo.NEW_INSTANCE]
    mode: Annotated[str, RefersTo.NOTHING] = "create"
    disk_template: Annotated[str | None, Field(
        f"disk template: {', '.join(DISK_TEMPLATES)}; default: the cluster's first", "-t", "TEMPLATE"
    ), RefersTo.NOTHING] = None  # fmt: skip
    disks: Annotated[list[DiskRequest], Field(
        "disk N with size and optionally mode=ro, name, vg, provider, spindles (with exclusive storage), format=qcow2 (an image, for disks in files), and parameters of its template; adopt=NAME instead of a size uses an existing volume or device; may be repeated",
        "! --disk", "N:size=SIZE,...",
        Form.DISKS
    )] = []  # fmt: skip
    nics: Annotated[list[NicRequest], Field(
        "network interface N with mac, ip (perhaps pool), network, or mode, link, vlan, and name; may be repeated", "! --net",
        "N:k=v,...", Form.NICS
    )] = []  # fmt: skip
    os_type: Annotated[str | None, Field(
        "OS definition to install from", "-o", "OS[+VARIANT]"
    ), RefersTo.OS] = None  # fmt: skip
    pnode: Annotated[str | None, RefersTo.NODE] = None
    pnode_uuid: Annotated[str | None, RefersTo.NODE] = None
    snode: Annotated[str | None, RefersTo.NODE] = None
    snode_uuid: Annotated[str | None, RefersTo.NODE] = None
    iallocator: Iallocator = None
    hypervisor: Annotated[str | None, RefersTo.NOTHING] = None
    hvparams: Annotated[Params, RefersTo.HYPERVISOR_PARAMS] = {}
    beparams: Annotated[Params, Field(
        "backend parameters, for example memory=512m,vcpus=2", "! -B --backend-parameters", "k=v,...",
        Form.BACKEND
    ), RefersTo.NOTHING] = {}  # fmt: skip
    osparams: Annotated[dict[str, str], Field(
        "parameters of the OS definition", "! -O --os-parameters", "k=v,...", Form.TEXTS
    ), RefersTo.OS_PARAMS] = {}  # fmt: skip
    osparams_private: Annotated[dict[str, str], PrivateOsParams, RefersTo.OS_PARAMS] = {}
    osparams_secret: Annotated[dict[str, str], SecretOsParams, RefersTo.OS_PARAMS] = {}
    file_driver: Annotated[
        str | None, Field("accepted: loop, blktap", metavar="DRIVER"), RefersTo.NOTHING
    ] = None
    file_storage_dir: Annotated[
        str | None, Field("subdirectory for disks in files", metavar="NAME"), RefersTo.DIRECTORY
    ] = None
    start: Annotated[bool, Field("do not start the instance", "! --no-start", form=Form.OFF)] = True
    no_install: Annotated[
        bool | None, Field("do not run the OS create script; implies --no-start")
    ] = False
    force_variant: ForceVariant = False
    wait_for_sync: NoWaitForSync = True
    ip_check: Annotated[
        bool, Field("refuse if the address of the name already answers", form=Form.ON_OFF)
    ] = False
    name_check: Annotated[bool, Field("refuse if the name does not resolve", form=Form.ON_OFF)] = (
        False
    )
    conflicts_check: NoConflictsCheck = True
    ignore_ipolicy: IgnoreIpolicy = False
    opportunistic_locking: OpportunisticLocking = False
    group_name: Annotated[str | None, Field(
        "node group for the choice of the allocator", "! -g --node-group", "GROUP"
    ), RefersTo.GROUP] = None  # fmt: skip
    explain: Annotated[bool, Field(
        "show why other nodes were not chosen; with --dry-run nothing is created"
    )] = False  # fmt: skip
    identify_defaults: bool = False
    no_nics: bool = False
    """True creates an import without `nics` without interfaces, instead of those of the export."""
    compress: Annotated[str, RefersTo.NOTHING] = "none"
    forthcoming: bool = False
    commit: bool = False
    instance_communication: bool = False
    helper_startup_timeout: int | None = None
    helper_shutdown_timeout: int | None = None
    source_handshake: Annotated[list[Any] | None, RefersTo.NOTHING] = None
    source_instance_name: Annotated[str | None, RefersTo.NOTHING] = None
    source_shutdown_timeout: int = DEFAULT_SHUTDOWN_TIMEOUT_S
    source_x509_ca: Annotated[str | None, RefersTo.NOTHING] = None
    src_node: Annotated[str | None, RefersTo.NODE] = None
    src_node_uuid: Annotated[str | None, RefersTo.NODE] = None
    src_path: Annotated[str | None, RefersTo.EXPORT] = None
    src_backup: Annotated[str | None, RefersTo.NOTHING] = None
    src_unencrypted: bool = False
    """Read the backup although it is not encrypted and the cluster encrypts its backups."""
    src_format: Annotated[str | None, RefersTo.CLUSTER] = None
    """Format of a machine image at `src_path`, which is then not an export; `auto` reads the header."""
    src_instance: Annotated[str | None, RefersTo.INSTANCE] = None
    """With mode clone: the instance whose disks are copied, and whose description completes the request."""
    image: Annotated[str | None, Field(
        "give the disks the content of this image (gnt-image list)", "! --image", "NAME"
    ), RefersTo.IMAGE] = None  # fmt: skip
    tags: Annotated[list[str], Field("tags", metavar="TAG,...", form=Form.WORDS), RefersTo.TAG] = []

    summary_field: ClassVar[str | None] = "instance_name"
    secret_fields: ClassVar[tuple[str, ...]] = ("osparams_secret",)
    null_is_default: ClassVar[tuple[str, ...]] = (
        *OpCode.null_is_default,
        *("osparams_private", "osparams_secret"),
    )
    no_loss: ClassVar[str] = "creates new disks, and refuses disks that exist"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/instances", (DRY_RUN,),
            summary="Create an instance", renamed={"os": "os_type", "name": "instance_name"}),
    )  # fmt: skip


class OnInstance(OpCode, frozen=True, kw_only=True):
    """Fields of every opcode about one instance."""

    instance_name: Annotated[str, RefersTo.INSTANCE]
    instance_uuid: Annotated[str | None, RefersTo.INSTANCE] = None

    summary_field: ClassVar[str | None] = "instance_name"


def instance_names(ops: Sequence[Any]) -> str:
    """Return the names of the opcodes' instances, for a question."""
    return ", ".join(op.instance_name for op in ops)


def _ask_removal(ops: Sequence[Any]) -> str:
    return f"Remove instance {instance_names(ops)} and all data on its disks?"


class OpInstanceRemove(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_REMOVE"):
    """Shut an instance down, and remove it with its disks."""

    ignore_failures: Annotated[
        bool, Field("continue if a node does not answer or a disk cannot be removed")
    ] = False
    shutdown_timeout: ShutdownTimeout = DEFAULT_SHUTDOWN_TIMEOUT_S

    loss: ClassVar[Loss | None] = Loss(_ask_removal)
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("DELETE", "/2/instances/{instance}", (DRY_RUN,), summary="Remove an instance and its disks",
             constants={"ignore_failures": False}),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-instance", "remove", (INSTANCE,), confirming=("force",),
        doc="Shut an instance down and remove it with its disks.",
    )  # fmt: skip


IgnoreOffline = Annotated[
    bool, Field("only record the change if the node is offline", "! --ignore-offline")
]
NoRemember = Annotated[bool, Field("do not record the new state as the desired one")]


NO_REMEMBER = Parameter(
    "no_remember", Value.FLAG, "do not record the new state as the desired one", "no_remember"
)


class OpInstanceStartup(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_STARTUP"):
    """Start an instance, and record 'up' as its desired state."""

    force: bool = False
    ignore_offline_nodes: IgnoreOffline = False
    hvparams: Annotated[Params, Field(
        "hypervisor parameters for this start only", "! -H --hypervisor-parameters", "k=v,...",
        Form.KEY_VALUES
    ), RefersTo.HYPERVISOR_PARAMS] = {}  # fmt: skip
    beparams: Annotated[Params, Field(
        "backend parameters for this start only", "! -B --backend-parameters", "k=v,...", Form.BACKEND
    ), RefersTo.NOTHING] = {}  # fmt: skip
    no_remember: NoRemember = False
    startup_paused: Annotated[bool, Field("start with the processors stopped", "! --paused")] = (
        False
    )
    if_wanted: bool = False
    """Start the instance only if its desired state is up and it runs on no node; the watcher sets this field."""
    shutdown_timeout: int = DEFAULT_SHUTDOWN_TIMEOUT_S

    no_loss: ClassVar[str] = "keeps the disks"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/instances/{instance}/startup", (FORCE, NO_REMEMBER, DRY_RUN),
            Right.OPERATE, "Start an instance", has_body=False),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-instance", "startup", aliases=("start",), on_many=True, confirming=("force",),
        doc="Start instances, and record 'up' as their desired state.",
    )  # fmt: skip


class OpInstanceShutdown(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_SHUTDOWN"):
    """Shut an instance down, kill it after `timeout` seconds, and record 'down' as its desired state.

    If `admin_state_source` is user, only record that the guest has shut itself down.
    """

    force: bool = False
    ignore_offline_nodes: IgnoreOffline = False
    timeout: Annotated[
        int,
        Field("time before the guest is killed, in seconds (120)", metavar="SECONDS"),
    ] = DEFAULT_SHUTDOWN_TIMEOUT_S
    no_remember: NoRemember = False
    admin_state_source: Annotated[AdminStateSource | None, RefersTo.NOTHING] = None

    no_loss: ClassVar[str] = "keeps the disks"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/instances/{instance}/shutdown", (NO_REMEMBER, DRY_RUN), Right.OPERATE, "Shut an instance down"),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-instance", "shutdown", aliases=("stop",), on_many=True, confirming=("force",),
        doc="Shut instances down, and record 'down' as their desired state.",
    )  # fmt: skip


class OpInstanceReboot(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_REBOOT"):
    """Reboot an instance."""

    reboot_type: Annotated[RebootType, Field(
        "soft asks the guest, hard resets it, full stops and starts it", "! -t --type",
        choices=tuple(RebootType)
    ), RefersTo.NOTHING] = RebootType.HARD  # fmt: skip
    ignore_secondaries: Annotated[bool, Field("pass to hooks; no other effect")] = False
    shutdown_timeout: ShutdownTimeout = DEFAULT_SHUTDOWN_TIMEOUT_S

    no_loss: ClassVar[str] = "keeps the disks"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/instances/{instance}/reboot", (
            Parameter("type", Value.TEXT, "soft, hard or full", "reboot_type"),
            Parameter("ignore_secondaries", Value.FLAG, "ignored; kept for compatibility with Ganeti 3", "ignore_secondaries"),
            DRY_RUN,
        ), Right.OPERATE),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-instance", "reboot", on_many=True, doc="Reboot instances."
    )


Cleanup = Annotated[bool, Field("clean up after a failed migration")]


class OpInstanceMigrate(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_MIGRATE"):
    """Migrate a running instance to another node without stopping it."""

    mode: MigrationMode = None
    live: NonLive = None
    target_node: Annotated[str | None, Field(
        "target node; disks that only the present node has are moved too", "-n", "NODE"
    ), RefersTo.NODE] = None  # fmt: skip
    target_node_uuid: Annotated[str | None, RefersTo.NODE] = None
    iallocator: Iallocator = None
    cleanup: Cleanup = False
    allow_failover: Annotated[bool, Field("fail over if the instance does not run")] = False
    allow_runtime_changes: NoRuntimeChanges = True
    ignore_ipolicy: IgnoreIpolicy = False
    bandwidth: Annotated[int, Field(
        "limit of the memory, and of the data of each copied disk, in MiB/s; 0 (the default): migration_bandwidth",
        metavar="MIB"
    )] = 0  # fmt: skip
    ignore_hvversions: Annotated[bool, Field(
        "ignored; kept for compatibility with Ganeti 3"
    )] = False  # fmt: skip

    no_loss: ClassVar[str] = "moves an instance with all its data"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/instances/{instance}/migrate", right=Right.OPERATE,
            summary="Migrate an instance to another node without stopping it"),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-instance", "migrate", (INSTANCE,), confirming=("force",),
        question=lambda op: f"{'Clean up the broken migration of' if op.cleanup else 'Migrate'}"
        f" instance {op.instance_name}? Its service may be interrupted.",
    )  # fmt: skip


class OpInstanceQueryData(OpCode, frozen=True, kw_only=True, tag="OP_INSTANCE_QUERY_DATA"):
    """Return the facts of `gnt-instance info` about instances (default: all instances)."""

    instances: Annotated[list[str], RefersTo.INSTANCE] = []
    static: Annotated[bool, Field("show only the configuration, do not call nodes", "-s")] = False
    use_locking: bool = False

    host_changing: ClassVar[bool] = False
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("GET", "/2/instances/{instance}/info", (
            Parameter("static", Value.FLAG, "show only the configuration, do not call nodes", "static"),
        ), Right.KNOWN, "Return all facts about an instance, by a job",
            path_fields={"instance": "instances"}, has_body=False),
    )  # fmt: skip


class OpInstanceConsole(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_CONSOLE"):
    """Return the address of the instance's console."""

    host_changing: ClassVar[bool] = False
