"""Answers a master of the previous version that copies disks between nodes.

Removed in the next release. The peer may run that version, so the carrier uses its protocol
(`carrier/former.py`). Both ends show the certificates of their nodes.
"""

from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from ganeti.base.errors import InputError
from ganeti.base.tls import is_fingerprint
from ganeti.model.compression import check_compression
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.node.carrier.greeting import RAW
from ganeti.node.carrier.order import EndOrder, StreamOrder
from ganeti.node.streams import MIB, Start, Streams
from ganeti.node.tasks import open_port
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.transfers import (
    DISK_LISTEN,
    DISK_SEND,
    DiskListenArgs,
    DiskListening,
    DiskSendArgs,
    DiskSent,
)


def handlers(streams: Streams) -> Handlers:
    """Return the handlers of the previous version's disk copies."""
    copies = _FormerCopies(streams)
    return {DISK_LISTEN.name: copies.listen, DISK_SEND.name: copies.send}


@dataclass(frozen=True)
class _FormerCopies:
    streams: Streams

    async def listen(self, args: DiskListenArgs, call: Call) -> DiskListening:
        """Start waiting for the sender; the program ends automatically if no sender connects."""
        async with self.streams.locks.of(args.instance_name):
            # Only the sender knows which ranges it omits: they are not written.
            end = EndOrder(path=await self._path(args), has_zeros=True)
            file = self.streams.file(args.token, "former-in")
            order = self._order(args)
            self.streams.write_order(file, replace(order, sink=end, limit=order.size), call)
            port = file.with_suffix(".port")
            program = self.streams.program(file, Start(end), partial(open_port, args.address, port))
            await self.streams.tasks.begin(call.key, program)
            return DiskListening(port=int(port.read_text()))

    async def send(self, args: DiskSendArgs, call: Call) -> DiskSent:
        """Send a disk without compression, which a receiver accepts from any sender."""
        check_compression(args.compress)
        async with self.streams.locks.of(args.instance_name):
            has_zeros = args.leaves_out_zeros
            if has_zeros is None:
                has_zeros = DISK_TEMPLATES[args.disk.template].in_files
            end = EndOrder(path=await self._path(args), has_zeros=has_zeros)
            file = self.streams.file(args.token, "former-out")
            order = replace(self._order(args), source=end, port=args.port)
            self.streams.write_order(file, order, call)
            sent = await self.streams.completed(file, Start(end), call)
        return DiskSent(data_bytes=sent.data_bytes, seconds=sent.seconds, sha256=sent.sha256)

    async def _path(self, args: DiskListenArgs | DiskSendArgs) -> str:
        """Return the path of a disk; it must exist, be complete and belong to the disk."""
        device = self.streams.device(args.instance_name, args.disk)
        await device.check_identity()
        return device.path

    def _order(self, args: DiskListenArgs | DiskSendArgs) -> StreamOrder:
        if not is_fingerprint(args.peer):
            raise InputError("a copy needs the other node's fingerprint", "peer")
        paths = self.streams.paths
        return StreamOrder(
            wire="former",
            form=RAW,
            size=args.disk.size * MIB,
            silence_s=30.0,
            token=args.token,
            address=args.address,
            certificate=str(paths.node_certificate),
            key=str(paths.node_key),
            peer=str(paths.authority_certificate),
            fingerprint=args.peer,
        )
