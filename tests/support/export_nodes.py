"""Model nodes that also have exports, snapshots and streams of disks, for tests of backups."""

import asyncio
import dataclasses
import hashlib
from dataclasses import dataclass, field

from ganeti.base.errors import HostError, HypervisorError, InputError, StorageError
from ganeti.base.identifiers import host_name
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.names import Consistency
from ganeti.protocols.export_description import format_description, parse_description
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.exports import (
    DumpCheck,
    ExportArgs,
    ExportContent,
    ExportListing,
    FinishExportArgs,
    StoredFile,
    StoredImages,
)
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.images import ConvertArgs, ImageArgs, ImageFileArgs, StoreArgs
from ganeti.rpc.procedures.instances import StartArgs
from ganeti.rpc.procedures.programs import OsInfo
from ganeti.rpc.procedures.snapshots import (
    GuestSaved,
    SavedGuestArgs,
    SaveGuestArgs,
    SnapshotsTaken,
    TakeSnapshotsArgs,
)
from ganeti.rpc.procedures.streams import (
    CanSnapshot,
    DiskOf,
    DumpEnd,
    EndArgs,
    Output,
    OutputArgs,
    ReceiveArgs,
    Receiving,
    SendArgs,
    SnapshotArgs,
    SnapshotTaken,
    StreamArgs,
    StreamResult,
    StreamStatus,
    WithinArgs,
)
from ganeti.simulation.nodes.model import ModelNode
from ganeti.simulation.nodes.state import STREAM_PORT
from ganeti.simulation.nodes.storage import path_of
from ganeti.simulation.virtual_time import LoopClock

MIB = 1024 * 1024
_NUMBERS = {"maxmem": 512, "minmem": 512, "vcpus": 2}


@dataclass
class Export:
    """One export: its description, and what each dump holds."""

    config: str = ""
    files: dict[str, str] = field(default_factory=dict)


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


