"""DRBD 8.4 of two nodes in memory: what `drbdsetup`, `drbdmeta` and the kernel do, as far as the driver sees it.

A copy of the data is its generation and those it comes from. As in the kernel, a primary that loses its
connection, or is promoted without one, begins a new generation. The link between two nodes may be cut. A copy that is closed keeps its
record in the metadata. Every command may be made to fail (`fail_at`).
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ganeti.base.errors import StorageError
from ganeti.base.process import CommandFailed, Completed
from ganeti.model.disk_templates import PLAIN, DiskTemplate
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.drbd.driver import Kernel
from ganeti.storage.drbd.netlink import Connection
from ganeti.storage.drbd.status import MAGIC
from ganeti.storage.interface import BlockDevice

MIB = 1 << 20
JUST_CREATED = 4


class FileLayer(BlockDevice):
    """A layer below that is a file: what a logical volume is to DRBD."""

    template: DiskTemplate = PLAIN  # type: ignore[misc]  # a class variable there

    def __init__(self, directory: Path, disk: DiskSpec) -> None:
        self._disk, self._file = disk, directory / str(disk.own_id[-1])

    @property
    def path(self) -> str:
        return str(self._file)

    async def create(self, size_mib: int) -> None:
        if not self._file.exists():
            with self._file.open("wb") as file:
                file.truncate(size_mib * MIB)

    async def remove(self) -> None:
        self._file.unlink(missing_ok=True)

    async def open(self, role: DiskRole) -> None:
        del role
        await self.check_identity()

    async def close(self) -> None:
        """Nothing was set up."""

    async def grow(self, size_mib: int) -> None:
        with self._file.open("r+b") as file:
            file.truncate(size_mib * MIB)

    async def size_mib(self) -> int | None:
        return self._file.stat().st_size // MIB if self._file.exists() else None

    async def check_identity(self) -> None:
        if not self._file.exists():
            raise StorageError(f"{self._file} is not there")


@dataclass
class Copy:
    """What metadata on a volume says of the data."""

    generation: int = JUST_CREATED
    bitmap: int = 0
    """The generation that the other node had when the connection was lost; 0 if it lacks nothing."""
    before: frozenset[int] = frozenset()
    has_all: bool = False
    outdated: bool = False

    @property
    def generations(self) -> list[int]:
        """As the kernel shows them: the present one, the bitmap's, and two of the history."""
        older = sorted(self.before - {self.bitmap}, reverse=True)
        return [self.generation, self.bitmap, *older, 0, 0][:4]

    def part(self, new: int) -> None:
        """Begin a new generation, unless the other node lacks something already."""
        if not self.bitmap:
            self.before |= {self.generation}
            self.bitmap, self.generation = self.generation, new


@dataclass
class Device:
    """One resource with its minor on one node."""

    minor: int | None = None
    data: str = ""
    meta: str = ""
    size_mib: int = 0
    role: str = "Secondary"
    connection: Connection | None = None
    state: str = "StandAlone"
    two_primaries: bool = False
    replication: str = "Off"
    is_held: bool = False
    """A guest has it open."""
    fences: bool = False
    """Writes wait once the peer is lost."""
    waits: bool = False


