"""The hypervisors of a node, by name."""

from ganeti.base.modules import implementations
from ganeti.base.paths import Paths
from ganeti.base.process import Run
from ganeti.hypervisor.interface import Hypervisor


def hypervisors(paths: Paths, run: Run) -> dict[str, Hypervisor]:
    """Return one driver of each kind that this package declares."""
    drivers = implementations("ganeti.hypervisor", Hypervisor)  # type: ignore[type-abstract]  # only looked for
    return {driver.name: driver(paths, run) for driver in drivers}
