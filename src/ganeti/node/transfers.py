"""Answers calls that copy disks to other nodes; the work is done by `disk_copy.py` as a task."""

import asyncio
import contextlib
import hashlib
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ganeti.base.errors import HostError, InputError, StorageError
from ganeti.base.files import write_atomically
from ganeti.base.paths import Paths
from ganeti.base.tls import is_fingerprint
from ganeti.model import wire
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.instance_spec import DiskSpec
from ganeti.node import disk_copy
from ganeti.node.disk_copy import COMPRESSION, RECEIVE, SEND, CopyOrder
from ganeti.node.disks import DeviceFactory
from ganeti.node.instance_locks import InstanceLocks
from ganeti.node.tasks import Tasks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.transfers import (
    DISK_LISTEN,
    DISK_PROGRESS,
    DISK_SEND,
    DiskListenArgs,
    DiskListening,
    DiskProgress,
    DiskProgressArgs,
    DiskSendArgs,
    DiskSent,
)

MIB = 1024 * 1024
COPY_LIMIT_S = 24 * 3600.0
LISTENING_S = 30.0
LOOK_EVERY_S = 0.02
KEPT = 500
"""Files that are kept, some for each copy; by number, for the clock may jump while a copy goes on."""


def handlers(paths: Paths, tasks: Tasks, device: DeviceFactory, locks: InstanceLocks) -> Handlers:
    """The answers to all calls that copy disks between nodes."""
    transfers = _Transfers(paths, tasks, device, locks)
    return {
        DISK_LISTEN.name: transfers.listen,
        DISK_SEND.name: transfers.send,
        DISK_PROGRESS.name: transfers.progress,
    }


@dataclass(frozen=True)
class _Transfers:
    paths: Paths
    tasks: Tasks
    device: DeviceFactory
    locks: InstanceLocks
    listening: set[asyncio.Task[int]] = field(default_factory=set)

    async def listen(self, args: DiskListenArgs, call: Call) -> DiskListening:
        """Begin to wait for the sender; the program ends by itself if none comes."""
        async with self.locks.of(args.instance_name):
            path = await self._disk(args.instance_name, args.disk)
            file = self._file(args.token, RECEIVE)
            self._order(file, args.disk, path, args)
            waiting = asyncio.create_task(self._run(RECEIVE, file, call.key))
            self.listening.add(waiting)
            waiting.add_done_callback(self._ended)
            return DiskListening(port=await self._port(file, waiting))

    async def send(self, args: DiskSendArgs, call: Call) -> DiskSent:
        if args.compress not in COMPRESSION:
            raise InputError(
                f"{args.compress!r:.40} is not one of {', '.join(COMPRESSION)}", "compress"
            )
        async with self.locks.of(args.instance_name):
            path = await self._disk(args.instance_name, args.disk)
            file = self._file(args.token, SEND)
            sparse = args.leaves_out_zeros
            if sparse is None:
                sparse = DISK_TEMPLATES[args.disk.template].in_files
            self._order(
                file,
                args.disk,
                path,
                args,
                port=args.port,
                compress=args.compress,
                leaves_out_zeros=sparse,
            )
            if await self._run(SEND, file, call.key):
                raise HostError(f"disk {args.disk.index} was not copied: {self._said(file)}")
        result = file.with_suffix(".result").read_bytes()
        return wire.decode(result, DiskSent, what="the result of a copy")

    async def progress(self, args: DiskProgressArgs, _call: Call) -> DiskProgress | None:
        file = self._file(args.token, SEND).with_suffix(".progress")
        try:
            return wire.decode(file.read_bytes(), DiskProgress, what=str(file))
        except FileNotFoundError:
            return None

    async def _disk(self, instance_name: str, disk: DiskSpec) -> str:
        """The path of a disk that is there, whole, and really its own."""
        device = self.device(instance_name, disk)
        await device.check_identity()
        return device.path

    def _file(self, token: str, role: str) -> Path:
        """The order of one end of a copy; both ends may be virtual nodes of one host."""
        name = hashlib.sha256(token.encode()).hexdigest()[:32]
        return self.paths.disk_copies / f"{name}-{role}.order"

    def _order(
        self,
        file: Path,
        disk: DiskSpec,
        path: str,
        args: DiskListenArgs | DiskSendArgs,
        **others: Any,
    ) -> None:
        if not is_fingerprint(args.peer) or not args.token:
            raise InputError("a copy needs the other node's fingerprint and a token", "peer")
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _forget_old(file.parent)
        order = CopyOrder(
            path=path,
            size=disk.size * MIB,
            address=args.address,
            peer=args.peer,
            token=args.token,
            certificate=str(self.paths.node_certificate),
            key=str(self.paths.node_key),
            authority=str(self.paths.authority_certificate),
            **others,
        )
        write_atomically(file, wire.encode(order))

    async def _run(self, role: str, file: Path, key: str) -> int:
        words = [sys.executable, "-m", disk_copy.__name__, role, str(file)]
        # The program must find this package as the daemon did.
        env = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
        return await self.tasks.run(
            key, words, env=env, log_path=file.with_suffix(".log"), timeout_s=COPY_LIMIT_S
        )

    async def _port(self, file: Path, waiting: "asyncio.Task[int]") -> int:
        """The port, once the program has written it down."""
        if (port := await written_port(file, waiting)) is not None:
            return port
        raise StorageError(f"nothing listens for the disk: {self._said(file)}")

    def _ended(self, task: "asyncio.Task[int]") -> None:
        self.listening.discard(task)
        if not task.cancelled():
            task.exception()  # the sender has heard of it

    def _said(self, file: Path) -> str:
        try:
            said = file.with_suffix(".log").read_text(errors="replace").strip()
        except FileNotFoundError:
            said = ""
        return said[-800:] or "the program said nothing"


def _forget_old(directory: Path) -> None:
    ages: list[tuple[float, Path]] = []
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            ages.append((path.stat().st_mtime, path))
    for _, path in sorted(ages)[:-KEPT]:
        path.unlink(missing_ok=True)


async def written_port(file: Path, program: "asyncio.Task[int]") -> int | None:
    """The port that a program listens at, once it has written it down; None if it ends or takes too long."""
    port = file.with_suffix(".port")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LISTENING_S):
            while not program.done():
                with contextlib.suppress(FileNotFoundError):
                    return int(port.read_text())
                await asyncio.sleep(LOOK_EVERY_S)
    return None
