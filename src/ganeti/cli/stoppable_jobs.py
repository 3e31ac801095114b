"""Follow many jobs until they end. After a signal, waiting jobs are canceled and running jobs finish."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Self

from ganeti.base.errors import GanetiError
from ganeti.base.terminal import say
from ganeti.cli.jobs import follow
from ganeti.clients.luxi import LuxiClient

NOT_BEGUN = ("queued", "waiting")
EXIT_AT_ONCE = 2
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _AtOnce(BaseException):
    """The second signal has arrived."""


class Stop:
    """Cancels waiting jobs after the first signal; the second signal ends the program.

    A signal handler interrupts the program at any step, so it only writes a byte to a pipe.
    A thread reads the byte and cancels the jobs.
    """

    def __init__(self, connect: Callable[[], LuxiClient], ids: Sequence[int]) -> None:
        self._connect = connect
        self._ids = ids
        self._read, self._write = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._wait, name="stop-jobs", daemon=True)
        self.is_wanted = False

    def __enter__(self) -> Self:
        self._thread.start()
        self._before = {number: signal.signal(number, self._asked) for number in _SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._write)  # Ends the thread.
        if kind is None:
            self._thread.join()

    def _asked(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_wanted:
            raise _AtOnce
        self.is_wanted = True
        os.write(self._write, b"1")

    def _wait(self) -> None:
        with os.fdopen(self._read, "rb", buffering=0) as asked:
            if asked.read(1):
                self._stop()

    def _stop(self) -> None:
        say(
            "Stopping: waiting for running jobs, canceling the others; interrupt again to exit at once",
            file=sys.stderr,
            flush=True,
        )
        try:
            self.cancel()
        except GanetiError as err:
            say(f"cannot cancel the waiting jobs: {err.message}", file=sys.stderr)

    def cancel(self) -> None:
        """Cancel waiting jobs on a separate connection, because another request may be in progress.

        The last jobs are canceled first, so that no job begins because an earlier one was canceled.
        """
        with self._connect() as client:
            rows = client.query_jobs(self._ids, ["status"])
            waiting = [
                job_id
                for job_id, row in zip(self._ids, rows, strict=True)
                if row is not None and row[0] in NOT_BEGUN
            ]
            for job_id in reversed(waiting):
                client.cancel_job(job_id)


def follow_until_stopped(
    client: LuxiClient, connect: Callable[[], LuxiClient], ids: Sequence[int]
) -> tuple[list[str], bool]:
    """Return the final status of each job, and whether SIGINT or SIGTERM arrived; `connect` opens further clients."""
    try:
        with Stop(connect, ids) as stop:
            return [follow(client, job_id) for job_id in ids], stop.is_wanted
    except _AtOnce:
        say(
            "Exiting; the jobs continue to run ('gnt-job list' shows them).",
            file=sys.stderr,
            flush=True,
        )
        sys.exit(EXIT_AT_ONCE)
