"""A program that waits five seconds for a lock, between two lines that it says."""

import asyncio
import os

from ganeti.base.clock import SystemClock
from ganeti.locking.levels import Mode
from ganeti.locking.shared_lock import SharedLock

BEGINS, ENDS = b"the wait begins\n", b"the wait ends\n"
WAIT_S = 5.0


async def main() -> None:
    """Ask for a lock that somebody else keeps."""
    lock = SharedLock("instance/web1", SystemClock())
    lock.try_acquire(1, Mode.EXCLUSIVE)
    await asyncio.sleep(0)
    os.write(1, BEGINS)
    is_mine = await lock.acquire(2, Mode.EXCLUSIVE, timeout_s=WAIT_S)
    os.write(1, ENDS)
    if is_mine:
        raise SystemExit("the lock was given away")


if __name__ == "__main__":
    asyncio.run(main())
