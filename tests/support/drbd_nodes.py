"""Model nodes whose disks are kept by the real driver of DRBD, over files, with a DRBD in memory below."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.paths import Paths
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.node.disks import InstanceDisks
from ganeti.node.mirrored_disks import MirroredDisks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.disk_moves import (
    DISK_MOVE_BEGIN,
    DISK_MOVE_SWITCH,
    BeginDiskMoveArgs,
    DiskMoveArgs,
)
from ganeti.rpc.procedures.disks import (
    BLOCKDEV_REMOVE,
    COPY_JOINS,
    DISK_GRANTED,
    MIRRORED_DEVICES,
    DiskArgs,
    GrantArgs,
    MirroredDevice,
)
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.host import NODE_VERIFY, VerifyArgs, VerifyReport
from ganeti.rpc.procedures.recovery import HeartbeatArgs, HeartbeatResult
from ganeti.rpc.procedures.streams import STREAM_SEND, EndArgs, SendArgs
from ganeti.simulation.nodes.model import ModelNode
from ganeti.simulation.nodes.storage import SharedDirectory, path_of
from ganeti.storage import assemble
from ganeti.storage.assemble import device
from ganeti.storage.drbd.driver import DrbdDisk, mirrored_devices
from ganeti.storage.interface import BlockDevice
from tests.support.export_nodes import ExportNode
from tests.support.memory_disks import NODES, WRITTEN, MemoryNode
from tests.support.model_drbd import DrbdNode, DrbdWorld, FileLayer

GROUP = "xenvg"
KERNELS: list["Kernels"] = []
"""Those of the running test."""


class CountedDisk(DrbdDisk):
    """A disk that knows how a guest writes to it in this model."""

    def __init__(self, disk: DiskSpec, layer: Callable[[DiskSpec], BlockDevice], node: DrbdNode):
        super().__init__(disk, layer, kernel=node.kernel())
        self._node, self._uuid = node, disk.uuid

    @property
    def content(self) -> int:
        return WRITTEN.get(self._uuid, 0)

    @content.setter
    def content(self, value: int) -> None:
        del value
        self._node.write(self._uuid)


class CountedLayer(FileLayer):
    """A volume that is a disk by itself."""

    @property
    def content(self) -> int:
        return WRITTEN.get(self._disk.uuid, 0)

    @content.setter
    def content(self, value: int) -> None:
        """Nothing is counted but how often it was written to."""


class DrbdModelNode(MemoryNode, ExportNode):
    """A node with a volume group, whose disks can be exported."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.groups = {GROUP: self.local}
        self._mirrored: MirroredDisks | None = None

    @property
    def mirrored(self) -> MirroredDisks:
        """What its node daemon knows of mirrored disks; made when its kernel is."""
        if self._mirrored is None:
            self._mirrored = MirroredDisks(self.grants, KERNELS[0].of(self.name).kernel())
        return self._mirrored

    def on_heartbeat(self, args: HeartbeatArgs) -> HeartbeatResult:
        return replace(super().on_heartbeat(args), requests=self.mirrored(args.mirrored))

    def handlers(self) -> Handlers:
        found = super().handlers()

        async def devices(_args: Nothing, _call: Call) -> list[MirroredDevice]:
            return await mirrored_devices(KERNELS[0].of(self.name).kernel())

        report = found[NODE_VERIFY.name]

        async def verify(args: VerifyArgs, call: Call) -> VerifyReport:
            version, helper = KERNELS[0].of(self.name).kernel().module()
            told: VerifyReport = await report(args, call)
            return replace(told, mirror_version=version, mirror_helper=helper)

        send = found[STREAM_SEND.name]

        async def send_open(args: SendArgs, call: Call) -> Any:
            assert args.disk is not None
            spec = args.disk.instance
            one = device(Paths(Path("/") / self.name), spec.name, spec.disks[args.disk.index])
            await one.open(DiskRole.PRIMARY)
            try:
                return await send(args, call)
            finally:
                await one.close()

        found[STREAM_SEND.name] = send_open

        async def granted(args: GrantArgs, call: Call) -> Nothing:
            return await self.mirrored.granted(args, call)

        async def joins(args: GrantArgs, call: Call) -> Nothing:
            return await self.mirrored.joins(args, call)

        found |= self._of_moves(found)
        found[MIRRORED_DEVICES.name] = devices
        found[NODE_VERIFY.name] = verify
        found[DISK_GRANTED.name] = granted
        found[COPY_JOINS.name] = joins
        return found

    def _of_moves(self, found: Handlers) -> Handlers:
        """The calls that move disks of running guests: the new ones are open, and get the data at the switch."""
        drivers = partial(device, Paths(Path("/") / self.name))
        begin, switch, remove = (
            found[one.name] for one in (DISK_MOVE_BEGIN, DISK_MOVE_SWITCH, BLOCKDEV_REMOVE)
        )

        async def opened(args: BeginDiskMoveArgs, call: Call) -> Any:
            disks = InstanceDisks(drivers, replace(args.instance, disks=args.disks))
            await disks.open()
            try:
                return await begin(args, call)
            except BaseException:
                await disks.abandon()
                raise

        async def switched(args: DiskMoveArgs, call: Call) -> Any:
            move = self.disk_moves.get(args.instance.uuid)
            if move is not None and not move.is_moved:
                for old, new in zip(move.old, move.new, strict=True):
                    self._file(new).write_bytes(self._file(old).read_bytes())
            return await switch(args, call)

        async def removed(args: DiskArgs, call: Call) -> Any:
            for guest in self.guests.values():
                used = [(one.uuid, one.own_id) for one in guest.spec.disks]
                if (args.disk.uuid, args.disk.own_id) in used:
                    self.violations.append(f"{guest.spec.name} loses a disk that it uses")
            return await remove(args, call)

        return {
            DISK_MOVE_BEGIN.name: opened,
            DISK_MOVE_SWITCH.name: switched,
            BLOCKDEV_REMOVE.name: removed,
        }

    def _read(self, name: str, args: EndArgs) -> str:
        """No content is kept."""
        return ""

    def _units(self, asked: Sequence[StorageUnit]) -> list[tuple[StorageUnit, SharedDirectory]]:
        return ModelNode._units(self, asked)

    def _check_disk(self, disk: DiskSpec) -> None:
        """The driver has opened it."""

    def _place(self, disk: DiskSpec) -> SharedDirectory:
        return self.groups[str((disk.children or (disk,))[0].own_id[0])]

    def _file(self, disk: DiskSpec) -> Path:
        """The file that has the data of a disk."""
        return KERNELS[0].of(self.name).directory / path_of(disk)


