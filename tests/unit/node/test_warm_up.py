"""What takes a while is found out before somebody waits for it."""

import asyncio
from pathlib import Path

import pytest

from ganeti import ssconf
from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.abilities import LooksAfterGuests, Options, WarmsUp
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.node.warm_up import LOOK_EVERY_S, look_after_guests, warm_up


class Curious(FakeHypervisor, WarmsUp):
    """Counts how often it looks."""

    looks = 0

    @property
    def options(self) -> Options:
        return Options(warm_up=self)

    async def warm_up(self) -> None:
        self.looks += 1
        raise HypervisorError("there is no QEMU")


async def test_only_hypervisors_of_the_cluster_warm_up_and_failures_are_deferred(
    tmp_path: Path,
) -> None:
    paths = Paths(tmp_path)
    used, unused = Curious(paths), Curious(paths)
    known = {"used": used, "unused": unused, "plain": FakeHypervisor(paths)}
    await warm_up(paths, known)
    assert (used.looks, unused.looks) == (0, 0)
    ssconf.write_set(paths, 1, {"hypervisor_list": "used\nplain\ngone\n"})
    await warm_up(paths, known)
    assert (used.looks, unused.looks) == (1, 0)


class Careful(FakeHypervisor, LooksAfterGuests):
    """Fails at first."""

    calls = 0

    @property
    def options(self) -> Options:
        return Options(upkeep=self)

    async def look_after(self) -> None:
        self.calls += 1
        if self.calls == 1:
            raise OSError("disk full")


@pytest.mark.virtual_time
async def test_guests_are_looked_after_as_long_as_the_daemon_lives(tmp_path: Path) -> None:
    careful = Careful(Paths(tmp_path))
    known = {"careful": careful, "plain": FakeHypervisor(Paths(tmp_path))}
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(LOOK_EVERY_S * 3.5):
            await look_after_guests(known)
    assert careful.calls == 3
