"""The description of a cluster that the placement tools work on: groups, nodes, instances; sizes in MiB.

The readers (`load/`) and the writer (`load/text.py`) use this form; `state.py` makes arrays of it.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.model.disk_templates import TEMPLATES, DiskTemplate
from ganeti.model.params import IPOLICY_DEFAULTS

Policy = Mapping[str, Any]
"""An instance policy in the allocator's form: `minmax`, `std`, `disk-templates`, `vcpu-ratio`, `spindle-ratio`."""


class Failure(StrEnum):
    """The reasons against an instance on a node; the names are those that `hspace` prints."""

    MEMORY = "FailMem"
    DISK = "FailDisk"
    CPU = "FailCPU"
    REDUNDANCY = "FailN1"
    TAGS = "FailTags"
    MIGRATION = "FailMig"
    DISK_COUNT = "FailDiskCount"
    SPINDLES = "FailSpindles"
    INTERNAL = "FailInternal"


RUNNING = ("running", "ERROR_up")
SWITCHED_OFF = "ADMIN_offline"


class Group(msgspec.Struct, frozen=True):
    """A node group; `alloc_policy` is preferred, last_resort or unallocable."""

    name: str
    uuid: str
    alloc_policy: str = "preferred"
    tags: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    policy: Policy = msgspec.field(default_factory=lambda: IPOLICY_DEFAULTS)


class Node(msgspec.Struct, frozen=True, gc=False):
    """A node; `offline` includes drained and not vm_capable, `node_*` is the node's own use."""

    name: str
    group: str
    total_memory: float = 0
    node_memory: float = 0
    free_memory: float = 0
    total_disk: float = 0
    free_disk: float = 0
    total_cpus: float = 0
    node_cpus: float = 1
    offline: bool = False
    why_offline: str = "offline"
    is_master: bool = False
    total_spindles: float = 0
    free_spindles: float = 0
    exclusive_storage: bool = False
    tags: tuple[str, ...] = ()
    cpu_speed: float = 1.0
    own_load: float = 0.0
    """Processors that the node itself keeps busy, if known."""

    @property
    def is_lost(self) -> bool:
        """True if the node is down; a node that is only drained is up."""
        return self.offline and self.why_offline == "offline"


class Instance(msgspec.Struct, frozen=True, gc=False):
    """An existing or a requested instance.

    `status` is Ganeti's word, `networks` are the UUIDs that its interfaces need.
    """

    name: str
    memory: float
    disk: float
    vcpus: float
    status: str = "running"
    auto_balance: bool = True
    primary: str = ""
    secondary: str = ""
    template: str = "plain"
    tags: tuple[str, ...] = ()
    spindle_use: float = 1
    spindles: float | None = None
    disks: tuple[float, ...] = ()
    nics: int | None = None
    networks: tuple[str, ...] = ()
    protection: int | None = None
    """The priority of its recovery on another node; None if a lost node takes it along."""

    @property
    def nodes_needed(self) -> int:
        """1, or 2 for a mirrored template."""
        return facts(self.template).nodes_needed


class Cluster(msgspec.Struct, frozen=True):
    """The description of a whole cluster.

    `utilisation` is the load of instances by name: processor, memory, disk, network.
    """

    groups: Sequence[Group]
    nodes: Sequence[Node]
    instances: Sequence[Instance]
    tags: Sequence[str] = ()
    policy: Policy = msgspec.field(default_factory=lambda: IPOLICY_DEFAULTS)
    utilisation: Mapping[str, tuple[float, float, float, float]] = {}


def facts(template: str) -> DiskTemplate:
    """Return the facts about a template; PrereqError if it does not exist."""
    found = TEMPLATES.get(template)
    if found is None:
        raise PrereqError(f"unknown disk template {template!r:.40}", ErrorCode.WRONG_INPUT)
    return found
