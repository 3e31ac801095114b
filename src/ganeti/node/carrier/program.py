"""The program that moves one disk's data: `python -m ganeti.node.carrier.program ORDER`.

It runs as a task of the node (`tasks.py`), so it outlives the node daemon. The standard input of a
receiver is its listening socket. If a script runs, its environment is the program's, without the
variables of Python. Every started program keeps the task's lock open, so leftover processes are
found.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ganeti.base.errors import GanetiError
from ganeti.base.files import write_atomically
from ganeti.model import wire
from ganeti.node.carrier.flow import Result, text_of
from ganeti.node.carrier.order import EndOrder, StreamOrder
from ganeti.node.carrier.within import copy


def main(argv: Sequence[str]) -> int:
    """Carry one order out; return the exit status.

    A file beside the order has the reason of a failure.
    """
    file, path = Path(argv[0]), ""
    try:
        order = wire.decode(file.read_bytes(), StreamOrder, what=str(file))
        path = (order.sink or order.source or EndOrder()).path
        result = _carry_out(order, file)
    except (GanetiError, OSError, ValueError) as err:
        from ganeti.base.terminal import say  # noqa: PLC0415 - slow to import

        text = text_of(path, err)
        say(text, file=sys.stderr)
        write_atomically(file.with_suffix(".error"), text.encode())
        return 1
    write_atomically(file.with_suffix(".result"), wire.encode(result))
    return 0


def _carry_out(order: StreamOrder, file: Path) -> Result:
    if _makes_backup(order):
        from ganeti.node.backups.throttle import step_back  # noqa: PLC0415 - slow to import

        step_back()
    if order.source is None:
        from ganeti.node.carrier.receiver import Receiver  # noqa: PLC0415 - slow to import

        return Receiver(order, file).run()
    if order.sink is None:
        from ganeti.node.carrier.sender import Sender  # noqa: PLC0415 - slow to import

        return Sender(order, file).run()
    return copy(order, file, order.source, order.sink)


def _makes_backup(order: StreamOrder) -> bool:
    """Return whether the disk of a running guest is read, or the image of a backup is written."""
    changes = order.source.changes if order.source else None
    return bool((changes and changes.export) or (order.sink and order.sink.image))


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(
        status
    )  # All is synced, and taking the interpreter apart takes longer than a small copy.