@dataclass
class ExportNode(ModelNode):
    """A model node whose disks can be exported and imported."""

    held: dict[str, StreamResult] = field(default_factory=dict)
    """What was received and is not confirmed yet, by token."""
    confirmed: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    """What was received, and then given up."""
    waits_until: dict[str, float] = field(default_factory=dict)
    exports: dict[str, Export] = field(default_factory=dict)
    unfinished: dict[str, Export] = field(default_factory=dict)
    copies: dict[str, Export] = field(default_factory=dict)
    """The image store: directory -> the copy."""
    storing: dict[str, Export] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    """Directories of images whose files have changed since they were complete."""
    image_files: dict[str, str] = field(default_factory=dict)
    """Files that were made of images."""
    images: dict[str, Export] = field(default_factory=dict)
    """Images of machines by their paths, as the exports that they become."""
    image_changes: bool = False
    packed: list[str] = field(default_factory=list)
    pack_fails: bool = False
    export_space: int = 100_000
    has_snapshots: bool = False
    snapshots: dict[str, str] = field(default_factory=dict)
    """Path -> content."""
    misfits: tuple[str, ...] = ()
    """Why no guest continues here from its saved memory."""
    load_fails: bool = False
    os_scripts: list[str] = field(default_factory=lambda: ["create", "export", "import", "rename"])
    script_says: str = ""
    carried: list[tuple[str, str, str]] = field(default_factory=list)
    """OS of each end ('' for none) and the compression of each stream that was sent."""
    seals: list[bool] = field(default_factory=list)
    """Of each stream that was sent, whether its frames were to be sealed."""
    is_older: bool = False
    """Whether it wants all frames sealed, as its version has it."""

    def on_os_diagnose(self, args: Nothing) -> list[OsInfo]:
        return [
            OsInfo(
                name=name,
                path=f"/os/{name}",
                problem="",
                api_versions=[20],
                variants=[],
                parameters=[],
                version=version,
                scripts=self.os_scripts,
            )
            for name, version in self.oses.items()
        ]

    # --- keys and streams ---

    @property
    def keys(self) -> set[str]:
        return set(self.certificates)

    def on_stream_receive(self, args: ReceiveArgs) -> Receiving:
        self._check_key(args.key_name)
        if args.disk is not None:
            self._check_disk(args.disk.instance.disks[args.disk.index])
        elif args.dump is not None and args.dump.export not in self._made(args.dump):
            raise HostError("there is no export that is being made")
        self.receiving[args.token] = args
        self.waits_until[args.token] = LoopClock().time() + args.wait_s
        return Receiving(
            port=STREAM_PORT, sealed=self.is_older or not args.sha256, inflates=not self.is_older
        )

    def on_stream_send(self, args: SendArgs) -> StreamResult:
        receiver = self._called(args)
        assert isinstance(receiver, ExportNode)
        wanted = receiver.receiving[args.token]
        content = self._read(args.instance_name, args)
        if wanted.sha256 and wanted.sha256 != digest(content):
            raise HostError("the receiver: the dump is damaged")
        receiver._write(wanted, content)
        del receiver.receiving[args.token]
        self.seals.append(args.sealed)
        ends = [one.disk.os if one.disk else "" for one in (args, wanted)]
        self.carried.append((ends[0], ends[1], args.pack))
        result = StreamResult(
            data_bytes=len(content),
            sha256=digest(content) if args.digests else "",
            seconds=0.1,
        )
        if wanted.hold:
            receiver.held[args.token] = result
        return result

    def on_stream_within(self, args: WithinArgs) -> StreamResult:
        if self.stream_fails:
            raise HostError(self.stream_fails)
        content = self._read(args.instance_name, args.source)
        self._write(args.target, content)
        return StreamResult(data_bytes=len(content), seconds=0.1)

    def handlers(self) -> Handlers:
        """A sender returns only when the receiver may keep what it has."""
        found = super().handlers()
        carry = found["stream_send"]

        async def send(args: SendArgs, call: Call) -> StreamResult:
            receiver = self.peers[args.address]
            assert isinstance(receiver, ExportNode)
            result: StreamResult = await carry(args, call)
            while args.token in receiver.held and args.token not in receiver.confirmed:  # noqa: ASYNC110
                await asyncio.sleep(1)
            if args.token in receiver.lost:
                raise HostError("the receiver ended")
            return result

        return {**found, "stream_send": send}

    def _read(self, name: str, args: EndArgs) -> str:
        if args.dump is not None:
            return self._kept(args.dump)[args.dump.export].files[args.dump.file]
        assert args.disk is not None
        if args.disk.snapshot:
            return self.snapshots[args.disk.snapshot]
        if any(guest.spec.name == name for guest in self.guests.values()):
            self.violations.append(f"a disk of {name} is exported while it runs")
        disk = args.disk.instance.disks[args.disk.index]
        self._check_disk(disk)
        return self._place(disk).contents.get(path_of(disk), "")

    def _write(self, args: EndArgs, content: str) -> None:
        if args.dump is not None:
            self._made(args.dump)[args.dump.export].files[args.dump.file] = content
        elif args.disk is not None:
            disk = args.disk.instance.disks[args.disk.index]
            self._check_disk(disk)
            self._place(disk).contents[path_of(disk)] = content

    def on_stream_status(self, args: StreamArgs) -> StreamStatus:
        if args.receives:
            if LoopClock().time() > self.waits_until.get(args.token, 0.0):
                self.receiving.pop(args.token, None)  # the program has ended
            known = args.token in self.receiving or args.token in self.held
            return StreamStatus(known=known, running=known, result=self.held.get(args.token))
        return StreamStatus(known=True, running=True, done=64 * MIB, total=512 * MIB)

    def on_stream_end(self, args: StreamArgs) -> Nothing:
        if args.receives:
            self.receiving.pop(args.token, None)
            if self.held.pop(args.token, None) is not None:
                self.lost.add(args.token)
        return Nothing()

    def on_stream_commit(self, args: StreamArgs) -> Nothing:
        if self.held.pop(args.token, None) is not None:
            self.confirmed.add(args.token)
        return Nothing()

    def on_script_output(self, args: OutputArgs) -> Output:
        text = self.script_says[args.offset :]
        return Output(text=text, offset=args.offset + len(text))

    # --- exports ---

    def _kept(self, args: ExportArgs | FinishExportArgs | DumpEnd) -> dict[str, Export]:
        return self.copies if args.stored else self.exports

    def _made(self, args: ExportArgs | FinishExportArgs | DumpEnd) -> dict[str, Export]:
        return self.storing if args.stored else self.unfinished

    def on_export_list(self, args: Nothing) -> ExportListing:
        return ExportListing(names=sorted(self.exports), free=self.export_space)

    def on_export_info(self, args: ExportArgs) -> ExportContent:
        place = self._made(args) if args.unfinished else self._kept(args)
        found = place.get(host_name(args.export, "export"))
        if found is None:
            raise HostError(f"export {args.export} does not exist on this node")
        sizes = {name: len(content) for name, content in found.files.items()}
        return ExportContent(config=found.config, files=sizes, allocated=7)

    def on_export_begin(self, args: ExportArgs) -> Nothing:
        self._made(args)[args.export] = Export()
        return Nothing()

    def on_export_finish(self, args: FinishExportArgs) -> Nothing:
        new = self._made(args).pop(args.export, None)
        if new is None:
            raise HostError(f"no unfinished export of {args.export} exists")
        self._kept(args)[args.export] = Export(args.config, new.files)
        self.touched.discard(args.export)
        return Nothing()

    def on_export_remove(self, args: ExportArgs) -> Nothing:
        (self._made(args) if args.unfinished else self._kept(args)).pop(args.export, None)
        return Nothing()

    def on_export_verify(self, args: ExportArgs) -> list[DumpCheck]:
        found = self._kept(args).get(args.export)
        if found is None:
            raise HostError(f"export {args.export} does not exist on this node")
        return [
            DumpCheck(
                disk=number,
                file=disk.dump,
                problem=""
                if digest(found.files.get(disk.dump, "")) == disk.sha256
                else "its data is not what was exported (SHA-256)",
            )
            for number, disk in enumerate(parse_description(found.config).disks)
        ]

    # --- images ---

    def on_image_info(self, args: ImageArgs) -> ExportContent:
        found = self.images.get(args.path)
        if found is None:
            raise HostError(f"{args.path} is not below a directory that this node allows")
        return ExportContent(
            config=found.config, files={name: len(one) for name, one in found.files.items()}
        )

    def on_image_convert(self, args: ConvertArgs) -> Nothing:
        found = self.images[args.path]
        if found.config != args.config or self.image_changes:
            raise HostError("image: changed after it was checked")
        self.unfinished[args.export].files.update(found.files)
        return Nothing()

    def on_image_store(self, args: StoreArgs) -> Nothing:
        found = self.images.get(args.source)
        if found is None:
            raise HostError(f"{args.source} is not below a directory that this node allows")
        if self.image_changes:
            raise HostError("image: changed after it was checked")
        export = parse_description(found.config)
        disks = tuple(
            dataclasses.replace(
                disk,
                dump=f"disk{number}.raw",
                sha256=digest(found.files.get(f"disk{number}.raw", "")),
            )
            for number, disk in enumerate(export.disks)
        )
        config = format_description(dataclasses.replace(export, disks=disks), _NUMBERS)
        files = {disk.dump: found.files.get(disk.dump, "") for disk in disks}
        self.storing[args.export] = Export(config, files)
        return Nothing()

    def on_image_store_list(self, args: Nothing) -> StoredImages:
        found = {
            name: {
                disk.dump: StoredFile(length=disk.size * MIB, unchanged=name not in self.touched)
                for disk in parse_description(one.config).disks
                if disk.dump in one.files
            }
            for name, one in self.copies.items()
        }
        return StoredImages(images=found, free=self.export_space)

    def on_image_write(self, args: ImageFileArgs) -> Nothing:
        if args.path in self.image_files:
            raise HostError(f"path: {args.path} exists")
        self.image_files[args.path] = f"{args.format} of {args.export}"
        return Nothing()

    def on_export_pack(self, args: ExportArgs) -> Nothing:
        if self.pack_fails:
            raise HostError("no space left on device")
        self.packed.append(args.export)
        return Nothing()

    # --- snapshots ---

    def on_snapshot_possible(self, args: DiskOf) -> CanSnapshot:
        return CanSnapshot(possible=self.has_snapshots)

    def on_snapshot_take(self, args: SnapshotArgs) -> SnapshotTaken:
        if not self.has_snapshots:
            raise StorageError("no snapshots")
        if "/" in args.name:
            raise InputError("not a name", "name")
        self._check_disk(args.disk)
        path = f"{path_of(args.disk)}@{args.name}"
        content = self._place(args.disk).contents.get(path_of(args.disk), "")
        self.snapshots.setdefault(path, content)
        return SnapshotTaken(path=path)

    def on_snapshot_drop(self, args: SnapshotArgs) -> Nothing:
        self.snapshots.pop(f"{path_of(args.disk)}@{args.name}", None)
        return Nothing()

    def on_snapshots_take(self, args: TakeSnapshotsArgs) -> SnapshotsTaken:
        """All snapshots or none, with the guest as the node sees it at that moment."""
        self._check_hypervisor(args.instance.hypervisor)
        found: dict[str, str] = {}
        for disk, name in zip(args.instance.disks, args.names, strict=True):
            self._check_disk(disk)
            if not self.has_snapshots:
                raise StorageError("no snapshots")
            found[f"{path_of(disk)}@{name}"] = self._place(disk).contents.get(path_of(disk), "")
        self.snapshots |= found
        guest = self.guests.get(args.instance.uuid)
        is_up = guest is not None and guest.state != "shutdown"
        return SnapshotsTaken(consistency=Consistency.CRASH if is_up else Consistency.DOWN)

    def on_save_guest(self, args: SaveGuestArgs) -> GuestSaved:
        """The memory of a model guest is what its disks contain."""
        guest = self.guests.get(args.instance.uuid)
        if guest is None or guest.state != "running":
            raise HypervisorError(f"{args.instance.name} does not run")
        self._check_disk(args.memory)
        self.on_snapshots_take(TakeSnapshotsArgs(instance=args.instance, names=args.names))
        path = path_of(args.memory)
        content = self._place(args.memory).contents[path] = self._memory(args.instance)
        return GuestSaved(length=len(content), sha256=digest(content), paused_ms=12)

    def _memory(self, instance: InstanceSpec) -> str:
        found = [self._place(one).contents.get(path_of(one), "") for one in instance.disks]
        return f"memory of {found}"

    def on_saved_guest_misfits(self, args: SavedGuestArgs) -> list[str]:
        self._check_disk(args.memory)
        return list(self.misfits)

    def on_restore_guest(self, args: SavedGuestArgs) -> Nothing:
        instance = args.instance
        if instance.uuid in self.guests:
            raise HypervisorError(f"{instance.name} is on this node already")
        content = self._place(args.memory).contents[path_of(args.memory)]
        if self.load_fails or digest(content) != args.sha256:
            raise HypervisorError("the saved memory is damaged")
        if content != self._memory(instance):
            self.violations.append(f"{instance.name} has the memory of another moment")
        self.on_instance_start(StartArgs(instance=instance, paused=True))
        return Nothing()

    def on_snapshot_roll_back(self, args: SnapshotArgs) -> Nothing:
        if any(guest.spec.name == args.instance_name for guest in self.guests.values()):
            self.violations.append(f"a disk of {args.instance_name} is rolled back while it runs")
        self._check_disk(args.disk)
        path = path_of(args.disk)
        if f"{path}@{args.name}" not in self.snapshots:
            raise StorageError(f"its snapshot {args.name} does not exist")
        self._place(args.disk).contents[path] = self.snapshots[f"{path}@{args.name}"]
        return Nothing()