@dataclass
class DrbdNode:
    """One node."""

    name: str
    address: str
    world: "DrbdWorld"
    directory: Path
    devices: dict[str, Device] = field(default_factory=dict)
    calls: list[list[str]] = field(default_factory=list)
    fail_at: int | None = None
    """The number of the call that fails, from 0."""
    is_dead: bool = False
    version: str = "8.4.11"
    """'' if the module is not loaded."""
    helper: str = "/bin/true"

    def kernel(self) -> Kernel:
        """What a driver on this node has."""
        proc, helper = self.directory / "proc", self.directory / "helper"
        proc.write_text(f"version: {self.version} (api:1/proto:86-101)\n")
        helper.write_text(f"{self.helper}\n")
        if not self.version:
            proc.unlink()
        return Kernel(run=self.run, connect=self.connect, proc=proc, helper=helper)

    def _count(self, words: Sequence[str]) -> None:
        self.calls.append(list(words))
        if self.fail_at is not None and len(self.calls) - 1 == self.fail_at:
            raise CommandFailed(Completed(tuple(words), 1, b"", b"told to fail"), "exit status 1")

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Completed:
        del timeout_s, stdin, env
        self._count(argv)
        try:
            said = self._do(list(argv))
        except StorageError as err:
            done = Completed(tuple(argv), 1, b"", err.message.encode())
            if check:
                raise CommandFailed(done, "exit status 1") from err
            return done
        return Completed(tuple(argv), 0, said.encode(), b"")

    def connect(self, connection: Connection) -> None:
        self._count(["connect", connection.resource])
        device = self.devices[connection.resource]
        if device.connection is not None:
            raise StorageError("it is connected already")
        device.connection, device.state = connection, "Connecting"
        self.world.meet(connection.resource)

    def _do(self, words: list[str]) -> str:
        if words[0] == "drbdmeta":
            return self._meta(words)
        verb, *rest = words[1:]
        method = getattr(self, "_" + verb.replace("-", "_"))
        return str(method(*rest) or "")

    def _meta(self, words: list[str]) -> str:
        path, verb = words[4], words[6]
        if verb == "create-md":
            self.world.copies[path] = Copy()
            block = struct.pack(">QQQQQQQIII", 0, JUST_CREATED, 0, 0, 0, 0, 0, 0, MAGIC[0], 0)
            with Path(path).open("r+b") as file:
                file.write(block)
        elif path not in self.world.copies:
            raise StorageError("no metadata")
        return ""

    def by_minor(self, minor: str) -> tuple[str, Device]:
        """The resource with this minor."""
        for name, device in self.devices.items():
            if device.minor == int(minor):
                return name, device
        raise StorageError("unknown minor")

    def copy(self, device: Device) -> Copy | None:
        return self.world.copies.get(device.meta) if device.meta else None

    def _new_resource(self, name: str) -> None:
        if name in self.devices:
            raise StorageError("resource exists")
        self.devices[name] = Device()

    def _new_minor(self, name: str, minor: str, _volume: str) -> None:
        if any(one.minor == int(minor) for one in self.devices.values()):
            raise StorageError("minor exists")
        self.devices[name].minor = int(minor)

    def _attach(self, minor: str, data: str, meta: str, _index: str, *options: str) -> None:
        name, device = self.by_minor(minor)
        if device.data:
            raise StorageError("it has a disk already")
        size = next(int(one[7:-1]) for one in options if one.startswith("--size="))
        if Path(data).stat().st_size < size * MIB:
            raise StorageError("the volume is too small")
        device.data, device.meta, device.size_mib = data, meta, size
        device.fences = _fences(options) or False
        with Path(meta).open("r+b") as file:
            file.write(struct.pack(">Q", size * 2048))
        self.world.meet(name)

    def _disk_options(self, minor: str, *options: str) -> None:
        _name, device = self.by_minor(minor)
        if not device.data:
            raise StorageError("can not configure a diskless device")
        if (fences := _fences(options)) is not None:
            device.fences = fences

    def _resume_io(self, minor: str) -> None:
        name, device = self.by_minor(minor)
        if device.waits:
            device.waits = False
            if not self.world.connected(self, name):
                self.lose_contact(device, go_on=True)

    def _disconnect(self, own: str, _peer: str) -> None:
        for name, device in self.devices.items():
            if (
                device.connection is not None
                and own == f"ipv4:{self.address}:{device.connection.own[1]}"
            ):
                if device.role == "Primary" and device.fences:
                    raise StorageError("refusing to be primary while the peer is not outdated")
                self.drop(name, "StandAlone")
                return
        raise StorageError("unknown connection")

    def drop(self, name: str, state: str) -> None:
        """The connection of a resource ends here; the other node waits for it again."""
        device = self.devices[name]
        for other, theirs in self.world.connected(self, name):
            theirs.state, theirs.replication = "Connecting", "Off"
            other.lose_contact(theirs)
        if device.state == "Connected":
            self.lose_contact(device)
        device.state, device.replication = state, "Off"
        if state == "StandAlone":
            device.connection = None

    def lose_contact(self, device: Device, *, go_on: bool = False) -> None:
        """The other node is gone: what is written from now on is of a new generation."""
        copy = self.copy(device)
        if device.role == "Primary" and device.fences and not go_on:
            device.waits = True
            return
        if device.role == "Primary" and copy is not None and copy.has_all and not copy.outdated:
            copy.part(self.world.new_generation())

    def _net_options(self, _own: str, _peer: str, option: str) -> None:
        for device in self.devices.values():
            if device.connection is not None:
                device.two_primaries = option.endswith("yes")

    def _primary(self, minor: str, *force: str) -> None:
        name, device = self.by_minor(minor)
        copy = self.copy(device)
        for _node, theirs in self.world.connected(self, name):
            if theirs.role == "Primary" and not (device.two_primaries and theirs.two_primaries):
                raise StorageError("multiple primaries not allowed")
        there = [node.copy(one) for node, one in self.world.connected(self, name)]
        if copy is None or not copy.has_all or copy.outdated:
            if force and copy is not None:
                copy.has_all, copy.outdated = True, False
                copy.part(self.world.new_generation())
            elif not any(one is not None and one.has_all for one in there):
                raise StorageError("need access to UpToDate data")
        elif not there:
            if device.fences:
                raise StorageError("refusing to be primary while the peer is not outdated")
            copy.part(self.world.new_generation())
        device.role = "Primary"
        if force:
            self.world.meet(name)

    def _secondary(self, minor: str) -> None:
        _name, device = self.by_minor(minor)
        if device.is_held:
            raise StorageError("device is held open by someone")
        device.role = "Secondary"

    def _outdate(self, minor: str) -> None:
        name, device = self.by_minor(minor)
        copy = self.copy(device)
        if device.role == "Primary" or copy is None or self.world.connected(self, name):
            raise StorageError("refusing to be outdated")
        copy.outdated = True

    def _detach(self, minor: str) -> None:
        name, device = self.by_minor(minor)
        there = [node.copy(one) for node, one in self.world.connected(self, name)]
        if device.role == "Primary" and not any(one and one.has_all for one in there):
            raise StorageError("need access to UpToDate data")
        device.data = device.meta = ""

    def fail_disk(self, name: str) -> None:
        """The disk below fails (`on-io-error=detach`): a primary goes on with its peer's, which has more from now on."""
        device = self.devices[name]
        self.record(device)
        device.data = device.meta = ""
        device.fences = False
        for node, theirs in self.world.connected(self, name):
            if (copy := node.copy(theirs)) is not None:
                copy.part(self.world.new_generation())

    def _down(self, name: str) -> None:
        if name not in self.devices:
            raise StorageError("unknown resource")
        if self.devices[name].is_held:
            raise StorageError("device is held open by someone")
        self.devices[name].role = "Secondary"
        self.drop(name, "StandAlone")
        self.record(self.devices.pop(name))

    def record(self, device: Device) -> None:
        """Write to the metadata what the kernel knows of a copy."""
        copy = self.copy(device)
        if copy is None or not Path(device.meta).exists():
            return
        flags = 1 * copy.has_all | 16 * (copy.has_all and not copy.outdated)
        with Path(device.meta).open("r+b") as file:
            file.seek(8)
            file.write(struct.pack(">QQQQQQI", *copy.generations, 0, 0, flags))

    def _resize(self, minor: str, size: str, *trust: str) -> None:
        name, device = self.by_minor(minor)
        wanted = int(size.removeprefix("--size=").removesuffix("m"))
        ends = [(self, device), *self.world.connected(self, name)]
        if len(ends) < 2 and not trust:
            raise StorageError("the peer is not connected")
        if any(Path(one.data).stat().st_size < wanted * MIB for _node, one in ends):
            raise StorageError("the volume is too small")
        for _node, one in ends:
            one.size_mib = wanted
            with Path(one.meta).open("r+b") as file:
                file.write(struct.pack(">Q", wanted * 2048))

    def _get_gi(self, minor: str) -> str:
        copy = self.copy(self.by_minor(minor)[1])
        if copy is None:
            return ""
        return ":".join([*(f"{one:016X}" for one in copy.generations), "1:1:0"])

    def disk_state(self, device: Device) -> str:
        """What the kernel says of this node's copy."""
        copy = self.copy(device)
        if copy is None:
            return "Diskless"
        if not copy.has_all:
            return "Inconsistent"
        return "Outdated" if copy.outdated else "UpToDate"

    def _events2(self, *_options: str) -> str:
        lines = []
        self._tell_proc()
        for name, one in self.devices.items():
            near = self.world.connected(self, name)
            theirs = near[0][0].disk_state(near[0][1]) if near else "DUnknown"
            role = near[0][1].role if near else "Unknown"
            suspended = "fencing" if one.waits else "no"
            lines += [
                f"exists resource name:{name} role:{one.role} suspended:{suspended}",
                f"exists connection name:{name} peer-node-id:0 connection:{one.state} role:{role}",
            ]
            if one.minor is not None:
                disk, size = self.disk_state(one), one.size_mib * 1024
                lines += [
                    f"exists device name:{name} volume:0 minor:{one.minor} disk:{disk} size:{size}",
                    f"exists peer-device name:{name} replication:{one.replication} peer-disk:{theirs}",
                ]
        return "\n".join([*lines, "exists -", ""])

    def _tell_proc(self) -> None:
        text = f"version: {self.version} (api:1/proto:86-101)\n"
        for one in self.devices.values():
            protocol = one.connection.protocol if one.connection else "C"
            text += f" {one.minor}: cs:{one.state} ro:x ds:x {protocol} r-----\n"
        if self.version:
            (self.directory / "proc").write_text(text)

    def _show(self, name: str) -> str:
        one = self.devices[name]
        net = ""
        ends = ["", ""]
        if one.connection is not None:
            two = "allow-two-primaries yes;" if one.two_primaries else ""
            net = f'net {{ {two} shared-secret "{one.connection.secret}"; }}'
            both = (one.connection.peer, one.connection.own)
            ends = [f"address ipv4 {host}:{port};" for host, port in both]
        disks = f'\n disk "{one.data}";\n meta-disk "{one.meta}";' if one.data else ""
        return (
            f"resource {name} {{ {net} _remote_host {{ {ends[0]} }} _this_host {{ {ends[1]}"
            f" volume 0 {{ device minor {one.minor};{disks} }} }} }}"
        )

    def write(self, name: str) -> None:
        """What a guest does."""
        device = self.devices[name]
        assert device.role == "Primary"
        assert not device.waits, "a write that waits is not complete"
        if not self.world.connected(self, name):
            self.lose_contact(device)


