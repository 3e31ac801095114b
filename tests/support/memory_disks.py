"""Two disk templates that exist only in tests, and the nodes that keep them: the proof that there is room for more.

`memory` is like a logical volume: a name in a pool of one node. `memory-pair` is like DRBD: a numbered
device on two nodes, each above a volume of its own, that brings the other's copy up to date.
What they add is what a new template adds: two rows, two planners, two drivers, one kind of storage.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.layouts.planner import Names, NewDisk, Planner, Site
from ganeti.layouts.registry import PLANNERS
from ganeti.model.disk_templates import (
    DISK_TEMPLATES,
    TEMPLATES,
    DiskTemplate,
    Mirror,
    StorageFacts,
    StorageUnit,
)
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.names import DiskRole
from ganeti.model.objects import Disk, NodeUuid
from ganeti.node import storage as disk_calls
from ganeti.node.disks import InstanceDisks
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call, Handler, Handlers
from ganeti.rpc.procedures.devices import DeviceAction
from ganeti.rpc.procedures.disks import StoredDisk, SyncStatus
from ganeti.rpc.procedures.host import StorageSpace
from ganeti.rpc.procedures.storage_units import UnitState
from ganeti.simulation.nodes.model import ModelNode
from ganeti.simulation.nodes.storage import SharedDirectory
from ganeti.storage import assemble
from ganeti.storage.assemble import device
from ganeti.storage.interface import BlockDevice, Snapshots
from ganeti.storage.kind import StorageKind
from ganeti.storage.kinds import KINDS

POOL = "pool0"
UNIT = StorageUnit(kind="memory", key=POOL)
LOOKS = 2
"""How often a synchronisation is looked at before it is done."""

# --- the rows ---

MEMORY = DiskTemplate(
    "memory",
    has_driver=True,
    storage=StorageFacts("memory", param="pool"),
    uses_node_disk=True,
    params={"pool": POOL},
)
PAIR = DiskTemplate(
    "memory-pair",
    Mirror.INTERNAL,
    has_driver=True,
    lower="memory",
    has_port=True,
    has_numbers=True,
    uses_node_disk=True,
    is_balanced=True,
)

# --- the planners ---


def _volume(names: Names) -> tuple[str, str]:
    return POOL, f"volume-{names.uuid()}"


class MemoryPlanner(Planner):
    template = MEMORY

    def new_disk(self, request: NewDisk, site: Site, names: Names) -> Disk:
        return Disk(
            uuid=names.uuid(),
            size=request.size,
            template=self.template.name,
            logical_id=_volume(names),
            mode=request.mode,
            name=request.name,
            params=request.params or {},
        )


class PairPlanner(Planner):
    template = PAIR

    def new_disk(self, request: NewDisk, site: Site, names: Names) -> Disk:
        lower = Disk(uuid=names.uuid(), size=request.size, template=MEMORY.name)
        return Disk(
            uuid=names.uuid(),
            size=request.size,
            template=self.template.name,
            logical_id=(names.port(), "secret"),
            children=(lower,),
            mode=request.mode,
            name=request.name,
            params=request.params or {},
        )

    def placed(self, disk: Disk, nodes: Sequence[NodeUuid], names: Names) -> Disk:
        (lower,) = disk.children
        kind = self.template.name
        return replace(
            disk,
            parts={node: disk.parts.get(node) or (names.number(kind, node),) for node in nodes},
            children=(
                replace(
                    lower,
                    parts={node: lower.parts.get(node) or _volume(names) for node in nodes},
                ),
            ),
        )

    def renewed(self, disk: Disk, node: NodeUuid, names: Names) -> Disk:
        (lower,) = disk.children
        return replace(
            disk, children=(replace(lower, parts={**lower.parts, node: _volume(names)}),)
        )

    def grown(self, disk: Disk, size: int) -> Disk:
        (lower,) = disk.children
        return replace(disk, size=size, children=(replace(lower, size=size),))


# --- the drivers ---


@dataclass
class Part:
    """One end of a pair: its disk, the volume below, what the node does with it."""

    disk: str
    size: int
    volume: str = ""
    role: DiskRole | None = None
    peer: tuple[str, int] | None = None
    looks_left: int = 0


@dataclass
class Memory:
    """What one node keeps: volumes with what was written to them, and ends of pairs by their numbers."""

    pool: SharedDirectory
    parts: dict[int, Part] = field(default_factory=dict)


NODES: dict[str, Memory] = {}
"""By name of the node."""
WRITTEN: dict[str, int] = {}
"""UUID of a disk -> how often a guest has written to it."""


def memory_of(paths: Paths) -> Memory:
    return NODES[paths.root.name]


class MemoryDisk(BlockDevice, Snapshots):
    """A volume in a pool, with snapshots."""

    template: ClassVar[DiskTemplate] = MEMORY

    def __init__(self, paths: Paths, disk: DiskSpec) -> None:
        self._disk, self._pool = disk, memory_of(paths).pool
        self.name = str(disk.own_id[1])
        self.snapshots = self

    @property
    def path(self) -> str:
        return f"/dev/{POOL}/{self.name}"

    @property
    def content(self) -> int:
        """How often it was written to."""
        return int(self._pool.contents.get(self.name) or 0)

    @content.setter
    def content(self, value: int) -> None:
        self._pool.contents[self.name] = str(value)

    async def create(self, size_mib: int) -> None:
        if self.name in self._pool.disks:
            return
        if size_mib > self._pool.free:
            raise StorageError(f"{self.path}: no space left")
        self._pool.disks[self.name] = size_mib
        self._pool.contents[self.name] = "0"

    async def remove(self) -> None:
        self._pool.disks.pop(self.name, None)
        self._pool.contents.pop(self.name, None)

    async def open(self, role: DiskRole) -> None:
        await self.check_identity()
        if role is DiskRole.PRIMARY and self.content != WRITTEN.get(self._disk.uuid, self.content):
            raise StorageError(f"{self.path}: old data")

    async def close(self) -> None:
        """Nothing was set up."""

    async def grow(self, size_mib: int) -> None:
        await self.check_identity()
        more = size_mib - self._pool.disks[self.name]
        if more > self._pool.free:
            raise StorageError(f"{self.path}: no space left")
        self._pool.disks[self.name] = max(size_mib, self._pool.disks[self.name])

    async def size_mib(self) -> int | None:
        return self._pool.disks.get(self.name)

    async def check_identity(self) -> None:
        if self._pool.disks.get(self.name, 0) < self._disk.size:
            raise StorageError(f"{self.path}: it is not there, or too small")

    async def take(self, name: str) -> str:
        await self.check_identity()
        self._pool.contents[f"{self.name}@{name}"] = str(self.content)
        return f"{self.path}@{name}"

    async def make(self, name: str) -> None:
        await self.take(name)

    async def roll_back(self, name: str) -> None:
        await self.check_identity()
        self._pool.contents[self.name] = self._pool.contents[f"{self.name}@{name}"]

    async def drop(self, name: str, *, unsure: bool = True) -> None:
        del unsure
        self._pool.contents.pop(f"{self.name}@{name}", None)


class PairDisk(BlockDevice):
    """One end of a pair."""

    template: ClassVar[DiskTemplate] = PAIR

    def __init__(self, paths: Paths, disk: DiskSpec) -> None:
        (lower,) = disk.children
        (peer,) = disk.peers
        self._disk, self._memory, self._node = disk, memory_of(paths), paths.root.name
        self._number, self._peer = int(disk.own_id[0]), peer
        below = device(paths, "", lower)
        assert isinstance(below, MemoryDisk)
        self._below = below
        self.mirror = self

    @property
    def path(self) -> str:
        return f"/dev/pair{self._number}"

    def _part(self) -> Part:
        part = self._memory.parts.get(self._number)
        if part is None or part.disk != self._disk.uuid:
            raise StorageError(f"{self.path}: there is no such device")
        return part

    def _other(self) -> tuple[Part, "PairDisk"] | None:
        """The other end, if both ends are open and look for each other."""
        there = NODES.get(self._peer.name)
        part = there.parts.get(int(self._peer.part[0])) if there else None
        if there is None or part is None or part.disk != self._disk.uuid or self._peer.offline:
            return None
        if part.role is None or part.peer != (self._node, self._number):
            return None
        own = replace(self._disk.peers[0], name=self._node, part=(self._number,))
        lower = replace(self._disk.children[0], part=(POOL, part.volume))
        spec = replace(self._disk, part=self._peer.part, peers=(own,), children=(lower,))
        return part, PairDisk(Paths(Path("/") / self._peer.name), spec)

    @property
    def _latest(self) -> int:
        return WRITTEN.get(self._disk.uuid, 0)

    async def create(self, size_mib: int) -> None:
        found = self._memory.parts.get(self._number)
        if found is not None and found.disk != self._disk.uuid:
            raise StorageError(f"{self.path}: another disk has this number")
        await self._below.create(size_mib)
        self._memory.parts.setdefault(self._number, Part(self._disk.uuid, size_mib))

    async def remove(self) -> None:
        found = self._memory.parts.get(self._number)
        if found is not None and found.disk == self._disk.uuid:
            if found.role in (DiskRole.PRIMARY, DiskRole.BOTH):
                raise StorageError(f"{self.path}: it is in use")
            del self._memory.parts[self._number]
        await self._below.remove()

    async def open(self, role: DiskRole) -> None:
        part = self._part()
        await self._below.check_identity()
        if part.volume != self._below.name:
            part.volume = self._below.name
        part.peer = (self._peer.name, int(self._peer.part[0]))
        before, part.role = part.role, part.role or DiskRole.SECONDARY
        try:
            self._check_role(role)
        except StorageError:
            part.role = before
            raise
        part.role = role
        other = self._other()
        if other is not None and self._below.content != other[1]._below.content:
            part.looks_left = other[0].looks_left = LOOKS

    def _check_role(self, role: DiskRole) -> None:
        other = self._other()
        if role is DiskRole.SECONDARY:
            return
        if other is None and not self._peer.offline:
            raise StorageError(f"{self.path}: {self._peer.name} does not answer")
        has_all = self._below.content == self._latest
        if not has_all and (other is None or other[1]._below.content != self._latest):
            raise StorageError(f"{self.path}: no copy has all that was written")
        theirs = other[0].role if other is not None else None
        if theirs is DiskRole.PRIMARY or (theirs is DiskRole.BOTH and role is not DiskRole.BOTH):
            raise StorageError(f"{self.path}: {self._peer.name} writes to it")

    async def close(self) -> None:
        found = self._memory.parts.get(self._number)
        if found is not None and found.disk == self._disk.uuid:
            found.role = found.peer = None

    async def grow(self, size_mib: int) -> None:
        part, other = self._part(), self._other()
        below = [await self._below.size_mib()]
        if other is not None:
            below.append(await other[1]._below.size_mib())
        if min(size or 0 for size in below) < size_mib:
            raise StorageError(f"{self.path}: a volume below is too small")
        part.size = size_mib
        if other is not None:
            other[0].size = size_mib

    async def size_mib(self) -> int | None:
        found = self._memory.parts.get(self._number)
        below = await self._below.size_mib()
        if found is None or found.disk != self._disk.uuid or below is None:
            return None
        return min(found.size, below)

    async def check_identity(self) -> None:
        self._part()
        await self._below.check_identity()

    async def outdate(self) -> None:
        """Which end is behind is known here anyway: `_latest`."""

    async def at_rest(self) -> SyncStatus | None:
        generation, has_all = str(self._below.content), self._below.content == self._latest
        return SyncStatus(up_to_date=has_all, connected=False, generations=(generation,))

    async def open_alone(self, generation: str, *, force: bool) -> None:
        del generation
        if self._below.content != self._latest and not force:
            raise StorageError(f"{self.path}: no copy has all that was written")
        self._part().role = DiskRole.PRIMARY

    async def discard(self) -> None:
        """Copies never part here."""

    async def sync_status(self) -> SyncStatus | None:
        part = self._part()
        if part.role is None:
            return None
        other = self._other()
        if other is not None and part.looks_left:
            self._synchronise(part, other)
        is_busy = other is not None and part.looks_left > 0
        return SyncStatus(
            up_to_date=self._below.content == self._latest,
            connected=other is not None,
            percent=100.0 / (part.looks_left + 1) if is_busy else None,
            seconds_left=float(part.looks_left) if is_busy else None,
            writing=part.role in (DiskRole.PRIMARY, DiskRole.BOTH),
        )

    def _synchronise(self, part: Part, other: tuple[Part, "PairDisk"]) -> None:
        part.looks_left -= 1
        other[0].looks_left = part.looks_left
        if not part.looks_left:
            self._below.content = other[1]._below.content = self._latest

    def write(self) -> None:
        """What the guest does: both copies get it if they are connected and the same."""
        part, other = self._part(), self._other()
        if part.role not in (DiskRole.PRIMARY, DiskRole.BOTH):
            raise AssertionError(f"{self.path} on {self._node} is written to, but not open")
        WRITTEN[self._disk.uuid] = self._latest + 1
        self._below.content = self._latest
        if other is not None and not part.looks_left:
            other[1]._below.content = self._latest


DRIVERS: dict[str, type[BlockDevice]] = {MEMORY.name: MemoryDisk, PAIR.name: PairDisk}


# --- the storage kind ---


class Pools(StorageKind):
    """Pools in memory."""

    name: ClassVar[str] = UNIT.kind

    async def units(self, paths: Paths) -> list[UnitState]:
        pool = memory_of(paths).pool
        used = pool.total - pool.free
        return [UnitState(name=POOL, size=pool.total, used=used, free=pool.free)]

    async def space(self, paths: Paths, unit: StorageUnit) -> StorageSpace:
        pool = memory_of(paths).pool
        return StorageSpace(unit=unit, total=pool.total, free=pool.free)

    async def disks(self, paths: Paths, unit: StorageUnit) -> list[StoredDisk]:
        pool = memory_of(paths).pool
        return [StoredDisk(unit=unit, name=name, size=size) for name, size in pool.disks.items()]


def add_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make both templates known, as if they had always been there, and forget what the last test kept."""
    for row in (MEMORY, PAIR):
        monkeypatch.setitem(TEMPLATES, row.name, row)
        monkeypatch.setitem(DISK_TEMPLATES, row.name, row)
        monkeypatch.setitem(assemble.DRIVERS, row.name, DRIVERS[row.name].of)
    for planner in (MemoryPlanner(), PairPlanner()):
        monkeypatch.setitem(PLANNERS, planner.template.name, planner)
    monkeypatch.setitem(KINDS, Pools.name, Pools())
    NODES.clear()
    WRITTEN.clear()


