"""Opcodes that exercise the system."""

from typing import ClassVar

from ganeti.model.opcodes.base import DiskRequest, NicRequest, OpCode
from ganeti.model.params import Params


class OpTestDelay(OpCode, frozen=True, kw_only=True, tag="OP_TEST_DELAY"):
    """Sleep for `duration` seconds, 0 included, on the master and on nodes, `repeat` more times."""

    duration: float
    on_master: bool = True
    on_nodes: list[str] = []
    on_node_uuids: list[str] | None = None
    repeat: int = 0
    interruptible: bool = False
    no_locks: bool = False

    summary_field: ClassVar[str | None] = "duration"
    host_changing: ClassVar[bool] = False


class OpTestAllocator(OpCode, frozen=True, kw_only=True, tag="OP_TEST_ALLOCATOR"):
    """Ask an allocator without creating anything (S188); direction `in` returns the message only."""

    direction: str = "out"
    mode: str = "allocate"
    name: str = "test.example.com"
    instances: list[str] = []
    evac_mode: str | None = None
    evac_nodes: list[str] = []
    target_groups: list[str] = []
    group_name: str | None = None
    spindle_use: int = 1
    count: int = 1
    """How many instances `multi-allocate` asks for."""
    max_moves: int | None = None
    iallocator: str | None = None
    disks: list[DiskRequest] = []
    nics: list[NicRequest] = []
    memory: int = 128
    vcpus: int = 1
    disk_template: str = "diskless"
    os: str = ""
    hypervisor: str | None = None
    tags: list[str] = []
    hvparams: Params = {}

    summary_field: ClassVar[str | None] = "iallocator"
    null_is_default: ClassVar[tuple[str, ...]] = (
        *OpCode.null_is_default,
        *("disk_template", "disks", "instances", "memory", "nics", "os", "target_groups", "vcpus"),
    )
    host_changing: ClassVar[bool] = False
