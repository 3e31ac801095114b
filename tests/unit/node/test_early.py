"""What takes a while is found out before somebody waits for it."""

from pathlib import Path

from ganeti import ssconf
from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.abilities import FindsOutEarly
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.node.early import find_out


class Curious(FakeHypervisor, FindsOutEarly):
    """Counts how often it looks."""

    looks = 0

    async def find_out(self) -> None:
        self.looks += 1
        raise HypervisorError("there is no QEMU")


async def test_only_hypervisors_of_the_cluster_look_and_failures_wait_for_who_needs_them(
    tmp_path: Path,
) -> None:
    paths = Paths(tmp_path)
    used, unused = Curious(paths), Curious(paths)
    known = {"used": used, "unused": unused, "plain": FakeHypervisor(paths)}
    await find_out(paths, known)
    assert (used.looks, unused.looks) == (0, 0)
    ssconf.write_set(paths, 1, {"hypervisor_list": "used\nplain\ngone\n"})
    await find_out(paths, known)
    assert (used.looks, unused.looks) == (1, 0)
