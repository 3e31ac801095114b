"""The hypervisors that a node offers, by name."""

from ganeti.base.paths import Paths
from ganeti.base.process import Run
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.hypervisor.interface import Hypervisor
from ganeti.hypervisor.kvm.driver import KvmHypervisor


def hypervisors(paths: Paths, run: Run) -> dict[str, Hypervisor]:
    """One driver of each kind."""
    drivers: tuple[Hypervisor, ...] = (KvmHypervisor(paths, run), FakeHypervisor(paths))
    return {driver.name: driver for driver in drivers}
