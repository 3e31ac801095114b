"""Opcodes that change the parameters, devices and disks of an instance."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.opcodes.base import (
    EarlyRelease,
    ExpectedSerial,
    ForceVariant,
    Iallocator,
    IgnoreIpolicy,
    NoConflictsCheck,
    NoWaitForSync,
)
from ganeti.model.opcodes.instance import OnInstance, instance_names
from ganeti.model.operation import (
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


def _ask_removed_disks(ops: Sequence[Any]) -> str | None:
    disks = [str(which) for op in ops for action, which, _params in op.disks if action == "remove"]
    if not disks:
        return None
    shown = ", ".join("the last one" if disk == "-1" else disk for disk in disks)
    return f"Remove from {instance_names(ops)} disk {shown}, and all data on it?"


def _ask_recreation(ops: Sequence[Any]) -> str | None:
    if not any(op.nodes or op.iallocator for op in ops):
        return None  # The job refuses to recreate a disk that exists.
    return f"Abandon any data that the present node may still have on the disks of {instance_names(ops)}?"


class OpInstanceSetParams(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_SET_PARAMS"):
    """Change an instance; None and empty dictionaries keep the present values.

    A dictionary changes only the keys that it contains; the value None or `default` restores the default.
    `disks` and `nics` are lists of changes `[action, identifier, parameters]`, made in order.

    - The action is `add`, `modify`, `remove`, and for disks `attach` or `detach`.
    - The identifier is an index, a name or a UUID. -1 is the last device; for `add`, the position after it.
    - `[action, parameters]` applies to the last device; `[index, parameters]` modifies a device.
    - `detach` keeps a disk and its data without an instance; `attach` adds such a disk by `name` or `uuid`.
    """

    force: bool = False
    force_variant: ForceVariant = False
    ignore_ipolicy: IgnoreIpolicy = False
    nics: Annotated[list[list[Any]], RefersTo.NIC_CHANGES] = []
    disks: Annotated[list[list[Any]], RefersTo.DISK_CHANGES] = []
    beparams: Annotated[Params, Field(
        "backend parameters, for example memory=512m,vcpus=2; the value 'default' uses the cluster's",
        "! -B --backend-parameters", "k=v,...", Form.BACKEND
    ), RefersTo.NOTHING] = {}  # fmt: skip
    runtime_mem: Annotated[int | None, Field(
        "memory of the running guest, by ballooning", "! -m --runtime-memory", "SIZE", Form.SIZE
    )] = None  # fmt: skip
    hvparams: Annotated[Params, Field(
        "hypervisor parameters; the value 'default' uses the cluster's", "! -H --hypervisor-parameters",
        "k=v,...", Form.KEY_VALUES
    ), RefersTo.HYPERVISOR_PARAMS] = {}  # fmt: skip
    os_name: Annotated[str | None, Field(
        "OS definition, for the next installation", "! -o --os-type", "OS[+VARIANT]"
    ), RefersTo.OS] = None  # fmt: skip
    osparams: Annotated[dict[str, str | None] | None, Field(
        "parameters of the OS definition; -k removes one", "! -O --os-parameters", "k=v,...",
        Form.OS_PARAMS
    ), RefersTo.OS_PARAMS] = None  # fmt: skip
    osparams_private: Annotated[dict[str, str | None] | None, Field(
        "private OS parameters, which are never shown again", "! --os-parameters-private", "k=v,...", Form.OS_PARAMS
    ), RefersTo.OS_PARAMS] = None  # fmt: skip
    clear_osparams: Annotated[bool, Field(
        "first remove all OS parameters of the instance", "! --clear-os-parameters"
    )] = False  # fmt: skip
    clear_osparams_private: Annotated[
        bool, Field("first remove all private OS parameters", "! --clear-os-parameters-private")
    ] = False
    remove_osparams: Annotated[list[str] | None, Field(
        "remove these OS parameters", "! --remove-os-parameters", "k,...", Form.WORDS
    ), RefersTo.NOTHING] = None  # fmt: skip
    remove_osparams_private: Annotated[list[str] | None, Field(
        "remove these private OS parameters", "! --remove-os-parameters-private", "k,...", Form.WORDS
    ), RefersTo.NOTHING] = None  # fmt: skip
    wait_for_sync: NoWaitForSync = True
    offline: bool | None = None
    template: Annotated[bool | None, Field(
        "make it a template, which cannot start and is cloned (gnt-instance clone)", "! --template",
        form=Form.YES_NO
    )] = None  # fmt: skip
    conflicts_check: NoConflictsCheck = True
    hotplug: Annotated[bool, Field("change the running guest at once, or fail")] = False
    hotplug_if_possible: Annotated[
        bool, Field("change the running guest at once if possible (the default)")
    ] = False
    disk_template: Annotated[str | None, Field(
        "move the disks to this template, or to another place of it: create new disks and copy the data", "-t",
        "TEMPLATE"
    ), RefersTo.NOTHING] = None  # fmt: skip
    ext_params: Annotated[Params, Field(
        "with -t: parameters of the new disks, for example vg=fast or provider=NAME", "! -e --ext-params",
        "k=v,...", Form.KEY_VALUES
    ), RefersTo.DISK_PARAMS] = {}  # fmt: skip
    file_driver: Annotated[str | None, RefersTo.NOTHING] = None
    file_storage_dir: Annotated[
        str | None, Field("subdirectory for new disks in files", metavar="NAME"), RefersTo.DIRECTORY
    ] = None
    bandwidth: Annotated[int, Field(
        "with -t, of a running instance: limit of the copied data of each disk in MiB/s; 0 (the default): none",
        metavar="MIB"
    )] = 0  # fmt: skip
    pnode: Annotated[str | None, Field(
        "record another primary node after you moved the disks by hand; excludes all other changes",
        "! --new-primary", "NODE"
    ), RefersTo.NODE] = None  # fmt: skip
    pnode_uuid: Annotated[str | None, RefersTo.NODE] = None
    remote_node: Annotated[str | None, Field(
        "with -t: node of the second copy of mirrored disks", "! -n --node", "NODE"
    ), RefersTo.NODE] = None  # fmt: skip
    remote_node_uuid: Annotated[str | None, RefersTo.NODE] = None
    iallocator: Annotated[str | None, RefersTo.ALLOCATOR] = None
    # Clients of upstream Ganeti send this field too; a value is refused.
    instance_communication: bool | None = None
    expected_serial: ExpectedSerial = None

    secret_fields: ClassVar[tuple[str, ...]] = ("osparams_private",)
    loss: ClassVar[Loss | None] = Loss(_ask_removed_disks, terminal_only=True)
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/instances/{instance}/modify",
            renamed={"custom_beparams": "beparams", "custom_hvparams": "hvparams"}),
    )  # fmt: skip


class OpInstanceGrowDisk(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_GROW_DISK"):
    """Grow a disk by `amount` MiB, or to this size with `absolute`; a running guest sees the new size."""

    disk: int
    amount: int
    absolute: Annotated[bool, Field("use the amount as the new size")] = False
    wait_for_sync: NoWaitForSync = True
    ignore_ipolicy: IgnoreIpolicy = False

    no_loss: ClassVar[str] = "disks never shrink"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/instances/{instance}/disk/{disk}/grow",
            summary="Grow a disk", name="instances_name_disk_grow"),
    )  # fmt: skip


class OpInstanceRecreateDisks(
    OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_RECREATE_DISKS"
):
    """Recreate lost disks as empty disks.

    `disks` are indices or `[index, {size, mode}]`; an empty list is all disks. `nodes` or an allocator choose
    other nodes than the present ones.
    """

    disks: Annotated[list[int | list[Any]], RefersTo.DISK_CHANGES] = []
    nodes: Annotated[list[str], RefersTo.NODE] = []
    node_uuids: Annotated[list[str] | None, RefersTo.NODE] = None
    iallocator: Iallocator = None

    loss: ClassVar[Loss | None] = Loss(_ask_recreation, terminal_only=True)
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/instances/{instance}/recreate-disks", summary="Recreate lost disks"),
    )  # fmt: skip


class OpInstanceReplaceDisks(
    OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_REPLACE_DISKS"
):
    """Replace the mirrors of disks on one node.

    `mode` is `replace_on_primary`, `replace_on_secondary`, `replace_auto` (on the node with a broken mirror)
    or `replace_new_secondary`. `disks` are indices; an empty list is all disks.
    """

    mode: Annotated[str, RefersTo.NOTHING]
    disks: list[int] = []
    remote_node: Annotated[str | None, Field(
        "new secondary node", "! -n --new-secondary", "NODE"
    ), RefersTo.NODE] = None  # fmt: skip
    remote_node_uuid: Annotated[str | None, RefersTo.NODE] = None
    iallocator: Iallocator = None
    early_release: EarlyRelease = False
    ignore_ipolicy: IgnoreIpolicy = False

    no_loss: ClassVar[str] = "replaces a copy only if the other copy has all data"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/instances/{instance}/replace-disks", (
            *(
                Parameter(name, Value.TEXT, "for old clients, which send no body")
                for name in ("remote_node", "mode", "disks", "iallocator")
            ),
            Parameter("early_release", Value.FLAG, "for old clients, which send no body"),
        ), summary="Replace the mirrors of an instance's disks"),
    )  # fmt: skip


class OpInstanceActivateDisks(
    OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_ACTIVATE_DISKS"
):
    """Activate the disks on the primary node; the result is a list of `[node, disk/N, path]`."""

    ignore_size: Annotated[bool, Field("skip the comparison of sizes with the configuration")] = (
        False
    )
    wait_for_sync: Annotated[bool, Field("wait for the synchronisation of mirrored disks")] = False
    if_wanted: bool = False
    """Activate the disks only if the instance's desired state is up."""

    no_loss: ClassVar[str] = "keeps the disks"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/instances/{instance}/activate-disks", (
            Parameter("ignore_size", Value.FLAG, "Ignore the recorded sizes.", "ignore_size"),
        ), Right.OPERATE, "Activate an instance's disks on its primary node", has_body=False),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-instance", "activate-disks", (INSTANCE,),
        lines=lambda _op, disks: [":".join(disk) for disk in disks],
        doc="Activate an instance's disks on its primary node, and print node:name:path for each.",
    )  # fmt: skip


class OpInstanceDeactivateDisks(
    OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_DEACTIVATE_DISKS"
):
    """Deactivate disks; refused while the guest runs, unless forced."""

    force: bool = False

    no_loss: ClassVar[str] = "keeps the disks"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/instances/{instance}/deactivate-disks", (FORCE,), Right.OPERATE, "Deactivate an instance's disks", has_body=False),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-instance", "deactivate-disks", (INSTANCE,), confirming=("force",),
        doc="Deactivate an instance's disks; refused while the instance runs, unless --force is given.",
    )  # fmt: skip
