"""Opcodes that change what an instance has: its parameters, its devices, its disks."""

from typing import Any, ClassVar

from ganeti.model.opcodes.instance import OnInstance
from ganeti.model.params import Params


class OpInstanceSetParams(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_SET_PARAMS"):
    """Change an instance; None, or an empty dictionary, leaves a thing as it is.

    Of dictionaries only the given names change; None or `default` as a value takes the default again.
    `disks` and `nics` hold changes `[action, identifier, parameters]`, carried out in order: the action
    is `add`, `modify` or `remove`, the identifier an index (-1: the last one, or behind it), a name or a
    UUID. `[action, parameters]` means the last one, `[index, parameters]` modifies.
    """

    force: bool = False
    force_variant: bool = False
    ignore_ipolicy: bool = False
    nics: list[list[Any]] = []
    disks: list[list[Any]] = []
    beparams: Params = {}
    runtime_mem: int | None = None
    hvparams: Params = {}
    os_name: str | None = None
    osparams: dict[str, str | None] | None = None
    osparams_private: dict[str, str | None] | None = None
    clear_osparams: bool = False
    clear_osparams_private: bool = False
    remove_osparams: list[str] | None = None
    remove_osparams_private: list[str] | None = None
    wait_for_sync: bool = True
    offline: bool | None = None
    conflicts_check: bool = True
    hotplug: bool = False
    hotplug_if_possible: bool = False
    # Clients of Ganeti name these too; what has a value is refused.
    disk_template: str | None = None
    ext_params: Params = {}
    file_driver: str | None = None
    file_storage_dir: str | None = None
    pnode: str | None = None
    pnode_uuid: str | None = None
    remote_node: str | None = None
    remote_node_uuid: str | None = None
    iallocator: str | None = None
    instance_communication: bool | None = None

    secret_fields: ClassVar[tuple[str, ...]] = ("osparams_private",)


class OpInstanceGrowDisk(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_GROW_DISK"):
    """Make a disk larger by `amount` MiB, or `absolute`ly so large; a running guest is told."""

    disk: int
    amount: int
    absolute: bool = False
    wait_for_sync: bool = True
    ignore_ipolicy: bool = False


class OpInstanceRecreateDisks(
    OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_RECREATE_DISKS"
):
    """Make disks anew, empty, whose data was lost: indices or `[index, {size, mode}]`; none means all.

    `nodes`, or an allocator, say where, if not where they were.
    """

    disks: list[int | list[Any]] = []
    nodes: list[str] = []
    node_uuids: list[str] | None = None
    iallocator: str | None = None


class OpInstanceActivateDisks(
    OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_ACTIVATE_DISKS"
):
    """Make the disks usable on the primary node; the result is a list of `[node, disk/N, path]`."""

    ignore_size: bool = False
    wait_for_sync: bool = False


class OpInstanceDeactivateDisks(
    OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_DEACTIVATE_DISKS"
):
    """Undo the activation of disks; refused while the guest runs, unless forced."""

    force: bool = False
