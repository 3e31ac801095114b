"""What every test gets: a strict loop, a look for leaks, and a record of the rows it proves."""

import asyncio
import gc
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it publishes no types

from ganeti.vcluster import layout
from tests.support.fast_files import DISK, fast_directory
from tests.support.fork_server import Forks, fork_server
from tests.support.patience import patience
from tests.support.strict_loop import StrictLoop
from tests.support.user_ids import claimed_user_ids
from tests.support.virtual_time import StrictVirtualTimeLoop, wait_for_workers

# A run starts thousands of programs, and each would compile all that it imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Where `tmp_path` is.
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(fast_directory()))

# How long a case takes says something of the machine only.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")

REAL = ("tests/cluster/", "tests/host/")
"""Where the tests with real daemons or machines are."""

pytest_plugins = [
    "tests.support.leaks",
    "tests.support.requirements_plugin",
    "tests.support.sampling",
]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """With `--dist loadgroup` a process runs a whole module of those that start daemons or machines."""
    config.option.loadscopereorder = False  # the order is that of `pytest_collection_modifyitems`
    return RealModulesWhole(config, log) if config.getvalue("dist") == "loadgroup" else None


class RealModulesWhole(LoadScopeScheduling):  # type: ignore[misc]  # its types are not published
    """A module of tests with real daemons or machines is one piece of work: they share a cluster.

    Such tests wait most of their time, so modules run side by side. Each other test is a piece of its own.
    """

    def _split_scope(self, nodeid: str) -> str:
        return piece_of(nodeid)


def piece_of(nodeid: str) -> str:
    """The module of a test with real daemons or machines; else the test itself."""
    return nodeid.split("::", 1)[0] if nodeid.startswith(REAL) else nodeid


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What may take longest comes first: a module of real daemons and machines, or another test by itself.

    So what runs side by side ends at about the same time: the tests that take no time fill the end.
    """
    longest = Counter[str]()
    for item in items:
        if limit := item.get_closest_marker("timeout"):
            longest[piece_of(item.nodeid)] += limit.args[0]
    items.sort(key=lambda item: -longest[piece_of(item.nodeid)])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: no look for garbage need go through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(settings: Any) -> Generator[None, object, object]:
    """The limit of a test grows with the load: it finds what hangs, and not what others slow down."""
    result = yield
    fail, begun = signal.getsignal(signal.SIGALRM), time.monotonic()

    def look_again(number: int, frame: FrameType | None) -> None:
        left = settings.timeout * patience() - (time.monotonic() - begun)
        if left > 0:
            signal.setitimer(signal.ITIMER_REAL, left)
        elif callable(fail):
            fail(number, frame)

    if settings.method == "signal":
        signal.signal(signal.SIGALRM, look_again)
    return result


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with fork_server() as found:
        yield found


@pytest.fixture(scope="module", autouse=True)
def programs_start_by_forks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where daemons are real, all starts share one import of all their code, but for who measures one."""
    is_real = request.node.nodeid.startswith((*REAL, "tests/benchmarks/"))
    if not is_real or request.node.get_closest_marker("whole_starts"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        found: Forks = request.getfixturevalue("forks")
        for name, value in found.variables.items():
            patch.setenv(name, value)
        patch.setattr(layout, "PROGRAMS", found.programs)
        yield


@pytest.fixture(scope="session")
def own_user_ids() -> Iterator[range]:
    """User ids for processes that no test of another run on this host uses."""
    with claimed_user_ids() as ids:
        yield ids


@pytest.fixture(autouse=True)
def virtual_time_waits_for_workers(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("virtual_time"):
        wait_for_workers(request.getfixturevalue("monkeypatch"))


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A directory on a disk, where `tmp_path` is not: file storage and images may not lie below /dev."""
    with tempfile.TemporaryDirectory(prefix="gnt-", dir=DISK) as name:
        yield Path(name)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Virtual time for the tests marked so, the ordinary loop for all others."""
    if item.get_closest_marker("virtual_time"):
        return {"virtual": StrictVirtualTimeLoop}
    return {"real": StrictLoop}