# --- the nodes ---


class MemoryNode(ModelNode):
    """A model node whose disks are kept by these drivers, behind the handlers of a real node."""

    @property
    def kept(self) -> Memory:
        return NODES[self.name]

    def handlers(self) -> Handlers:
        found = super().handlers()
        NODES.setdefault(self.name, Memory(self.local))
        drivers = partial(device, Paths(Path("/") / self.name))
        found |= disk_calls.handlers(drivers, InstanceLocks())
        opens = {
            "instance_start": DiskRole.PRIMARY,
            "os_create": DiskRole.PRIMARY,
            "os_rename": DiskRole.PRIMARY,
            "migration_accept": DiskRole.BOTH,
        }
        for name, role in opens.items():
            found[name] = _opening(found[name], drivers, role, stays=not name.startswith("os_"))
        closes: dict[str, Callable[[Any], bool]] = {
            "instance_shutdown": lambda _args: True,
            "migration_finish_source": lambda args: bool(args.success),
            "migration_finish_target": lambda args: not args.success,
        }
        for name, gives_up in closes.items():
            found[name] = _closing(found[name], drivers, gives_up)
        found["hotplug_disk"] = _plugging(found["hotplug_disk"], drivers)
        return found

    def _units(self, asked: Sequence[StorageUnit]) -> list[tuple[StorageUnit, SharedDirectory]]:
        return [(unit, self.local) for unit in asked if unit == UNIT]

    def _check_disk(self, disk: DiskSpec) -> None:
        lowest = disk.children[0] if disk.children else disk
        if lowest.own_id[1] not in self.local.disks:
            raise StorageError(f"disk {lowest.own_id} does not exist")


