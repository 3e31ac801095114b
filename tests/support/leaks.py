"""Fails a test that leaves tasks, threads, child processes or descriptors behind.

Two fixtures that every test gets.  What wider fixtures (module, session) own was there before
and does not count.  `@pytest.mark.leaks_allowed("why")` switches the look off for one test.
"""

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

# What ends by itself (a thread after its last callback, a child being reaped) gets this long.
GRACE_S = 2.0

_PROC_SELF = Path("/proc/self")


@dataclass(frozen=True)
class Resources:
    """What this process holds at one moment."""

    descriptors: frozenset[int]
    threads: frozenset[threading.Thread]
    children: frozenset[int]

    @classmethod
    def now(cls) -> "Resources":
        return cls(_descriptors(), frozenset(threading.enumerate()), _children())

    def gained_since(self, before: "Resources") -> list[str]:
        """One line for each thing that `before` did not have."""
        return [
            *(f"descriptor {fd}: {_target(fd)}" for fd in self.descriptors - before.descriptors),
            *(f"thread {thread.name}" for thread in self.threads - before.threads),
            *(f"child process {pid}: {_command(pid)}" for pid in self.children - before.children),
        ]


def leaks_since(before: Resources, *, grace_s: float = GRACE_S) -> list[str]:
    """What is left after everything got the time to end; takes no time where nothing is."""
    if not Resources.now().gained_since(before):
        return []
    gc.collect()
    deadline = time.monotonic() + grace_s
    while (gained := Resources.now().gained_since(before)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return gained


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set up before the test's loop, and so looks after the loop is closed."""
    before = Resources.now()
    yield
    if not _is_allowed(request):
        _fail_on(leaks_since(before))


@pytest.fixture(autouse=True)
def no_tasks_left(request: pytest.FixtureRequest, no_leaks: None) -> Iterator[None]:
    """Looks after the test's own fixtures and before the loop is closed, which would cancel."""
    if not pytest_asyncio.is_async_test(request.node):
        yield
        return
    loop: asyncio.AbstractEventLoop = request.getfixturevalue("loop_of_test")
    yield
    if not _is_allowed(request):
        _fail_on([f"task {task}" for task in asyncio.all_tasks(loop)])


@pytest_asyncio.fixture
async def loop_of_test() -> asyncio.AbstractEventLoop:
    """The loop that the test runs on."""
    return asyncio.get_running_loop()


def _is_allowed(request: pytest.FixtureRequest) -> bool:
    marker = request.node.get_closest_marker("leaks_allowed")
    if marker is not None and not marker.args:
        raise pytest.UsageError(f"{request.node.nodeid}: leaks_allowed wants a reason")
    return marker is not None


def _fail_on(leaks: list[str]) -> None:
    if leaks:
        pytest.fail("the test leaves behind:\n  " + "\n  ".join(sorted(leaks)), pytrace=False)


def _descriptors() -> frozenset[int]:
    # The descriptor of the listing itself is closed by the time the answer is looked at.
    listed = os.listdir("/proc/self/fd")  # noqa: PTH208  # asked twice by every test
    return frozenset(fd for fd in map(int, listed) if _is_open(fd))


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _children() -> frozenset[int]:
    threads = os.listdir("/proc/self/task")  # noqa: PTH208  # asked twice by every test
    return frozenset(
        int(pid) for one in threads for pid in _children_of(f"/proc/self/task/{one}").split()
    )


def _children_of(task: str) -> bytes:
    """The numbers; none if the thread is gone."""
    try:
        with open(f"{task}/children", "rb", buffering=0) as file:  # noqa: PTH123  # as above
            return file.readall()
    except OSError:
        return b""


def _target(fd: int) -> str:
    return _or_gone(lambda: str((_PROC_SELF / "fd" / str(fd)).readlink()))


def _command(pid: int) -> str:
    words = _read(Path(f"/proc/{pid}/cmdline")).replace("\0", " ")
    return words or "ended, but nobody waited for it"


def _read(path: Path) -> str:
    return _or_gone(path.read_text)


def _or_gone(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except OSError:
        return ""
