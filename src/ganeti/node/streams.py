"""Answers calls that carry the data of disks; the work is done by `disk_stream.py` as a task."""

import asyncio
import contextlib
import hashlib
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
from ganeti.base.paths import Paths
from ganeti.guest_os.scripts import DiskOfScript, OsChoice, OsScripts, clean
from ganeti.model import wire
from ganeti.model.compression import check_compression
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.progress import Progress
from ganeti.node import disk_stream
from ganeti.node.disk_stream import StreamOrder
from ganeti.node.disks import DeviceFactory, InstanceDisks
from ganeti.node.export_directory import ExportDirectory
from ganeti.node.instance_locks import InstanceLocks
from ganeti.node.progress_file import read_progress
from ganeti.node.tasks import Program, Tasks, open_port
from ganeti.node.transfer_keys import TransferKeys
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.meters import follow
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.streams import (
    SCRIPT_OUTPUT,
    STREAM_COMMIT,
    STREAM_END,
    STREAM_RECEIVE,
    STREAM_SEND,
    STREAM_STATUS,
    TRANSFER_KEY_CREATE,
    TRANSFER_KEY_REMOVE,
    DiskEnd,
    Output,
    OutputArgs,
    ReceiveArgs,
    Receiving,
    SendArgs,
    StreamArgs,
    StreamResult,
    StreamStatus,
    TransferCertificate,
    TransferKeyArgs,
)

MIB = 1024 * 1024
STREAM_LIMIT_S = 24 * 3600.0
LOOK_EVERY_S = 0.02
COMMITTING_S = 40.0
"""How long a receiver may take to tell its sender that it may let go."""
KEPT = 200
"""Directories of ended streams that are kept at most."""


def handlers(streams: "Streams") -> Handlers:
    """The answers to all calls that carry the data of disks."""
    return {
        TRANSFER_KEY_CREATE.name: streams.create_key,
        TRANSFER_KEY_REMOVE.name: streams.remove_key,
        STREAM_RECEIVE.name: streams.receive,
        STREAM_SEND.name: streams.send,
        STREAM_STATUS.name: streams.status,
        STREAM_COMMIT.name: streams.commit,
        STREAM_END.name: streams.end,
        SCRIPT_OUTPUT.name: streams.script_output,
    }


@dataclass(frozen=True)
class _Start:
    """What the program is told: the order's part about what it reads or writes, environment, log."""

    part: dict[str, object]
    environment: Mapping[str, str] = field(default_factory=dict)
    log_path: Path | None = None