def _opening(inner: Handler, drivers: Any, role: DiskRole, *, stays: bool) -> Handler:
    async def handle(args: Any, call: Call) -> Any:
        disks = InstanceDisks(drivers, args.instance)
        await disks.open(role)
        try:
            answer = await inner(args, call)
            if role is DiskRole.PRIMARY:
                _write(drivers, args.instance)
        except BaseException:
            await disks.abandon()
            raise
        if not stays:
            await disks.close()
        return answer

    return handle


def _write(drivers: Any, spec: InstanceSpec) -> None:
    for disk in spec.disks:
        driver = drivers(spec.name, disk)
        if isinstance(driver, PairDisk):
            driver.write()
        else:
            WRITTEN[disk.uuid] = driver.content = driver.content + 1


def _plugging(inner: Handler, drivers: Any) -> Handler:
    async def handle(args: Any, call: Call) -> Any:
        if args.action == DeviceAction.ADD:
            await drivers(args.instance.name, args.disk).open(DiskRole.PRIMARY)
        answer = await inner(args, call)
        if args.action == DeviceAction.REMOVE:
            await drivers(args.instance.name, args.disk).close()
        return answer

    return handle


def _closing(inner: Handler, drivers: Any, gives_up: Callable[[Any], bool]) -> Handler:
    async def handle(args: Any, call: Call) -> Any:
        answer = await inner(args, call)
        if gives_up(args):
            await InstanceDisks(drivers, args.instance).close()
        return answer

    return handle
