"""Answers calls about live restores: the programs between a backup and a guest, and what the guest writes meanwhile.

DATA/live-restores/INSTANCE-UUID/DISK-UUID.qcow2   an overlay: what the guest has written
used              the guest has been started above the overlays
"""

import asyncio
import contextlib
import os
import shutil
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from ganeti import uidpool
from ganeti.base.errors import GanetiError, HostError, HypervisorError, InputError
from ganeti.base.files import sync_directory, write_atomically
from ganeti.base.identifiers import host_name, is_uuid
from ganeti.base.paths import Paths
from ganeti.hypervisor.disk_moves import DiskMoveRecords
from ganeti.hypervisor.interface import Hypervisor, options_of
from ganeti.hypervisor.live_restores import StartsAbove
from ganeti.images.convert import UIDS
from ganeti.model import wire
from ganeti.model.instance_spec import InstanceSpec
from ganeti.node.backups import live_program, live_relay
from ganeti.node.backups.directory import NEW, entered, path_of
from ganeti.node.backups.images import ImageWriter, new_image, open_directory
from ganeti.node.backups.key_pipe import VARIABLE, packed
from ganeti.node.backups.live_program import READY, LiveOrder
from ganeti.node.backups.live_relay import RelayOrder
from ganeti.node.carrier.keys import TransferKeys
from ganeti.node.carrier.order import TlsFiles, order_file
from ganeti.node.disks import DeviceFactory, InstanceDisks
from ganeti.node.instance_locks import InstanceLocks
from ganeti.node.tasks import Program, Tasks, open_port
from ganeti.protocols.backup_manifest import check_point
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.backup_keys import NO_BACKUP_KEYS, BackupKeys
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.live_restores import (
    LIVE_END,
    LIVE_SERVE,
    LIVE_SERVE_END,
    LIVE_START,
    LiveEndArgs,
    LiveEnded,
    LiveServerArgs,
    LiveStartArgs,
    LiveStarted,
    Served,
    ServePointArgs,
)

MIB = 1024 * 1024
SERVE_LIMIT_S = 30 * 24 * 3600.0
READY_S, LOOK_EVERY_S = 60.0, 0.02
_USED = "used"
_SERVER, _RELAY = "live", "live-relay"


def handlers(calls: "LiveRestores") -> Handlers:
    """Return the handlers; the ones about a guest wait for the lock of its instance."""
    return {
        LIVE_SERVE.name: calls.serve,
        LIVE_SERVE_END.name: calls.serve_end,
        LIVE_START.name: calls.start,
        LIVE_END.name: calls.end,
    }


