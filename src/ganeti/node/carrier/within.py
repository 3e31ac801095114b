"""The copy of a disk's data within a node."""

from pathlib import Path

from ganeti.base.errors import HostError
from ganeti.node.carrier.ends import open_sink, open_source, share_blocks
from ganeti.node.carrier.flow import Count, Result, own_environment, paced
from ganeti.node.carrier.greeting import RAW
from ganeti.node.carrier.order import EndOrder, StreamOrder
from ganeti.node.carrier.progress import ProgressFile


def copy(order: StreamOrder, file: Path, source: EndOrder, sink: EndOrder) -> Result:
    """Copy the data within this node; return when it is synced.

    No seal and no encryption: it does not leave this program.
    """
    count = Count(ProgressFile(file, order.total), counts_digest=order.digests)
    if not order.digests and share_blocks(source, sink, order.size):
        count.add(order.size, b"")
        return count.result()
    environment = own_environment()
    with (
        open_source(source, order.size, environment) as data,
        open_sink(sink, environment) as target,
    ):
        count.position = data.position
        for zeros, piece in count.counted(paced(data.pieces(), order.rate)):
            if order.limit and count.length + zeros + len(piece) > order.limit:
                raise HostError(f"more than the {order.limit} bytes that the disk allows were read")
            target.take(zeros, piece)
        data.finish()
        if order.form == RAW and count.length != order.size:
            raise HostError(f"{count.length} bytes were read for a disk of {order.size}")
        target.finish()
    return count.result()