@dataclass
class DrbdWorld:
    """All nodes, and the copies of data by the paths of their metadata."""

    nodes: list[DrbdNode] = field(default_factory=list)
    copies: dict[str, Copy] = field(default_factory=dict)
    generation: int = 1000
    cuts: set[frozenset[str]] = field(default_factory=set)
    """Pairs of nodes between which there is no network."""
    syncs_at_once: bool = True

    def node(self, name: str, address: str, directory: Path) -> DrbdNode:
        directory.mkdir(parents=True, exist_ok=True)
        made = DrbdNode(name, address, self, directory)
        self.nodes.append(made)
        return made

    def cut(self, one: str, other: str) -> None:
        """Nothing passes between two nodes any more; each looks for the other."""
        self.cuts.add(frozenset((one, other)))
        for node in self.nodes:
            if node.name not in (one, other):
                continue
            for device in node.devices.values():
                if device.connection is not None and device.state == "Connected":
                    device.state, device.replication = "Connecting", "Off"
                    node.lose_contact(device)

    def heal(self) -> None:
        """Every link works again."""
        self.cuts.clear()
        for name in {name for node in self.nodes for name in node.devices}:
            self.meet(name)

    def new_generation(self) -> int:
        self.generation += 16
        return self.generation

    def others(self, node: DrbdNode, name: str) -> list[tuple[DrbdNode, Device]]:
        """The other living end that this one looks for, if it looks for this one."""
        own = node.devices[name].connection
        if own is None:
            return []
        return [
            (one, device)
            for one in self.nodes
            if one is not node and not one.is_dead and (device := one.devices.get(name)) is not None
            if frozenset((one.name, node.name)) not in self.cuts
            if device.connection is not None
            and (device.connection.peer, device.connection.own) == (own.own, own.peer)
        ]

    def connected(self, node: DrbdNode, name: str) -> list[tuple[DrbdNode, Device]]:
        """The other end, if there is a connection."""
        if node.devices[name].state != "Connected":
            return []
        return [(one, end) for one, end in self.others(node, name) if end.state == "Connected"]

    def meet(self, name: str) -> None:
        """Two ends that look for each other find each other, and compare their data."""
        for first in self.nodes:
            if first.is_dead or name not in first.devices:
                continue
            one = first.devices[name]
            for second, two in self.others(first, name):
                assert one.connection is not None
                assert two.connection is not None
                if one.connection.secret != two.connection.secret:
                    one.state = two.state = "StandAlone"
                    one.connection = two.connection = None
                    return
                one.state = two.state = "Connected"
                one.waits = two.waits = False
                self._compare((first, one), (second, two))
                return

    def _compare(self, one: tuple[DrbdNode, Device], two: tuple[DrbdNode, Device]) -> None:
        ours, theirs = one[0].copy(one[1]), two[0].copy(two[1])
        one[1].replication = two[1].replication = "Established"
        if ours is None or theirs is None:
            return
        if ours.generation == theirs.generation:
            ours.outdated = theirs.outdated = False
            ours.bitmap = theirs.bitmap = 0
            return
        discards = [one[1].connection.discard for one in (one, two) if one[1].connection]
        if _comes_from(theirs, ours):
            self._fill(ours, theirs, one[1], two[1])
        elif _comes_from(ours, theirs):
            self._fill(theirs, ours, two[1], one[1])
        elif discards == [False, True] and two[1].role == "Secondary":
            self._fill(ours, theirs, one[1], two[1])
        elif discards == [True, False] and one[1].role == "Secondary":
            self._fill(theirs, ours, two[1], one[1])
        else:
            for _node, device in (one, two):
                device.state, device.replication, device.connection = "StandAlone", "Off", None

    def _fill(self, source: Copy, target: Copy, sending: Device, taking: Device) -> None:
        target.has_all = False
        if self.syncs_at_once:
            target.outdated = False
            target.bitmap = source.bitmap = 0
            target.generation, target.before, target.has_all = (
                source.generation,
                source.before,
                True,
            )
        else:
            sending.replication, taking.replication = "SyncSource", "SyncTarget"

    def finish(self) -> None:
        """The synchronisation ends."""
        names = {name for node in self.nodes for name in node.devices}
        self.syncs_at_once = True
        for name in names:
            self.meet(name)


def _fences(options: Sequence[str]) -> bool | None:
    """What the options say about writes after the loss of the peer; None if they say nothing."""
    said = [one for one in options if one.startswith("--fencing=")]
    return said[-1].endswith("resource-and-stonith") if said else None


def _comes_from(old: Copy, new: Copy) -> bool:
    """Whether all data of one copy is in the other."""
    return old.generation in (*new.before, JUST_CREATED) or not old.has_all
