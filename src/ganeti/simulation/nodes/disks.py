"""The calls about disks, and the streams that copy them."""

from typing import Self

from ganeti.base import certificates
from ganeti.base.errors import (
    HostError,
    InputError,
    StorageError,
)
from ganeti.model.compression import check_compression
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.progress import Progress
from ganeti.node.carrier.keys import check_key_name
from ganeti.rpc.procedures.disks import (
    DiskArgs,
    DiskInfo,
    DisksArgs,
    FenceArgs,
    GrantArgs,
    GrantsArgs,
    GrowDiskArgs,
)
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.progress import ProgressArgs
from ganeti.rpc.procedures.streams import (
    CopyArgs,
    ReceiveArgs,
    Receiving,
    SendArgs,
    StreamArgs,
    StreamResult,
    TransferCertificate,
    TransferKeyArgs,
    WithinArgs,
)
from ganeti.simulation.nodes.state import STREAM_PORT, NodeState
from ganeti.simulation.nodes.storage import SharedDirectory, path_of
from ganeti.simulation.virtual_time import LoopClock


class DiskCalls(NodeState):
    """The calls about disks, and the streams that copy them."""

    def _place(self, disk: DiskSpec) -> SharedDirectory:
        if pool := disk.params.get("thin_pool"):
            return self.pools[f"{disk.logical_id[0]}/{pool}"]
        if disk.template == "plain":
            return self.groups[str(disk.logical_id[0])]
        if DISK_TEMPLATES[disk.template].remote is not None:
            return self.shared  # the names of images are unique
        if not self._allows(disk.template, path_of(disk)):
            raise StorageError(f"{path_of(disk)} is not below a directory that this node allows")
        return self.shared if disk.template == "sharedfile" else self.local

    def on_blockdev_create(self, args: DiskArgs) -> DiskInfo:
        disk, path, place = args.disk, path_of(args.disk), self._place(args.disk)
        if disk.size <= 0:
            raise StorageError(f"{disk.size} MiB is not a size")
        if path in place.disks and place.size_of(disk) != disk.size:
            raise StorageError(f"{path}: something else is there")
        if path not in place.disks and disk.size > place.free:
            raise StorageError(f"{path}: no space left on device")
        place.disks[path] = disk.size
        place.owners[path] = disk.uuid
        place.contents.setdefault(path, "")
        return DiskInfo(exists=True, path=path, size=disk.size)

    def on_blockdev_remove(self, args: DiskArgs) -> Nothing:
        for key, (_epoch, spec) in self.scripts.items():
            if args.disk.logical_id in [disk.logical_id for disk in spec.disks]:
                raise AssertionError(f"{self.name}: script {key} lost a disk under its hands")
        for uuid in self.disk_moves.keys() & self.guests.keys():
            if args.disk.logical_id in [one.logical_id for one in self.guests[uuid].spec.disks]:
                self.violations.append(f"{uuid} loses a disk that it uses")
        path, place = path_of(args.disk), self._place(args.disk)
        if place.size_of(args.disk) is not None:
            del place.disks[path]
            place.owners.pop(path, None)
            place.contents.pop(path, None)
        return Nothing()

    def on_blockdev_fence(self, args: FenceArgs) -> Nothing:
        self._check_can_fence(args.disk)
        self.fenced_disks.add((args.disk.uuid, args.node_name))
        return Nothing()

    def on_blockdev_unfence(self, args: FenceArgs) -> Nothing:
        self._check_can_fence(args.disk)
        self.fenced_disks.discard((args.disk.uuid, args.node_name))
        return Nothing()

    def _check_can_fence(self, disk: DiskSpec) -> None:
        if not DISK_TEMPLATES[disk.template].can_fence:
            raise StorageError(f"storage of template {disk.template} cannot refuse a node")

    def on_transfer_key_create(self, args: TransferKeyArgs) -> TransferCertificate:
        name = check_key_name(args.key_name)
        made = certificates.for_transfer(certificates.new_key(), name, LoopClock().time())
        return TransferCertificate(certificate=self.certificates.setdefault(name, made.decode()))

    def on_transfer_key_remove(self, args: TransferKeyArgs) -> Nothing:
        self.certificates.pop(check_key_name(args.key_name), None)
        return Nothing()

    def on_stream_receive(self, args: ReceiveArgs) -> Receiving:
        self._check_key(args.key_name)
        if args.disk is None:
            raise InputError("only disks are received", "disk")
        self._check_disk(args.disk.instance.disks[args.disk.index])
        self.receiving[args.token] = args
        return Receiving(port=STREAM_PORT, sealed=not args.sha256, inflates=True)

    def on_stream_send(self, args: SendArgs) -> StreamResult:
        check_compression(args.pack, "pack")
        wanted = self._called(args).receiving.pop(args.token)
        if args.disk is None or wanted.disk is None:
            raise InputError("only disks are sent", "disk")
        source, target = (one.instance.disks[one.index] for one in (args.disk, wanted.disk))
        return self._copied(args.instance_name, source, self.peers[args.address], target)

    def _called(self, args: SendArgs) -> Self:
        """The receiver, which waits for this sender; both have the other's certificate."""
        self._check_key(args.key_name)
        receiver = self.peers[args.address]
        wanted = receiver.receiving.get(args.token)
        if self.stream_fails or wanted is None or args.port != STREAM_PORT:
            raise HostError(self.stream_fails or "nobody listens")
        shown = receiver.certificates[wanted.key_name], self.certificates[args.key_name]
        if (args.peer, wanted.peer) != shown:
            raise HostError("the other end's certificate is another one")
        if args.pack != wanted.unpack and None not in (args.disk, wanted.disk):
            raise HostError("the sender's data has a different format")
        return receiver

    def on_stream_copy(self, args: CopyArgs) -> StreamResult:
        if self.stream_fails:
            raise HostError(self.stream_fails)
        return self._copied(args.instance_name, args.source, self, args.target)

    def on_stream_within(self, args: WithinArgs) -> StreamResult:
        if self.stream_fails:
            raise HostError(self.stream_fails)
        if args.source.disk is None or args.target.disk is None:
            raise InputError("only disks are copied", "disk")
        source, target = (
            one.instance.disks[one.index] for one in (args.source.disk, args.target.disk)
        )
        return self._copied(args.instance_name, source, self, target)

    def _copied(
        self, name: str, source: DiskSpec, receiver: Self, target: DiskSpec
    ) -> StreamResult:
        self._check_disk(source)
        receiver._check_disk(target)
        used = {disk.uuid for guest in self.guests.values() for disk in guest.spec.disks}
        if source.uuid in used or any(guest.spec.name == name for guest in self.guests.values()):
            self.violations.append(f"disk {source.uuid} is copied for {name} while its guest runs")
        data = self._place(source).contents.get(path_of(source), "")
        receiver._place(target).contents[path_of(target)] = data
        return StreamResult(data_bytes=source.size, seconds=0.1)

    def on_stream_end(self, args: StreamArgs) -> Nothing:
        if args.receives:
            self.receiving.pop(args.token, None)
        return Nothing()

    def _check_key(self, name: str) -> None:
        if name not in self.certificates:
            raise HostError(f"this node has no key {name}")

    def on_call_progress(self, args: ProgressArgs) -> Progress | None:
        return self.progress.get(args.key)

    def _copy_to(self, receiver: Self, disk: DiskSpec) -> None:
        path = str(disk.logical_id[1])
        receiver.local.contents[path] = self.local.contents.get(path, "")

    def _check_disk(self, disk: DiskSpec) -> None:
        """Whether it is there, whole, and itself."""
        size = self._place(disk).size_of(disk)
        if size is None or size < disk.size:
            raise StorageError(f"disk {path_of(disk)} is not there, or not whole")

    def on_blockdev_info(self, args: DiskArgs) -> DiskInfo:
        path = path_of(args.disk)
        try:
            size = self._place(args.disk).size_of(args.disk)
        except StorageError as err:
            return DiskInfo(exists=False, problem=err.message)
        if size is None:
            return DiskInfo(exists=False, path=path)
        problem = "" if size >= args.disk.size else f"has {size} MiB"
        return DiskInfo(exists=True, path=path, size=size, problem=problem)

    def on_disks_info(self, args: DisksArgs) -> list[DiskInfo]:
        return [self.on_blockdev_info(disk) for disk in args.disks]

    def on_blockdev_grow(self, args: GrowDiskArgs) -> DiskInfo:
        self._check_disk(args.disk)
        path, place = path_of(args.disk), self._place(args.disk)
        if args.size - place.disks[path] > place.free:
            raise StorageError(f"{path}: no space left on device")
        place.disks[path] = max(args.size, place.disks[path])
        return DiskInfo(exists=True, path=path, size=args.size)

    def on_blockdev_assemble(self, args: DiskArgs) -> DiskInfo:
        self._check_disk(args.disk)
        return DiskInfo(exists=True, path=path_of(args.disk), size=args.disk.size)

    def on_disk_grants(self, args: GrantsArgs) -> Nothing:
        raise AssertionError("answered by `guarded`")

    def on_disk_granted(self, args: GrantArgs) -> Nothing:
        """No disk here is mirrored."""
        return Nothing()

    def on_copy_joins(self, args: GrantArgs) -> Nothing:
        raise StorageError(f"disk {args.disk} is not mirrored")

    def on_blockdev_shutdown(self, args: DiskArgs) -> Nothing:
        return Nothing()

    def _check_disks(self, spec: InstanceSpec) -> None:
        for disk in spec.disks:
            self._check_disk(disk)
