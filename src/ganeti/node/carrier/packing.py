"""Programs that compress or decompress a stream in transit."""

import contextlib
import subprocess
import threading
from collections.abc import Iterator, Sequence

from ganeti.base.errors import HostError
from ganeti.node.carrier.buffers import writer
from ganeti.node.carrier.frames import Piece


@contextlib.contextmanager
def piped(words: Sequence[str], pieces: Iterator[Piece]) -> Iterator[int]:
    """Feed a program from a thread.

    Yield the descriptor to read. Raises the failure of the program or the feeder.
    """
    from ganeti.base.process import CLEAN_ENVIRONMENT  # noqa: PLC0415 - slow to import

    try:
        process = subprocess.Popen(
            list(words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=CLEAN_ENVIRONMENT,
            close_fds=False,  # the task's lock
        )
    except FileNotFoundError as err:
        raise HostError(
            f"the program {words[0]} is not installed on this node; install it"
        ) from err
    assert process.stdin is not None  # noqa: S101 - asked for
    assert process.stdout is not None  # noqa: S101 - asked for
    stdin, stdout, failures = process.stdin, process.stdout, list[BaseException]()

    def feed() -> None:
        try:
            write = writer(stdin.fileno())
            for piece in pieces:
                write(piece)
        except BaseException as err:  # noqa: BLE001 - the waiting thread raises it
            failures.append(err)
        finally:
            with contextlib.suppress(OSError):
                stdin.close()

    feeder = threading.Thread(target=feed, name=words[0], daemon=True)
    feeder.start()
    try:
        yield stdout.fileno()
        feeder.join()
    finally:
        if feeder.is_alive() or process.poll() is None:
            process.kill() if feeder.is_alive() else None
        stdout.close()
        status = process.wait()
    for failure in failures:
        if not isinstance(failure, BrokenPipeError):
            raise failure
    if status or failures:
        raise HostError(f"{words[0]} failed (exit status {status}): the data is damaged")
