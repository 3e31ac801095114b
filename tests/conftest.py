"""What every test gets: a strict loop, a look for leaks, and a record of the rows it proves."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it publishes no types

from tests.support.virtual_time import VirtualTimeLoop

pytest_plugins = ["tests.support.leaks", "tests.support.requirements_plugin"]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """With `--dist loadgroup` one process runs all that starts daemons; others run the rest beside it."""
    return RealThingsTogether(config, log) if config.getvalue("dist") == "loadgroup" else None


class RealThingsTogether(LoadScopeScheduling):  # type: ignore[misc]  # its types are not published
    """Tests of real daemons and machines as one piece of work, each other test as one."""

    def _split_scope(self, nodeid: str) -> str:
        return "real" if nodeid.startswith(("tests/cluster/", "tests/host/")) else nodeid


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Virtual time for the tests marked so, the ordinary loop for all others."""
    if item.get_closest_marker("virtual_time"):
        return {"virtual": VirtualTimeLoop}
    return {"real": asyncio.SelectorEventLoop}