@dataclass(frozen=True)
class Streams:
    """The ends of streams on this node."""

    paths: Paths
    tasks: Tasks
    device: DeviceFactory
    locks: InstanceLocks
    scripts: OsScripts
    keys: TransferKeys
    exports: ExportDirectory
    receiving: set[asyncio.Task[int]] = field(default_factory=set)
    open: Counter[str] = field(default_factory=Counter)
    """Instance -> how many streams use its disks."""

    async def create_key(self, args: TransferKeyArgs, _call: Call) -> TransferCertificate:
        made = await asyncio.to_thread(self.keys.create, args.key_name, args.instance_name)
        return TransferCertificate(certificate=made)

    async def remove_key(self, args: TransferKeyArgs, _call: Call) -> Nothing:
        await asyncio.to_thread(self.keys.remove, args.key_name, args.instance_name)
        return Nothing()

    async def receive(self, args: ReceiveArgs, call: Call) -> Receiving:
        """Begin to wait for the sender; the program ends by itself if none comes."""
        check_compression(args.unpack, "unpack")
        file = self._file(args.token, receives=True)
        begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        work = self._receive(file, args, call, begun)
        task = asyncio.create_task(work, name=f"stream of {args.instance_name}")
        self.receiving.add(task)
        task.add_done_callback(self._ended)
        waiting: set[asyncio.Future[Any]] = {task, begun}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not begun.done():
            begun.cancel()
            await task  # raises why it could not begin
        return Receiving(port=await begun, sealed=not args.sha256)

    async def _receive(
        self, file: Path, args: ReceiveArgs, call: Call, begun: "asyncio.Future[int]"
    ) -> int:
        """Have the disk open until all has come; `begun` gets the port."""
        port = file.with_suffix(".port")
        async with self._start(args, call) as start:
            self._order(file, args, call, start, compress=args.unpack)
            program = self._program(file, start, partial(open_port, args.address, port))
            await self.tasks.begin(call.key, program)
            begun.set_result(int(port.read_text()))
            return await self.tasks.complete(call.key, program)

    async def send(self, args: SendArgs, call: Call) -> StreamResult:
        check_compression(args.pack, "pack")
        file = self._file(args.token, receives=False)
        async with self._start(args, call) as start:
            self._order(file, args, call, start, compress=args.pack)
            follow(lambda: read_progress(file))
            if await self.tasks.complete(call.key, self._program(file, start)):
                raise HostError(self._error(file))
        return self._result(file.with_suffix(".result"))

    async def status(self, args: StreamArgs, _call: Call) -> StreamStatus:
        return await asyncio.to_thread(self._status, self._file(args.token, receives=args.receives))

    def _status(self, file: Path) -> StreamStatus:
        if not file.exists():
            return StreamStatus(known=False)
        found = read_progress(file) or Progress(done=0)
        runs = file.with_suffix(".key").read_text() in self.tasks.running()
        status = StreamStatus(known=True, running=runs, done=found.done, total=found.total)
        if file.with_suffix(".error").exists():  # also of what was received, and then not confirmed
            return replace(status, error=self._error(file))
        for end in (file.with_suffix(".result"), file.with_suffix(".received")):
            if end.exists():
                return replace(status, result=self._result(end))
        return replace(status, error="" if runs else self._error(file))

    async def commit(self, args: StreamArgs, _call: Call) -> Nothing:
        """Let the sender hear that all is well, if the stream is known here."""
        file = self._file(args.token, receives=args.receives)
        if file.parent.exists():
            await asyncio.to_thread(write_atomically, file.with_suffix(".commit"), b"")
            await self._told(file, args.instance_name)
            await asyncio.to_thread(shutil.rmtree, file.parent, ignore_errors=True)
        return Nothing()

    async def _told(self, file: Path, name: str) -> None:
        """Return when the receiver has told its sender, and ended."""
        try:
            async with asyncio.timeout(COMMITTING_S):
                while (await asyncio.to_thread(self._status, file)).running:  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError as err:
            raise HostError(f"the sender of {name} has not heard yet that all is well") from err

    async def end(self, args: StreamArgs, _call: Call) -> Nothing:
        """Let nothing of a stream run any more, and forget it."""
        file = self._file(args.token, receives=args.receives)
        with contextlib.suppress(FileNotFoundError):
            key = await asyncio.to_thread(file.with_suffix(".key").read_text)
            if not await self.tasks.end(key):
                raise HostError(f"the transfer of {args.instance_name} could not be ended")
        await asyncio.to_thread(shutil.rmtree, file.parent, ignore_errors=True)
        return Nothing()

    async def script_output(self, args: OutputArgs, _call: Call) -> Output:
        data, offset, skipped = await asyncio.to_thread(self.scripts.output, args.key, args.offset)
        return Output(text=clean(data), offset=offset, skipped=skipped)

    # --- what is read or written ---

    @contextlib.asynccontextmanager
    async def _start(self, args: ReceiveArgs | SendArgs, call: Call) -> AsyncIterator[_Start]:
        """What the program has to read or write, usable for the time of a block."""
        if (args.disk is None) == (args.dump is None):
            raise InputError("exactly one of disk and dump must be given", "disk")
        if args.dump is not None:
            yield await asyncio.to_thread(self._dump, args)
        elif args.disk is not None:
            async with self._disk(args.disk, call, receives=isinstance(args, ReceiveArgs)) as start:
                yield start

    def _dump(self, args: ReceiveArgs | SendArgs) -> _Start:
        dump = args.dump
        assert dump is not None  # noqa: S101 - the caller looked
        if isinstance(args, ReceiveArgs):
            path = self.exports.new_file(dump.export, dump.file)
            return _Start({"path": str(path), "makes_file": True})
        path = self.exports.file(dump.export, dump.file)
        return _Start({"path": str(path), "size": path.stat().st_size})

    @contextlib.asynccontextmanager
    async def _disk(self, end: DiskEnd, call: Call, *, receives: bool) -> AsyncIterator[_Start]:
        instance = end.instance
        if not 0 <= end.index < len(instance.disks):
            raise InputError(f"instance {instance.name} has no disk {end.index}", "disk.index")
        disks = InstanceDisks(self.device, instance)
        if end.snapshot:  # the guest may run: its disks are not ours to open
            yield self._disk_start(end, disks.paths, call, receives=receives)
            return
        async with self._opened(disks, instance.name) as paths:
            await self.device(instance.name, instance.disks[end.index]).check_identity()
            yield self._disk_start(end, paths, call, receives=receives)

    @contextlib.asynccontextmanager
    async def _opened(self, disks: InstanceDisks, name: str) -> AsyncIterator[list[str]]:
        """Have an instance's disks open until the last of its streams that go on beside each other has ended."""
        async with self.locks.of(name):
            paths = disks.paths if self.open.get(name) else await disks.open()
            self.open[name] += 1
        try:
            yield paths
        finally:
            async with self.locks.of(name):
                self.open[name] -= 1
                if not self.open[name]:
                    del self.open[name]
                    await disks.close()

    def _disk_start(self, end: DiskEnd, paths: list[str], call: Call, *, receives: bool) -> _Start:
        spec = end.instance.disks[end.index]
        path = end.snapshot or paths[end.index]
        if not end.os:
            has_zeros = DISK_TEMPLATES[spec.template].in_files
            part: dict[str, object] = {"path": path, "has_zeros": has_zeros, "form": "raw"}
            # What reads as something else than it has in the configuration would be sent in part.
            return _Start(part if receives else {**part, "size": spec.size * MIB})
        choice = OsChoice(end.os, end.osparams, force_variant=True, facts=end.facts)
        of_script = DiskOfScript(path, end.index, call.key, end.debug)
        make = self.scripts.import_command if receives else self.scripts.export_command
        command = make(choice, end.instance, paths, of_script)
        return _Start(
            {"argv": command.argv, "form": "script"}, command.environment, command.log_path
        )

    # --- the program ---

    def _file(self, token: str, *, receives: bool) -> Path:
        """The order of one end; both may be on one node."""
        if not token:
            raise InputError("a stream needs a token", "token")
        name = hashlib.sha256(token.encode()).hexdigest()[:32]
        return self.paths.streams / f"{name}-{'in' if receives else 'out'}" / "stream.order"

    def _order(
        self,
        file: Path,
        args: ReceiveArgs | SendArgs,
        call: Call,
        start: _Start,
        *,
        compress: str,
    ) -> None:
        file.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _forget_old(file.parent.parent)
        file.parent.mkdir(mode=0o700, exist_ok=True)
        tls = self.keys.files(args.key_name, args.instance_name, args.peer, file)
        given: dict[str, object] = {
            "size": args.size,
            "token": args.token,
            "address": args.address,
            "compress": compress,
            "certificate": str(tls.certificate),
            "key": str(tls.key),
            "peer": str(tls.peer),
            "plain": self.keys.is_upstream(args.peer),
            **start.part,
        }
        if isinstance(args, ReceiveArgs):
            given |= {"receives": True, "limit": args.limit, "sha256": args.sha256}
            given |= {"hold": args.hold, "wait_s": float(args.wait_s)}
        else:
            given |= {"receives": False, "port": args.port, "digests": args.digests}
            given |= {"sealed": args.sealed}
        write_atomically(file.with_suffix(".key"), call.key.encode())
        write_atomically(file, wire.encode(wire.convert(given, StreamOrder, what="order")))

    @staticmethod
    def _program(
        file: Path, start: _Start, listens: Callable[[], socket.socket] | None = None
    ) -> Program:
        # The program must find this package as the daemon did; it does not hand this on.
        own = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
        return Program(
            [sys.executable, "-m", disk_stream.__name__, str(file)],
            env={**start.environment, **own},
            log_path=start.log_path or file.with_suffix(".log"),
            timeout_s=STREAM_LIMIT_S,
            listens=listens,
        )

    def _ended(self, task: "asyncio.Task[int]") -> None:
        self.receiving.discard(task)
        if not task.cancelled():
            task.exception()  # the sender has heard of it

    def _result(self, file: Path) -> StreamResult:
        content = file.read_bytes()
        return wire.decode(content, StreamResult, what="the result of a stream")

    def _error(self, file: Path) -> str:
        for suffix in (".error", ".log"):
            with contextlib.suppress(FileNotFoundError):
                if said := file.with_suffix(suffix).read_text(errors="replace").strip():
                    return said[-2000:]
        return "the program that carries the data was ended before it could say why"


def _forget_old(directory: Path) -> None:
    ages: list[tuple[float, Path]] = []
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            ages.append((path.stat().st_mtime, path))
    for _, path in sorted(ages)[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)
