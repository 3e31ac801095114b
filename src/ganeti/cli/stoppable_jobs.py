"""Following many jobs until they end, or until a signal: then what has begun is finished and the rest is canceled."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from ganeti.base.errors import GanetiError
from ganeti.base.terminal import say
from ganeti.cli.jobs import follow
from ganeti.clients.luxi import LuxiClient

NOT_BEGUN = ("queued", "waiting")
EXIT_AT_ONCE = 2
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """What the first signal asks for; the second one ends the program."""

    def __init__(self, connect: Callable[[], LuxiClient], ids: Sequence[int]) -> None:
        self._connect = connect
        self._ids = ids
        self.is_wanted = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_wanted:
            _exit_at_once()
        self.is_wanted = True
        say(
            "Stopping: the jobs that run are waited for, the others are canceled; once more to exit at once",
            file=sys.stderr,
            flush=True,
        )
        try:
            self.cancel()
        except GanetiError as err:
            say(f"The jobs that have not begun were not canceled: {err.message}", file=sys.stderr)

    def cancel(self) -> None:
        """Cancel what has not begun, over a connection of its own: another request may be under way.

        The last jobs first, so that none begins because one before it has ended meanwhile.
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


def _exit_at_once() -> NoReturn:
    say("Exiting; the jobs go on (gnt-job list).", file=sys.stderr, flush=True)
    sys.exit(EXIT_AT_ONCE)


def follow_until_stopped(
    client: LuxiClient, connect: Callable[[], LuxiClient], ids: Sequence[int]
) -> tuple[list[str], bool]:
    """(the final status of each job, whether SIGINT or SIGTERM came); `connect` makes further clients."""
    stop = Stop(connect, ids)
    with _handling(stop):
        return [follow(client, job_id) for job_id in ids], stop.is_wanted


@contextmanager
def _handling(stop: Stop) -> Iterator[None]:
    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
