"""Opcodes about instances."""

from typing import ClassVar

from ganeti.model.names import AdminStateSource, RebootType
from ganeti.model.opcodes.base import DiskRequest, NicRequest, OpCode
from ganeti.model.params import Params

DEFAULT_SHUTDOWN_TIMEOUT_S = 120


class OpInstanceCreate(OpCode, frozen=True, kw_only=True, tag="OP_INSTANCE_CREATE"):
    """Place a new instance, make its disks, record it, install and start it."""

    instance_name: str
    mode: str = "create"
    disk_template: str | None = None
    disks: list[DiskRequest] = []
    nics: list[NicRequest] = []
    os_type: str | None = None
    pnode: str | None = None
    pnode_uuid: str | None = None
    snode: str | None = None
    snode_uuid: str | None = None
    iallocator: str | None = None
    hypervisor: str | None = None
    hvparams: Params = {}
    beparams: Params = {}
    osparams: dict[str, str] = {}
    osparams_private: dict[str, str] = {}
    osparams_secret: dict[str, str] = {}
    file_driver: str | None = None
    file_storage_dir: str | None = None
    start: bool = True
    no_install: bool | None = False
    force_variant: bool = False
    wait_for_sync: bool = True
    ip_check: bool = False
    name_check: bool = False
    conflicts_check: bool = True
    ignore_ipolicy: bool = False
    opportunistic_locking: bool = False
    group_name: str | None = None
    explain: bool = False
    """Say of each node that an allocator does not choose why."""
    identify_defaults: bool = False
    compress: str = "none"
    forthcoming: bool = False
    commit: bool = False
    instance_communication: bool = False
    helper_startup_timeout: int | None = None
    helper_shutdown_timeout: int | None = None
    source_handshake: list[str] | None = None
    source_instance_name: str | None = None
    source_shutdown_timeout: int = DEFAULT_SHUTDOWN_TIMEOUT_S
    source_x509_ca: str | None = None
    src_node: str | None = None
    src_node_uuid: str | None = None
    src_path: str | None = None
    tags: list[str] = []

    summary_field: ClassVar[str | None] = "instance_name"
    secret_fields: ClassVar[tuple[str, ...]] = ("osparams_secret",)
    null_is_default: ClassVar[tuple[str, ...]] = (
        *OpCode.null_is_default,
        *("osparams_private", "osparams_secret"),
    )


class OnInstance(OpCode, frozen=True, kw_only=True):
    """Fields of every opcode that is about one instance."""

    instance_name: str
    instance_uuid: str | None = None

    summary_field: ClassVar[str | None] = "instance_name"


class OpInstanceRemove(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_REMOVE"):
    """Shut an instance down and remove its disks and its entry."""

    ignore_failures: bool = False
    shutdown_timeout: int = DEFAULT_SHUTDOWN_TIMEOUT_S


class OpInstanceStartup(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_STARTUP"):
    """Start an instance and remember that it is to run."""

    force: bool = False
    ignore_offline_nodes: bool = False
    hvparams: Params = {}
    beparams: Params = {}
    no_remember: bool = False
    startup_paused: bool = False
    shutdown_timeout: int = DEFAULT_SHUTDOWN_TIMEOUT_S


class OpInstanceShutdown(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_SHUTDOWN"):
    """Ask the guest to shut down, end it after `timeout` seconds, and remember that it is to be down.

    With `admin_state_source` user it is recorded that the guest had shut itself down, and only that.
    """

    force: bool = False
    ignore_offline_nodes: bool = False
    timeout: int = DEFAULT_SHUTDOWN_TIMEOUT_S
    no_remember: bool = False
    admin_state_source: AdminStateSource | None = None


class OpInstanceReboot(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_REBOOT"):
    """Reboot an instance."""

    reboot_type: RebootType = RebootType.HARD
    ignore_secondaries: bool = False
    shutdown_timeout: int = DEFAULT_SHUTDOWN_TIMEOUT_S


class OpInstanceMigrate(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_MIGRATE"):
    """Move a running instance to another node without stopping it."""

    mode: str | None = None
    live: bool | None = None
    target_node: str | None = None
    target_node_uuid: str | None = None
    iallocator: str | None = None
    cleanup: bool = False
    allow_failover: bool = False
    allow_runtime_changes: bool = True
    ignore_ipolicy: bool = False
    ignore_hvversions: bool = False


class OpInstanceQueryData(OpCode, frozen=True, kw_only=True, tag="OP_INSTANCE_QUERY_DATA"):
    """What `gnt-instance info` shows; no names means all instances."""

    instances: list[str] = []
    static: bool = False
    use_locking: bool = False

    host_changing: ClassVar[bool] = False


class OpInstanceConsole(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_CONSOLE"):
    """How to reach the instance's console."""

    host_changing: ClassVar[bool] = False