@dataclass(frozen=True)
class LiveRestores:
    """The live restores of this node's guests, and those that read this node's backups."""

    paths: Paths
    tasks: Tasks
    hypervisors: Mapping[str, Hypervisor]
    device: DeviceFactory
    locks: InstanceLocks
    keys: TransferKeys

    # --- the node of the backup ---

    async def serve(self, args: ServePointArgs, call: Call) -> Served:
        host_name(args.instance_name, "instance_name")
        check_point(args.point)
        with entered(self.paths, args.target, args.instance_name):
            directory = path_of(self.paths, args.target, args.instance_name)
        order = LiveOrder(
            directory=str(directory),
            point=args.point,
            disks=tuple(args.disks),
            locks=str(uidpool.lock_directory(self.paths)),
            first_uid=UIDS.start,
            end_uid=UIDS.stop,
        )
        file = self._file(args.token, _SERVER)
        if not args.address:
            path = self._socket(args.owner_uuid)
            running = await self._run(file, order, call, lambda: _listening(path), args.keys)
            await self._ready(running, call)
            return Served()
        port, tls = file.with_suffix(".port"), self._tls(file, args, args.owner)
        order = replace(
            order, certificate=str(tls.certificate), key=str(tls.key), peer=str(tls.peer)
        )
        running = await self._run(
            file, order, call, lambda: open_port(args.address, port), args.keys
        )
        await self._ready(running, call)
        return Served(port=int(await asyncio.to_thread(port.read_text)))

    def _tls(self, file: Path, args: ServePointArgs | LiveStartArgs, owner: str) -> TlsFiles:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.keys.files(args.key_name, owner, args.peer, file)

    async def serve_end(self, args: LiveServerArgs, _call: Call) -> Nothing:
        await self._ended(self._file(args.token, _SERVER))
        return Nothing()

    # --- the programs ---

    def _file(self, token: str, role: str) -> Path:
        if not token:
            raise InputError("a live restore needs a token", "token")
        return order_file(self.paths.streams, token, role)

    def _socket(self, instance_uuid: str) -> Path:
        """Return the socket at which QEMU reads the backup: a short name, because the kernel limits it."""
        if not is_uuid(instance_uuid):
            raise InputError(f"{instance_uuid!r:.60} is not the UUID of an instance", "owner_uuid")
        return self.paths.kvm / f"{instance_uuid[:13]}.r"

    async def _run(
        self,
        file: Path,
        order: LiveOrder | RelayOrder,
        call: Call,
        listens: Callable[[], socket.socket],
        keys: BackupKeys = NO_BACKUP_KEYS,
    ) -> Program:
        """Start a program instead of an earlier one; a repeated call finds its own program."""
        key_file, ready = file.with_suffix(".key"), file.with_suffix(READY)
        if not (key_file.exists() and key_file.read_text() == call.key):
            await self._ended(file, forget=False)
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            ready.unlink(missing_ok=True)
            write_atomically(key_file, call.key.encode())
            write_atomically(file, wire.encode(order))
        module = live_program if isinstance(order, LiveOrder) else live_relay
        own = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
        program = Program(
            [sys.executable, "-m", module.__name__, str(file)],
            env=own,
            log_path=file.with_suffix(".log"),
            timeout_s=SERVE_LIMIT_S,
            listens=listens,
            serves=True,
            secret=packed(keys),
            secret_variable=VARIABLE,
        )
        await self.tasks.begin(call.key, program)
        return program

    async def _ready(self, program: Program, call: Call) -> None:
        """Return when a program has opened the backup; HostError with its reason."""
        ready = Path(program.argv[-1]).with_suffix(READY)
        loop = asyncio.get_running_loop()
        end = loop.time() + READY_S
        while not ready.exists():
            if loop.time() > end or await self._has_ended(call):
                raise self._failure(program)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _has_ended(self, call: Call) -> bool:
        return call.key not in await asyncio.to_thread(self.tasks.running)

    @staticmethod
    def _failure(program: Program) -> HostError:
        said = program.log_path.read_text(errors="replace").strip()[-2000:]
        return HostError(f"the backup cannot be served: {said or 'no reason was reported'}")

    async def _ended(self, file: Path, *, forget: bool = True) -> None:
        with contextlib.suppress(FileNotFoundError):
            key = await asyncio.to_thread(file.with_suffix(".key").read_text)
            if not await self.tasks.end(key):
                raise HostError("the program that serves the backup could not be ended")
        if forget:
            await asyncio.to_thread(shutil.rmtree, file.parent, ignore_errors=True)

    # --- the node of the guest ---

    def _able(self, instance: InstanceSpec) -> StartsAbove:
        found = options_of(self.hypervisors, instance.hypervisor).live_restores
        if found is None:
            raise HypervisorError(
                f"hypervisor {instance.hypervisor!r:.40} of this node cannot start a guest above a backup"
            )
        return found

    def _is_moved(self, instance: InstanceSpec, token: str) -> bool:
        move = DiskMoveRecords(self.paths).read(instance.uuid)
        return move is not None and move.token == token and move.is_moved

    async def start(self, args: LiveStartArgs, call: Call) -> LiveStarted:
        instance = args.instance
        able = self._able(instance)
        async with self.locks.of(instance.name):
            if self._is_moved(instance, args.token):
                return LiveStarted(is_moved=True)
            path, relay = self._socket(instance.uuid), None
            if args.address:
                relay = await self._relay(args, call, path)
            overlays = await asyncio.to_thread(self._make_overlays, instance)
            used = overlays.directory / _USED
            was_used = used.exists()
            # Durable before the guest can write: from then on only the guest's own disks may replace them.
            await asyncio.to_thread(write_atomically, used, args.token.encode())
            try:
                disks = InstanceDisks(self.device, instance)
                await able.start(instance, disks.images, overlays.files, path)
            except (GanetiError, OSError):
                if not was_used and await self._is_gone(instance):
                    used.unlink(missing_ok=True)
                if relay is not None and await self._has_ended(call):
                    raise self._failure(relay) from None
                raise
        return LiveStarted(is_moved=False)

    async def _relay(self, args: LiveStartArgs, call: Call, path: Path) -> Program:
        """Start the program that connects the socket with the other node; QEMU may connect before it runs."""
        file = self._file(args.token, _RELAY)
        tls = self._tls(file, args, args.instance.name)
        order = RelayOrder(
            address=args.address,
            port=args.port,
            certificate=str(tls.certificate),
            key=str(tls.key),
            peer=str(tls.peer),
        )
        return await self._run(file, order, call, lambda: _listening(path))

    async def _is_gone(self, instance: InstanceSpec) -> bool:
        """Return whether there is certainly no guest."""
        try:
            return await self.hypervisors[instance.hypervisor].one_running(instance.uuid) is None
        except HypervisorError:
            return False

    def _make_overlays(self, instance: InstanceSpec) -> "_Overlays":
        """Make the missing overlays: empty images of the sizes of the disks."""
        directory = self.paths.live_restore(instance.uuid)
        if not directory.exists():
            directory.mkdir(mode=0o700, parents=True)
            sync_directory(directory.parent)
        files = [directory / f"{disk.uuid}.qcow2" for disk in instance.disks]
        descriptor = open_directory(directory)
        try:
            for disk, file in zip(instance.disks, files, strict=True):
                if not file.exists():
                    _make_image(descriptor, file.name, disk.size * MIB)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return _Overlays(directory, files)

    async def end(self, args: LiveEndArgs, _call: Call) -> LiveEnded:
        instance = args.instance
        self._able(instance)
        async with self.locks.of(instance.name):
            directory = self.paths.live_restore(instance.uuid)
            if args.keep_used and (directory / _USED).exists():
                return LiveEnded(is_kept=True)
            if directory.exists() and not self._is_moved(instance, args.token):
                guest = await self.hypervisors[instance.hypervisor].one_running(instance.uuid)
                if guest is not None:
                    raise HostError(
                        f"{instance.name} runs, and its latest data is only in {directory}; shut it down first"
                    )
            await self._ended(self._file(args.token, _RELAY))
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
            self._socket(instance.uuid).unlink(missing_ok=True)
        return LiveEnded()


@dataclass(frozen=True)
class _Overlays:
    directory: Path
    files: list[Path]


def _make_image(directory: int, name: str, size: int) -> None:
    descriptor = new_image(directory, name + NEW)
    try:
        writer = ImageWriter(descriptor, size, "")
        try:
            writer.finish()
        finally:
            writer.close()
    finally:
        os.close(descriptor)
    os.rename(name + NEW, name, src_dir_fd=directory, dst_dir_fd=directory)


def _listening(path: Path) -> socket.socket:
    """Listen at a socket for root alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener
