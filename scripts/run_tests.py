"""Run pytest with the given arguments; run what failed once more, alone; leave no process behind.

A test that fails among the others and passes alone is flaky. It does not fail the run, but the run names it, and so
does the next one: the record is in the user's cache directory, so it outlives a checkout. Many failures at once are
not flaky tests: they are not run again.
"""

import ctypes
import datetime as dt
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

MOST_RUN_AGAIN = 10
MOST_RECORDED = 50
GRACE_S = 30
"""How long an interrupted pytest has to end its fixtures."""
FAILED = 1
"""pytest's exit code for failed tests; others mean that it was interrupted, or could not run."""
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
PR_SET_CHILD_SUBREAPER = 36
ENDED_BY = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def record_file() -> Path:
    """Return where flaky tests are recorded, a line each: date, revision, test."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "ganeti-tests" / "flaky.txt"


def become_subreaper() -> None:
    """Make the orphans of all descendants children of this process, so that it can find and end them."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants() -> Iterator[tuple[int, str]]:
    """All processes below this one that have not ended: id and command."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue  # it has ended meanwhile
        if state not in "ZX":
            parents[int(entry.name)] = int(parent)
            commands[int(entry.name)] = words.decode(errors="replace").strip()
    own = {os.getpid()}
    while found := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= found
    yield from ((pid, commands[pid]) for pid in sorted(own - {os.getpid()}))


def end_descendants() -> list[str]:
    """Kill what is left of a run; return the commands."""
    ended: dict[int, str] = {}
    while left := dict(descendants()):
        ended |= left
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)
        reap()
    return list(ended.values())


def reap() -> None:
    """Collect the children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


class Run:
    """One pytest process in a session of its own; a signal to this process ends it in order."""

    def __init__(self, arguments: Sequence[str]) -> None:
        words = [sys.executable, "-m", "pytest", *arguments]
        self._process = subprocess.Popen(words, start_new_session=True)
        self._signal = 0

    def wait(self) -> int:
        """Return the exit code, or 128 and the number of the signal that ended the run."""
        before = {
            number: signal.signal(number, self._interrupt) for number in (*ENDED_BY, signal.SIGALRM)
        }
        try:
            while True:  # orphans of the tests are children, too
                pid, status = os.waitpid(-1, 0)
                if pid == self._process.pid:
                    break
        finally:
            signal.alarm(0)
            for number, handler in before.items():
                signal.signal(number, handler)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return 128 + self._signal if self._signal else self._process.returncode

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGALRM:
            self._process.kill()
        elif not self._signal:
            self._signal = number
            self._process.send_signal(signal.SIGINT)
            signal.alarm(GRACE_S)


def run(arguments: Sequence[str]) -> tuple[int, list[str]]:
    """Run pytest once: its exit code, and the tests that failed."""
    LAST_FAILED.unlink(missing_ok=True)
    status = Run(arguments).wait()
    if left := end_descendants():
        print(
            f"\nThe run left {len(left)} processes, which were killed:",
            *left,
            sep="\n  ",
            flush=True,
        )
    failed = sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    return status, failed


def revision() -> str:
    """The commit that is tested, shortened."""
    words = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def record(flaky: Sequence[str]) -> None:
    """Add tests to the record of flaky ones; its oldest lines go."""
    path = record_file()
    today, commit = dt.datetime.now(tz=dt.UTC).date(), revision()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the run of another checkout may end now, too
        file.seek(0)
        lines = file.read().splitlines()
        lines += [f"{today} {commit} {test}" for test in flaky]
        file.truncate(0)
        file.write("".join(f"{line}\n" for line in lines[-MOST_RECORDED:]))


def show_record() -> None:
    """Print the tests that were flaky in earlier runs."""
    path = record_file()
    if path.exists():
        print(f"Flaky in earlier runs ({path}):", path.read_text(), sep="\n", flush=True)


def main() -> int:
    """Exit code 0 if every test passed, at the latest alone."""
    # A shell starts its background jobs with SIGINT ignored; pytest would inherit that and never end in order.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    become_subreaper()
    show_record()
    status, failed = run(sys.argv[1:])
    if status != FAILED or not 0 < len(failed) <= MOST_RUN_AGAIN:
        return status
    print(
        f"\nRunning the {len(failed)} failed tests once more, alone, in reverse order", flush=True
    )
    status, failed_again = run(["--verbose", *reversed(failed)])
    if flaky := sorted(set(failed) - set(failed_again)) if status in (0, FAILED) else []:
        record(flaky)
        print(
            "\nFlaky: failed among the other tests, passed alone:", *flaky, sep="\n  ", flush=True
        )
    return status


if __name__ == "__main__":
    sys.exit(main())
