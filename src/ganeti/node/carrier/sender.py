"""The sending end of a stream between nodes."""

import contextlib
from pathlib import Path

from ganeti.base.errors import GanetiError, HostError
from ganeti.model.compression import COMPRESSIONS
from ganeti.node.carrier.connection import (
    LAST_WORDS_S,
    SILENCE_S,
    BrokenOff,
    Connection,
    connect,
)
from ganeti.node.carrier.ends import ProgramFailed, Source, open_source
from ganeti.node.carrier.flow import (
    Count,
    Result,
    as_bytes,
    own_environment,
    paced,
    read_all,
    text_of,
)
from ganeti.node.carrier.frames import Writer
from ganeti.node.carrier.greeting import read_answer
from ganeti.node.carrier.order import StreamOrder
from ganeti.node.carrier.packing import piped
from ganeti.node.carrier.progress import ProgressFile
from ganeti.node.carrier.wires import WIRES


class Sender:
    """Sends the data of an order."""

    def __init__(self, order: StreamOrder, file: Path) -> None:
        self._order, self._wire = order, WIRES[order.wire]
        progress = ProgressFile(file, order.total)
        self._count = Count(progress, counts_digest=order.digests)

    def run(self) -> Result:
        """Send everything; return once the receiver has synced it."""
        order, answer_name = self._order, self._wire.answer
        there = connect(order.address, order.port, order.tls, silence_s=order.silence_s)
        with contextlib.closing(there):
            try:
                seal = self._send(there)
                answer = self._answered(there)
            except BrokenOff as err:
                raise HostError(
                    f"the data was not sent to {order.address}: {_why(there, err)}"
                ) from err
        if answer.get(answer_name) != seal:
            why = str(answer.get("error", f"another {answer_name}"))[:2000]
            raise HostError(f"the receiver at {order.address} refused the data: {why}")
        return self._count.result()

    def _answered(self, there: Connection) -> dict[str, object]:
        there.limit(SILENCE_S)  # it may have much to sync
        try:
            return self._wire.answered(there)
        except HostError as err:
            raise BrokenOff(err.message) from err

    def _send(self, there: Connection) -> str:
        """Send everything; return the seal of what was sent."""
        order = self._order
        assert order.source is not None  # noqa: S101 - a sender has one
        with open_source(order.source, order.size, own_environment()) as source:
            frames = self._wire.greet(there, order)
            try:
                self._send_pieces(source, frames)
                source.finish()
            except BrokenOff:
                raise
            except (GanetiError, OSError) as err:
                with contextlib.suppress(HostError):
                    frames.abort(text_of(order.source.path, err))
                if isinstance(err, ProgramFailed):
                    raise
                raise HostError(f"the data was not sent to {order.address}: {err}") from err
            return frames.end()

    def _send_pieces(self, source: Source, frames: Writer) -> None:
        self._count.position = source.position
        pieces = self._count.counted(paced(source.pieces(), self._order.rate))
        packer = COMPRESSIONS[self._order.compress]
        if packer is None:
            for zeros, data in pieces:
                if zeros:
                    frames.zeros(zeros)
                else:
                    frames.data(data)
            return
        with piped(packer.pack, as_bytes(pieces)) as packed:
            for room in read_all(packed):
                frames.data(room)


def _why(there: Connection, err: HostError) -> str:
    """Return why a connection ended: the receiver's reason, or the local error."""
    with contextlib.suppress(HostError):
        there.limit(LAST_WORDS_S)
        told = read_answer(there.read).get("error")
        if told:
            return f"the receiver: {str(told)[:2000]}"
    return err.message
