"""Answers calls that transfer the data of disks.

The carrier (`carrier/program.py`) does the work as a task.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import HostError, InputError
from ganeti.base.files import write_atomically
from ganeti.base.identifiers import host_name
from ganeti.base.paths import Paths
from ganeti.guest_os.scripts import DiskOfScript, OsChoice, OsScripts, clean
from ganeti.model import wire
from ganeti.model.compression import COMPRESSIONS, NONE, check_compression
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.progress import Progress
from ganeti.node.backups.directory import entered, path_of
from ganeti.node.backups.key_pipe import VARIABLE, packed
from ganeti.node.carrier import program as carrier
from ganeti.node.carrier.greeting import DUMP, RAW, SCRIPT
from ganeti.node.carrier.keys import TransferKeys
from ganeti.node.carrier.order import (
    ChangesOrder,
    EndOrder,
    ImageOrder,
    PointOrder,
    StreamOrder,
    order_file,
)
from ganeti.node.carrier.progress import read_progress
from ganeti.node.disks import DeviceFactory, InstanceDisks
from ganeti.node.export_directory import ExportDirectories
from ganeti.node.instance_locks import InstanceLocks
from ganeti.node.tasks import Program, Tasks, open_port
from ganeti.protocols.backup_manifest import check_point, image_file
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.meters import follow
from ganeti.rpc.procedures.backup_keys import NO_BACKUP_KEYS, BackupKeys
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.streams import (
    SCRIPT_OUTPUT,
    STREAM_COMMIT,
    STREAM_COPY,
    STREAM_END,
    STREAM_RECEIVE,
    STREAM_SEND,
    STREAM_STATUS,
    STREAM_WITHIN,
    TRANSFER_KEY_CREATE,
    TRANSFER_KEY_REMOVE,
    CopyArgs,
    DiskEnd,
    DumpEnd,
    EndArgs,
    Output,
    OutputArgs,
    PointEnd,
    ReceiveArgs,
    Receiving,
    SendArgs,
    StreamArgs,
    StreamResult,
    StreamStatus,
    TransferCertificate,
    TransferKeyArgs,
    WithinArgs,
)

MIB = 1024 * 1024
STREAM_LIMIT_S = 24 * 3600.0
LOOK_EVERY_S = 0.02
COMMITTING_S = 40.0
"""Time that a receiver may take to answer its sender after the commit."""
_IN, _OUT, _COPY = "in", "out", "copy"
_ENDS = 4
KEPT = 200
"""Maximum number of directories of ended streams that are kept."""


def handlers(streams: "Streams") -> Handlers:
    """Return the handlers of all calls that transfer the data of disks."""
    return {
        TRANSFER_KEY_CREATE.name: streams.create_key,
        TRANSFER_KEY_REMOVE.name: streams.remove_key,
        STREAM_RECEIVE.name: streams.receive,
        STREAM_SEND.name: streams.send,
        STREAM_COPY.name: streams.copy,
        STREAM_WITHIN.name: streams.within,
        STREAM_STATUS.name: streams.status,
        STREAM_COMMIT.name: streams.commit,
        STREAM_END.name: streams.end,
        SCRIPT_OUTPUT.name: streams.script_output,
    }


@dataclass(frozen=True)
class Start:
    """The program's input or output, and its start; `size` overrides the size of the call."""

    end: EndOrder
    size: int | None = None
    form: str = DUMP
    environment: Mapping[str, str] = field(default_factory=dict)
    log_path: Path | None = None
    keys: BackupKeys = NO_BACKUP_KEYS


