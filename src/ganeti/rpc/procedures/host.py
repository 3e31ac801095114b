"""Procedures about the node itself."""

from ganeti.model.disk_templates import StorageUnit
from ganeti.model.host_facts import HostFacts, HostQuestion
from ganeti.rpc.procedures.form import HOURS_S, NORMAL_S, QUICK_S, Message, Nothing, Procedure


class NodeVersion(Message, frozen=True, kw_only=True):
    """The node's identity: software and RPC version, name and cluster ('' before a join)."""

    software: str
    protocol: int
    node_name: str
    cluster_uuid: str


class NodeInfoArgs(Message, frozen=True, kw_only=True):
    hypervisors: list[str]
    storage: list[StorageUnit] = []


class StorageSpace(Message, frozen=True, kw_only=True):
    """Space of one storage unit for disks, in MiB."""

    unit: StorageUnit
    total: int
    free: int
    devices: int = 0
    """For a volume group: its physical volumes."""
    free_devices: int = 0
    """Physical volumes that a new disk could use exclusively."""
    promised: int = 0
    """For a thin pool: the sizes of its volumes together, which may exceed its own."""


class NodeInfo(Message, frozen=True, kw_only=True):
    memory_total: int
    memory_free: int
    memory_node: int
    """Used by the host itself."""
    cpu_total: int
    cpu_nodes: int
    cpu_sockets: int
    cpu_node: int
    """Processors reserved for the host."""
    boot_id: str
    time: float
    storage: list[StorageSpace]
    hypervisor_versions: dict[str, str]


class VerifyArgs(Message, frozen=True, kw_only=True):
    hypervisors: list[str]
    storage: list[StorageUnit] = []
    nodes: list[tuple[str, str, int]] = []
    """(name, address, port) of nodes that this one must reach."""
    files: list[str] = []
    """Files to compute the checksums of."""
    exclusive: bool = False
    """True if two disks must not share a physical device."""


_WIRE_NAMES = {"preserved_states": "states_aside", "preserved_contents": "asides_hold"}


class VerifyReport(Message, frozen=True, kw_only=True, rename=_WIRE_NAMES):
    """Result of a node's check of itself; each problem is a sentence."""

    software: str
    protocol: int
    time: float
    hypervisor_problems: dict[str, list[str]]
    storage_problems: list[str]
    sharing_problems: list[str] = []
    connection_problems: dict[str, str]
    """Name of another node -> why it cannot be reached."""
    certificate_not_after: float
    ssconf_position: int
    """Position of the ssconf set that is current here; -1 without one."""
    writable_problems: list[str]
    """Directories of this node that the daemon cannot write."""
    ssconf_checksum: str = ""
    """Checksum of the current set (`ganeti.ssconf.checksum`); '' if it cannot be read."""
    file_checksums: dict[str, str] = {}
    """SHA-256 of the requested files that exist here."""
    permission_problems: list[str] = []
    """Paths with another owner or mode than they must have."""
    authority: str = ""
    """Fingerprint of the cluster's authority, as this node has it."""
    authority_not_after: float | None = None
    preserved_states: list[str] = []
    """Preserved states of former masters (R9)."""
    preserved_contents: dict[str, str] = {}
    """Path of a readable preserved state -> its contents that the current state lacks."""
    role_files: list[str] | None = None
    """Files here that only some roles may have (`ganeti.base.roles`), by their names in the cluster.

    None from a node of an earlier release.
    """
    role_daemons: list[str] = []
    """Daemons running here that only some roles may run."""
    mirror_version: str = ""
    """Version of the kernel module; '' if it is not loaded."""
    mirror_helper: str = ""
    """Program that the module calls for events."""


class TestDelayArgs(Message, frozen=True, kw_only=True):
    duration_s: float


class HypervisorsArgs(Message, frozen=True, kw_only=True):
    hypervisors: list[str]


class LeaveArgs(Message, frozen=True, kw_only=True):
    """Remove the cluster's data: certificates, ssconf, register and storage lists."""

    cluster_uuid: str


VERSION = Procedure("version", Nothing, NodeVersion, QUICK_S, changes=False)

NODE_INFO = Procedure("node_info", NodeInfoArgs, NodeInfo, NORMAL_S, changes=False)

NODE_VERIFY = Procedure("node_verify", VerifyArgs, VerifyReport, NORMAL_S, changes=False)

HOST_FACTS = Procedure("host_facts", HostQuestion, HostFacts, NORMAL_S, changes=False)

TEST_DELAY = Procedure("test_delay", TestDelayArgs, Nothing, HOURS_S, changes=False)

LEAVE_CLUSTER = Procedure("leave_cluster", LeaveArgs, Nothing, NORMAL_S, changes=True)
