"""A program in a node's machine that writes a numbered log to a mirrored disk, as a guest would.

The serial line of the machine tells each entry that is complete, so the end of the machine hides none.
"""

import base64
import re

from tests.support.machine_cluster import MachineCluster

BLOCK = 4096
PROGRAM = f"""
import mmap, os, time
disk = os.open("/dev/drbd0", os.O_RDWR | os.O_DIRECT | os.O_SYNC)
line = os.open("/dev/ttyS0", os.O_WRONLY | os.O_NOCTTY)
block, entry = mmap.mmap(-1, {BLOCK}), 0
while True:
    os.preadv(disk, [block], (entry + 1) * {BLOCK})
    if block[:16] != b"%016d" % (entry + 1):
        break
    entry += 1
os.write(line, b"\\nFOUND %d\\n" % entry)
while True:
    entry += 1
    block[:16] = b"%016d" % entry
    os.pwritev(disk, [block], entry * {BLOCK})
    os.write(line, b"\\nDONE %d\\n" % entry)
    time.sleep(0.1)
"""


class NumberedLog:
    """The log of one disk; `told` counts what the serial lines said before."""

    def __init__(self, cluster: MachineCluster) -> None:
        self._cluster = cluster
        self._told = {number: len(self._said(number)) for number in (2, 3)}

    def write_on(self, number: int) -> None:
        """Continue the log on a node, after what is on the disk."""
        self._told[number] = len(self._said(number))
        encoded = base64.b64encode(PROGRAM.encode()).decode()
        self._cluster.inside(
            number,
            f"echo {encoded} | base64 -d >/run/log.py;"
            " (python3 /run/log.py >/run/log.out 2>&1 </dev/null & echo $! >/run/log.pid)",
        )

    def end_on(self, number: int) -> None:
        self._cluster.inside(number, "kill $(cat /run/log.pid); sleep 1")

    def found_on(self, number: int) -> int | None:
        """The last entry that was on the disk when the log was continued there; None before it was."""
        found = re.findall(r"FOUND (\d+)\s", self._said(number)[self._told[number] :])
        return int(found[-1]) if found else None

    def done_on(self, number: int) -> int:
        """The last complete entry that was written there."""
        done = re.findall(r"DONE (\d+)\s", self._said(number)[self._told[number] :])
        return int(done[-1]) if done else 0

    def _said(self, number: int) -> str:
        return self._cluster.machine(number).machine.console.read_text(errors="replace")
