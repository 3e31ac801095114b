"""Opcodes about the cluster as a whole."""

from typing import Any, ClassVar

from ganeti.model.opcodes.base import OpCode
from ganeti.model.params import Params


class OpClusterPostInit(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_POST_INIT"):
    """The first job of a cluster: bring every node's files up to date."""


class OpClusterDestroy(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_DESTROY"):
    """Refuse unless only the master is left; the command then removes its data."""


class OpClusterQuery(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_QUERY"):
    """What `gnt-cluster info` shows, as a job."""

    host_changing: ClassVar[bool] = False


class OpClusterVerify(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_VERIFY"):
    """Check everything: submits one job for the configuration and one for each node group."""

    debug_simulate_errors: bool = False
    error_codes: bool = False
    skip_checks: list[str] = []
    ignore_errors: list[str] = []
    verbose: bool = False
    group_name: str | None = None
    verify_clutter: bool = False

    host_changing: ClassVar[bool] = False


class OpClusterVerifyConfig(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_VERIFY_CONFIG"):
    """Check the configuration against itself; the result is True if it is sound."""

    debug_simulate_errors: bool = False
    error_codes: bool = False
    ignore_errors: list[str] = []
    verbose: bool = False

    host_changing: ClassVar[bool] = False


class OpClusterVerifyGroup(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_VERIFY_GROUP"):
    """Check the nodes and instances of one group; the result is True if all is well."""

    group_name: str
    debug_simulate_errors: bool = False
    error_codes: bool = False
    skip_checks: list[str] = []
    ignore_errors: list[str] = []
    verbose: bool = False
    verify_clutter: bool = False

    summary_field: ClassVar[str | None] = "group_name"
    host_changing: ClassVar[bool] = False


class OpClusterSetParams(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_SET_PARAMS"):
    """Change the cluster's parameters; None leaves a thing as it is.

    Of dictionaries only the given names change; None as a value takes the default again.
    """

    enabled_hypervisors: list[str] | None = None
    enabled_disk_templates: list[str] | None = None
    hvparams: dict[str, Params] | None = None
    os_hvp: dict[str, dict[str, Params]] | None = None
    osparams: dict[str, Params] | None = None
    beparams: Params | None = None
    nicparams: Params | None = None
    diskparams: dict[str, Params] | None = None
    ndparams: Params | None = None
    ipolicy: Params | None = None
    candidate_pool_size: int | None = None
    max_running_jobs: int | None = None
    default_iallocator: str | None = None
    default_iallocator_params: Params | None = None
    mac_prefix: str | None = None
    master_netdev: str | None = None
    master_netmask: int | None = None
    file_storage_dir: str | None = None
    shared_file_storage_dir: str | None = None
    remote_hvparams: list[str] | None = None
    """Names of hypervisor parameters that touch the host, and that REST users may set all the same."""
    uid_pool: list[tuple[int, int]] | None = None
    add_uids: list[tuple[int, int]] | None = None
    remove_uids: list[tuple[int, int]] | None = None
    hidden_os: list[tuple[str, str]] | None = None
    """Pairs of `add` or `remove` and the name of an OS, without variant."""
    blacklisted_os: list[tuple[str, str]] | None = None
    enabled_data_collectors: dict[str, bool | None] | None = None
    data_collector_interval: dict[str, int | None] | None = None
    """Microseconds."""
    force: bool = False
    # Clients of Ganeti name all that they know, without values; what has one is refused.
    hv_state: Any = None
    disk_state: Any = None
    vg_name: Any = None
    osparams_private_cluster: Any = None
    max_tracked_jobs: Any = None
    maintain_node_health: Any = None
    prealloc_wipe_disks: Any = None
    drbd_helper: Any = None
    reserved_lvs: Any = None
    use_external_mip_script: Any = None
    modify_etc_hosts: Any = None
    gluster_storage_dir: Any = None
    install_image: Any = None
    instance_communication_network: Any = None
    zeroing_image: Any = None
    compression_tools: Any = None
    enabled_user_shutdown: Any = None


class OpClusterRedistConf(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_REDIST_CONF"):
    """Give every node the ssconf files and the files that all nodes must have (S65-S69)."""


class OpClusterActivateMasterIp(
    OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_ACTIVATE_MASTER_IP"
):
    """Configure the cluster's address on the master."""


class OpClusterDeactivateMasterIp(
    OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_DEACTIVATE_MASTER_IP"
):
    """Take the cluster's address from the master."""
