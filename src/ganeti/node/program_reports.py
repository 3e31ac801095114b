"""Runs a module of this package as a task of the node, and returns what it printed at its end."""

import asyncio
import hashlib
import os
from collections.abc import Sequence

from ganeti.base.errors import HostError
from ganeti.base.paths import Paths
from ganeti.guest_os.scripts import read_tail
from ganeti.node.carrier.progress import forget_progress, read_progress
from ganeti.node.tasks import Program, Tasks
from ganeti.rpc.calls import Call
from ganeti.rpc.meters import follow

LIMIT_S = 24 * 3600.0
_ANSWER_LIMIT = 1 << 20


async def reported(
    paths: Paths,
    tasks: Tasks,
    call: Call,
    argv: Sequence[str],
    more: Sequence[str] = (),
    *,
    secret: tuple[str, bytes] = ("", b""),
) -> str:
    """Run `argv`, the path of a log and `more`; return the last line of the output.

    The program reports its progress beside the log. HostError with its last words if it fails. `secret` is what the
    program reads from a pipe, after the variable that has the number of its descriptor.
    """
    work = paths.run / "reports"
    await asyncio.to_thread(work.mkdir, mode=0o700, parents=True, exist_ok=True)
    log_path = work / f"{hashlib.sha256(call.key.encode()).hexdigest()[:32]}.log"
    follow(lambda: read_progress(log_path))
    program = Program(
        [*argv, str(log_path), *more],
        env={name: value for name, value in os.environ.items() if name.startswith("PYTHON")},
        log_path=log_path,
        timeout_s=LIMIT_S,
        secret=secret[1],
        secret_variable=secret[0],
    )
    status = await tasks.complete(call.key, program)
    said = await asyncio.to_thread(read_tail, log_path, _ANSWER_LIMIT)
    await asyncio.to_thread(log_path.unlink, missing_ok=True)
    await asyncio.to_thread(forget_progress, log_path)
    if status:
        raise HostError(said or f"{argv[2]} ended with status {status}")
    # Before it, a program of its own may have said why it failed.
    return said.rpartition("\n")[2]
