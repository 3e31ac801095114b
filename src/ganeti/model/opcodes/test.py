"""Opcodes that test the system."""

from typing import Annotated, Any, ClassVar

from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.iallocator import RequestType
from ganeti.model.opcodes.base import DiskRequest, NicRequest, OpCode, SecretOsParams
from ganeti.model.operation import Command
from ganeti.model.params import Params


class OpTestDelay(OpCode, frozen=True, kw_only=True, tag="OP_TEST_DELAY"):
    """Sleep for `duration` seconds (0 is valid) on the master and on nodes, and repeat this `repeat` times."""

    duration: float
    on_master: Annotated[
        bool, Field("do not sleep on the master", "! --no-master", form=Form.OFF)
    ] = True
    on_nodes: Annotated[list[str], Field(
        "sleep on this node as well; may be repeated", "! -n", "NODE", Form.REPEATED
    ), RefersTo.NODE] = []  # fmt: skip
    on_node_uuids: Annotated[list[str] | None, RefersTo.NODE] = None
    repeat: Annotated[int, Field("number of repetitions", "-r", "TIMES")] = 0
    interruptible: Annotated[bool, Field("end early if the job is cancelled", "-i")] = False
    no_locks: Annotated[bool, Field("take no locks", "-l")] = False

    summary_field: ClassVar[str | None] = "duration"
    host_changing: ClassVar[bool] = False


class OpTestAllocator(OpCode, frozen=True, kw_only=True, tag="OP_TEST_ALLOCATOR"):
    """Send a request to an allocator and change nothing (S188); direction `in` only returns the request."""

    direction: Annotated[str, Field(
        "show the message to the allocator (in) or its answer (out)", "! --dir", choices=("in", "out")
    ), RefersTo.CLUSTER] = "out"  # fmt: skip
    mode: Annotated[str, Field(
        "allocate, relocate, node-evacuate, change-group, multi-allocate, multi-evacuate, balance or"
        " capacity", "-m", "MODE", choices=tuple(RequestType)
    ), RefersTo.NOTHING] = "allocate"  # fmt: skip
    name: Annotated[str, RefersTo.NEW_INSTANCE] = "test.example.com"
    instances: Annotated[list[str], RefersTo.INSTANCE] = []
    evac_mode: Annotated[str | None, Field(
        "for node-evacuate: primary-only, secondary-only or all", metavar="MODE",
        choices=("primary-only", "secondary-only", "all")
    ), RefersTo.NOTHING] = None  # fmt: skip
    evac_nodes: Annotated[list[str], RefersTo.NODE] = []
    target_groups: Annotated[list[str], Field(
        "for change-group: groups to choose from; default: all other groups", metavar="GROUP,...",
        form=Form.WORDS
    ), RefersTo.GROUP] = []  # fmt: skip
    group_name: Annotated[
        str | None, Field("group to allocate in", "! -g --node-group", "GROUP"), RefersTo.GROUP
    ] = None
    spindle_use: Annotated[int, Field("spindles that the instance uses (1)", metavar="N")] = 1
    count: Annotated[int, Field("for multi-allocate: number of instances (1)", metavar="N")] = 1
    max_moves: Annotated[int | None, Field("for balance: maximum number of moves", metavar="N")] = (
        None
    )
    iallocator: Annotated[str | None, Field(
        "allocator; default: the cluster's", "-I", "NAME"
    ), RefersTo.ALLOCATOR] = None  # fmt: skip
    disks: Annotated[list[DiskRequest], Field(
        "a disk; may be repeated", "! --disk", "N:size=SIZE", Form.DISKS
    )] = []  # fmt: skip
    nics: Annotated[
        list[NicRequest],
        Field("network interface; may be repeated", "! --net", "N:k=v,...", Form.NICS),
    ] = []
    memory: Annotated[
        int, Field("memory of the instance (128m)", metavar="SIZE", form=Form.SIZE)
    ] = 128
    vcpus: Annotated[int, Field("virtual processors (1)", "-c -p", "N")] = 1
    disk_template: Annotated[
        str, Field("disk template (diskless)", "-t", "TEMPLATE"), RefersTo.NOTHING
    ] = "diskless"
    os: Annotated[str, Field("OS definition", "! -o --os-type", "OS"), RefersTo.OS] = ""
    hypervisor: Annotated[str | None, Field("hypervisor", "-H", "NAME"), RefersTo.NOTHING] = None
    tags: Annotated[
        list[str], Field("tags of the instance", metavar="TAG,...", form=Form.WORDS), RefersTo.TAG
    ] = []
    hvparams: Annotated[Params, RefersTo.HYPERVISOR_PARAMS] = {}

    summary_field: ClassVar[str | None] = "iallocator"
    null_is_default: ClassVar[tuple[str, ...]] = (
        *OpCode.null_is_default,
        *("disk_template", "disks", "instances", "memory", "nics", "os", "target_groups", "vcpus"),
    )
    host_changing: ClassVar[bool] = False


class OpTestDummy(OpCode, frozen=True, kw_only=True, tag="OP_TEST_DUMMY"):
    """Log `messages`, submit jobs, then fail with `fail` or end with `result`."""

    result: Annotated[Any, RefersTo.NOTHING] = None
    messages: Annotated[list[str] | str | None, RefersTo.NOTHING] = None
    fail: Annotated[str | bool | None, RefersTo.NOTHING] = None
    submit_jobs: Annotated[list[list[dict[str, Any]]] | None, RefersTo.CLUSTER] = None

    host_changing: ClassVar[bool] = False


class OpTestJqueue(OpCode, frozen=True, kw_only=True, tag="OP_TEST_JQUEUE"):
    """Report the opcode's progress in log lines of the kind `jqueue-test`; log messages, or fail.

    Each such line is `[socket, test, argument]`. The opcode continues when a program has connected to the socket
    and hung up.
    """

    notify_waitlock: bool = False
    notify_exec: bool = False
    log_messages: Annotated[list[str], RefersTo.NOTHING] = []
    fail: bool = False

    host_changing: ClassVar[bool] = False


class OpTestOsParams(OpCode, frozen=True, kw_only=True, tag="OP_TEST_OS_PARAMS"):
    """Return the names of the secret parameters that have reached the master, and their lengths."""

    osparams_secret: Annotated[dict[str, str], SecretOsParams, RefersTo.OS_PARAMS] = {}

    secret_fields: ClassVar[tuple[str, ...]] = ("osparams_secret",)
    null_is_default: ClassVar[tuple[str, ...]] = (*OpCode.null_is_default, "osparams_secret")
    host_changing: ClassVar[bool] = False
    cli: ClassVar[Command | None] = Command(
        "gnt-debug", "test-osparams",
        lines=lambda _op, found: [f"{name}: {length} characters" for name, length in sorted(found.items())],
        doc="Send secret OS parameters to the master, and show the name and length of each received one.",
    )  # fmt: skip
