"""Answers calls that copy disks to other nodes; the work is done by `disk_copy.py` as a task."""

import contextlib
import hashlib
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ganeti.base.errors import HostError, InputError
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
from ganeti.node.progress_file import read_progress
from ganeti.node.tasks import Program, Tasks, open_port
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.meters import follow
from ganeti.rpc.procedures.transfers import (
    DISK_LISTEN,
    DISK_SEND,
    DiskListenArgs,
    DiskListening,
    DiskSendArgs,
    DiskSent,
)

MIB = 1024 * 1024
COPY_LIMIT_S = 24 * 3600.0
KEPT = 500
"""Files that are kept, some for each copy; by number, for the clock may jump while a copy goes on."""


def handlers(paths: Paths, tasks: Tasks, device: DeviceFactory, locks: InstanceLocks) -> Handlers:
    """The answers to all calls that copy disks between nodes."""
    transfers = _Transfers(paths, tasks, device, locks)
    return {
        DISK_LISTEN.name: transfers.listen,
        DISK_SEND.name: transfers.send,
    }


@dataclass(frozen=True)
class _Transfers:
    paths: Paths
    tasks: Tasks
    device: DeviceFactory
    locks: InstanceLocks

    async def listen(self, args: DiskListenArgs, call: Call) -> DiskListening:
        """Begin to wait for the sender; the program ends by itself if none comes."""
        async with self.locks.of(args.instance_name):
            path = await self._disk(args.instance_name, args.disk)
            file = self._file(args.token, RECEIVE)
            self._order(file, args.disk, path, args)
            port = file.with_suffix(".port")
            program = self._program(RECEIVE, file, partial(open_port, args.address, port))
            await self.tasks.begin(call.key, program)
            return DiskListening(port=int(port.read_text()))

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
            follow(lambda: read_progress(file))
            if await self.tasks.complete(call.key, self._program(SEND, file)):
                raise HostError(f"disk {args.disk.index} was not copied: {self._said(file)}")
        result = file.with_suffix(".result").read_bytes()
        return wire.decode(result, DiskSent, what="the result of a copy")

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

    @staticmethod
    def _program(
        role: str, file: Path, listens: Callable[[], socket.socket] | None = None
    ) -> Program:
        words = [sys.executable, "-m", disk_copy.__name__, role, str(file)]
        # The program must find this package as the daemon did.
        env = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
        return Program(
            words, env, file.with_suffix(".log"), timeout_s=COPY_LIMIT_S, listens=listens
        )

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