@dataclass(frozen=True)
class Streams:
    """The ends of streams on this node."""

    paths: Paths
    tasks: Tasks
    device: DeviceFactory
    locks: InstanceLocks
    scripts: OsScripts
    keys: TransferKeys
    exports: ExportDirectories
    receiving: set[asyncio.Task[int]] = field(default_factory=set)
    open: Counter[str] = field(default_factory=Counter)
    """Instance -> number of streams that use its disks."""

    async def create_key(self, args: TransferKeyArgs, _call: Call) -> TransferCertificate:
        made = await asyncio.to_thread(self.keys.create, args.key_name, args.instance_name)
        return TransferCertificate(certificate=made)

    async def remove_key(self, args: TransferKeyArgs, _call: Call) -> Nothing:
        await asyncio.to_thread(self.keys.remove, args.key_name, args.instance_name)
        return Nothing()

    async def receive(self, args: ReceiveArgs, call: Call) -> Receiving:
        """Start waiting for the sender; the program ends if no sender connects."""
        check_compression(args.unpack, "unpack")
        begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        work = self._receive(args, call, begun)
        task = asyncio.create_task(work, name=f"stream of {args.instance_name}")
        self.receiving.add(task)
        task.add_done_callback(self._ended)
        waiting: set[asyncio.Future[Any]] = {task, begun}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not begun.done():
            begun.cancel()
            await task  # raises the reason of a failed start
        return Receiving(port=await begun, sealed=not args.sha256, inflates=True)

    async def _receive(self, args: ReceiveArgs, call: Call, begun: "asyncio.Future[int]") -> int:
        """Keep the disk open until all data has arrived; `begun` gets the port."""
        file = self.file(args.token, _IN)
        port = file.with_suffix(".port")
        async with self._start(args, args.token, call, receives=True) as start:
            order = StreamOrder(
                sink=start.end,
                size=args.size,
                limit=args.limit,
                compress=args.unpack,
                sha256=args.sha256,
                form=start.form,
                hold=args.hold,
                wait_s=float(args.wait_s),
                silence_s=args.silence_s,
                token=args.token,
                address=args.address,
            )
            self.write_order(file, self._secured(file, order, args), call)
            program = self.program(file, start, partial(open_port, args.address, port))
            await self.tasks.begin(call.key, program)
            begun.set_result(int(port.read_text()))
            return await self.tasks.complete(call.key, program)

    async def send(self, args: SendArgs, call: Call) -> StreamResult:
        check_compression(args.pack, "pack")
        file, packer = self.file(args.token, _OUT), COMPRESSIONS[args.pack]
        level = packer.level if packer and args.deflates else 0
        async with self._start(args, args.token, call, receives=False) as start:
            order = StreamOrder(
                source=start.end,
                size=args.size if start.size is None else start.size,
                compress=NONE if level else args.pack,
                level=level,
                digests=args.digests,
                sealed=args.sealed,
                form=start.form,
                silence_s=args.silence_s,
                token=args.token,
                address=args.address,
                port=args.port,
                rate=args.rate,
            )
            self.write_order(file, self._secured(file, order, args), call)
            return await self.completed(file, start, call)

    async def copy(self, args: CopyArgs, call: Call) -> StreamResult:
        """Copy one disk to another one of this node; both are open."""
        file, ends = self.file(args.token, _COPY), list[EndOrder]()
        for disk in (args.source, args.target):
            device = self.device(args.instance_name, disk)
            await device.check_identity()
            has_zeros = disk.wipe or DISK_TEMPLATES[disk.template].in_files
            ends.append(EndOrder(path=device.image, is_image=device.is_image, has_zeros=has_zeros))
        source, target = ends
        order = StreamOrder(source=source, sink=target, size=args.source.size * MIB)
        self.write_order(file, order, call)
        return await self.completed(file, Start(source), call)

    async def within(self, args: WithinArgs, call: Call) -> StreamResult:
        """Move data between two ends of this node, by one program."""
        file, token = self.file(args.token, _COPY), args.token
        async with (
            self._start(args.source, token, call, receives=False) as source,
            self._start(args.target, token, call, receives=True) as target,
        ):
            if source.form != target.form or SCRIPT in (source.form, target.form):
                raise InputError("reads the data in another form than it is sent in", "target")
            order = StreamOrder(
                source=source.end,
                sink=target.end,
                size=args.size if source.size is None else source.size,
                limit=args.limit,
                form=source.form,
                rate=args.rate,
            )
            self.write_order(file, order, call)
            keys = target.keys if source.keys == NO_BACKUP_KEYS else source.keys
            return await self.completed(file, Start(source.end, keys=keys), call)

    async def completed(self, file: Path, start: Start, call: Call) -> StreamResult:
        """Return the result of an ended program; HostError with its reason if it failed."""
        follow(lambda: read_progress(file))
        if await self.tasks.complete(call.key, self.program(file, start)):
            raise HostError(self._error(file))
        return self._result(file.with_suffix(".result"))

    async def status(self, args: StreamArgs, _call: Call) -> StreamStatus:
        return await asyncio.to_thread(self._status, self._file_of(args))

    def _status(self, file: Path) -> StreamStatus:
        if not file.exists():
            return StreamStatus(known=False)
        found = read_progress(file) or Progress(done=0)
        runs = file.with_suffix(".key").read_text() in self.tasks.running()
        status = StreamStatus(known=True, running=runs, done=found.done, total=found.total)
        if file.with_suffix(".error").exists():  # also of data that was received but not confirmed
            return replace(status, error=self._error(file))
        for end in (file.with_suffix(".result"), file.with_suffix(".received")):
            if end.exists():
                return replace(status, result=self._result(end))
        return replace(status, error="" if runs else self._error(file))

    async def commit(self, args: StreamArgs, _call: Call) -> Nothing:
        """Let the receiver confirm to its sender, if the stream is known here."""
        file = self._file_of(args)
        if file.parent.exists():
            await asyncio.to_thread(write_atomically, file.with_suffix(".commit"), b"")
            await self._confirmed(file, args.instance_name)
            await asyncio.to_thread(shutil.rmtree, file.parent, ignore_errors=True)
        return Nothing()

    async def _confirmed(self, file: Path, name: str) -> None:
        """Return when the receiver has answered its sender and ended."""
        try:
            async with asyncio.timeout(COMMITTING_S):
                while (await asyncio.to_thread(self._status, file)).running:  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError as err:
            raise HostError(
                f"the sender of {name} has not been notified yet of the success"
            ) from err

    async def end(self, args: StreamArgs, _call: Call) -> Nothing:
        """End all processes of a stream, and forget it."""
        file = self._file_of(args)
        with contextlib.suppress(FileNotFoundError):
            key = await asyncio.to_thread(file.with_suffix(".key").read_text)
            if not await self.tasks.end(key):
                raise HostError(f"the transfer of {args.instance_name} could not be ended")
        if args.receives:
            await asyncio.to_thread(self.sums_file(args.token).unlink, missing_ok=True)
        await asyncio.to_thread(shutil.rmtree, file.parent, ignore_errors=True)
        return Nothing()

    async def script_output(self, args: OutputArgs, _call: Call) -> Output:
        data, offset, skipped = await asyncio.to_thread(self.scripts.output, args.key, args.offset)
        return Output(text=clean(data), offset=offset, skipped=skipped)

    # Sources and sinks

    @contextlib.asynccontextmanager
    async def _start(
        self, args: EndArgs, token: str, call: Call, *, receives: bool
    ) -> AsyncIterator[Start]:
        """Yield what the program reads or writes, usable for the block."""
        if [args.disk, args.dump, args.point, args.sums].count(None) != _ENDS - 1:
            raise InputError("pass exactly one of disk, dump, point and sums", "disk")
        if args.dump is not None:
            yield await asyncio.to_thread(self._dump, args.dump, receives=receives)
        elif args.sums is not None:
            path = self.sums_file(token)
            await asyncio.to_thread(path.parent.mkdir, mode=0o700, parents=True, exist_ok=True)
            yield Start(EndOrder(path=str(path), makes_file=True))
        elif args.point is not None:
            yield await asyncio.to_thread(self._point, args.point, receives=receives)
        elif args.disk is not None:
            async with self._disk(args.disk, call, receives=receives) as start:
                yield start

    def _dump(self, dump: DumpEnd, *, receives: bool) -> Start:
        if receives:
            path = self.exports.of(stored=dump.stored).new_file(dump.export, dump.file)
            return Start(EndOrder(path=str(path), makes_file=True))
        path = self.exports.of(stored=dump.stored).file(dump.export, dump.file)
        return Start(EndOrder(path=str(path)), size=path.stat().st_size)

    def _point(self, point: PointEnd, *, receives: bool) -> Start:
        """Return a new image, or the disk of a backup that has no unfinished merge."""
        host_name(point.instance, "instance")
        directory = str(path_of(self.paths, point.target, point.instance))
        if receives:
            image = ImageOrder(
                directory=directory,
                file=image_file(point.point, point.disk),
                backing=image_file(point.parent, point.disk) if point.parent else "",
                disk=point.disk,
                size=point.size,
            )
            return Start(EndOrder(path=directory, image=image), keys=point.keys)
        with (
            entered(self.paths, point.target, point.instance, keys=point.keys.keyring) as found,
            found.locked(),
        ):
            found.complete()
        check_point(point.point)
        order = PointOrder(directory=directory, point=point.point, disk=point.disk, sums=point.sums)
        end = EndOrder(path=directory, point=order)
        form = DUMP if point.sums else RAW
        return Start(end, size=point.size, form=form, keys=point.keys)

    def sums_file(self, token: str) -> Path:
        """Return the path for the sums of blocks that a transfer brings."""
        return self.paths.image_work / order_file(self.paths.streams, token, "sums").parent.name

    @contextlib.asynccontextmanager
    async def _disk(self, end: DiskEnd, call: Call, *, receives: bool) -> AsyncIterator[Start]:
        instance = end.instance
        if not 0 <= end.index < len(instance.disks):
            raise InputError(f"instance {instance.name} has no disk {end.index}", "disk.index")
        disks = InstanceDisks(self.device, instance)
        if end.snapshot or end.moment:  # the guest may run: its disks must not be opened here
            yield self._disk_start(end, disks, call, receives=receives)
            return
        if end.os:
            disks.paths  # noqa: B018 - scripts know no images: refused before anything is opened
        async with self._opened(disks, instance.name):
            await self.device(instance.name, instance.disks[end.index]).check_identity()
            yield self._disk_start(end, disks, call, receives=receives)

    @contextlib.asynccontextmanager
    async def _opened(self, disks: InstanceDisks, name: str) -> AsyncIterator[None]:
        """Keep an instance's disks open until the last of its concurrent streams has ended."""
        async with self.locks.of(name):
            if not self.open.get(name):
                await disks.open()
            self.open[name] += 1
        try:
            yield
        finally:
            async with self.locks.of(name):
                self.open[name] -= 1
                if not self.open[name]:
                    del self.open[name]
                    await disks.close()

    def _disk_start(
        self, end: DiskEnd, disks: InstanceDisks, call: Call, *, receives: bool
    ) -> Start:
        spec = end.instance.disks[end.index]
        device = self.device(end.instance.name, spec)
        path, is_image = end.snapshot or device.image, device.is_image
        if end.changes or end.moment:
            sums = str(self.sums_file(end.sums)) if end.sums else ""
            order = ChangesOrder(sums=sums)
            if end.moment:
                path = self._moment(end.moment)
                order = ChangesOrder(
                    sums=sums,
                    export=spec.uuid,
                    bitmap=end.bitmap,
                    whole=not end.changes,
                    spare=str(self.paths.image_work),
                )
            form = DUMP if end.changes else RAW
            changes = EndOrder(path=path, is_image=is_image, changes=order)
            return Start(changes, size=spec.size * MIB, form=form)
        if not end.os:
            has_zeros = DISK_TEMPLATES[spec.template].in_files and not end.holds_data
            whole = EndOrder(path=path, is_image=is_image, has_zeros=has_zeros)
            # A disk that reads differently from its configuration would be sent in part.
            return Start(whole, size=spec.size * MIB, form=RAW)
        choice = OsChoice(end.os, end.osparams, force_variant=True, facts=end.facts)
        of_script = DiskOfScript(path, end.index, call.key, end.debug)
        make = self.scripts.import_command if receives else self.scripts.export_command
        command = make(choice, end.instance, disks.paths, of_script)
        script = EndOrder(argv=tuple(command.argv))
        return Start(script, None, SCRIPT, command.environment, command.log_path)

    def _moment(self, socket_path: str) -> str:
        """Return the path of a socket of a guest of this node."""
        path = Path(socket_path)
        if path.parent != self.paths.kvm or path.suffix != ".b":
            raise InputError("is not a socket of a guest", "disk.moment")
        return str(path)

    # The program

    def file(self, token: str, role: str) -> Path:
        """Return the path of the order of one end."""
        if not token:
            raise InputError("a stream needs a token", "token")
        return order_file(self.paths.streams, token, role)

    def _file_of(self, args: StreamArgs) -> Path:
        """Return the path of the order for a call about a stream, or about a copy on this node."""
        if not args.receives and (copy := self.file(args.token, _COPY)).exists():
            return copy
        return self.file(args.token, _IN if args.receives else _OUT)

    def _secured(self, file: Path, order: StreamOrder, args: ReceiveArgs | SendArgs) -> StreamOrder:
        """Return the order with keys and the protocol of the peer."""
        _make_directory(file.parent)
        tls = self.keys.files(args.key_name, args.instance_name, args.peer, file)
        return replace(
            order,
            certificate=str(tls.certificate),
            key=str(tls.key),
            peer=str(tls.peer),
            wire="upstream" if self.keys.is_upstream(args.peer) else "frames",
        )

    def write_order(self, file: Path, order: StreamOrder, call: Call) -> None:
        """Write the order, with the call that it belongs to."""
        _make_directory(file.parent)
        _forget_old(file.parent.parent)
        write_atomically(file.with_suffix(".key"), call.key.encode())
        write_atomically(file, wire.encode(order))

    @staticmethod
    def program(
        file: Path, start: Start, listens: Callable[[], socket.socket] | None = None
    ) -> Program:
        """Return the program that carries out an order."""
        # The program must find this package like the daemon; it does not pass the path on.
        own = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
        return Program(
            [sys.executable, "-m", carrier.__name__, str(file)],
            env={**start.environment, **own},
            log_path=start.log_path or file.with_suffix(".log"),
            timeout_s=STREAM_LIMIT_S,
            listens=listens,
            secret=packed(start.keys),
            secret_variable=VARIABLE,
        )

    def _ended(self, task: "asyncio.Task[int]") -> None:
        self.receiving.discard(task)
        if not task.cancelled():
            task.exception()  # the sender was notified

    def _result(self, file: Path) -> StreamResult:
        content = file.read_bytes()
        return wire.decode(content, StreamResult, what="the result of a stream")

    def _error(self, file: Path) -> str:
        for suffix in (".error", ".log"):
            with contextlib.suppress(FileNotFoundError):
                if said := file.with_suffix(suffix).read_text(errors="replace").strip():
                    return said[-2000:]
        return "the program that transfers the data was ended before it could report the reason"


def _make_directory(directory: Path) -> None:
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)


def _forget_old(directory: Path) -> None:
    ages: list[tuple[float, Path]] = []
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            ages.append((path.stat().st_mtime, path))
    for _, path in sorted(ages)[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)