class Kernels:
    """The DRBD of all nodes of a cluster."""

    def __init__(self, directory: Path) -> None:
        self.world, self._directory = DrbdWorld(), directory
        self._nodes: dict[str, DrbdNode] = {}

    def of(self, name: str) -> DrbdNode:
        """The node with this name; made when it is first asked for."""
        if name not in self._nodes:
            number = len(self._nodes) + 1
            self._nodes[name] = self.world.node(name, f"?{number}", self._directory / name)
        return self._nodes[name]

    def volumes(self, name: str) -> set[str]:
        """The volumes that lie on a node."""
        return {path.name for path in self.of(name).directory.iterdir()} - {"proc", "helper"}

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Let nodes keep `plain` in files and `drbd` here."""

        def plain(paths: Paths, disk: DiskSpec, _layer: object) -> BlockDevice:
            return CountedLayer(self.of(paths.root.name).directory, disk)

        def drbd(
            paths: Paths, disk: DiskSpec, layer: Callable[[DiskSpec], BlockDevice]
        ) -> BlockDevice:
            node = self.of(paths.root.name)
            if node.address.startswith("?"):
                node.address = disk.address
            assert node.address == disk.address, f"{node.name} cannot listen at {disk.address}"
            return CountedDisk(disk, layer, node)

        KERNELS[:] = [self]
        patch.setitem(assemble.DRIVERS, "plain", plain)
        patch.setitem(assemble.DRIVERS, "drbd", drbd)
        NODES.clear()
        WRITTEN.clear()
