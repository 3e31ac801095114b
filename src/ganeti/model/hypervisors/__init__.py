"""The facts about each hypervisor, apart from its driver: a module for each declares a `HypervisorRow`."""

from collections.abc import Iterator

from ganeti.base.modules import modules_below
from ganeti.model.hypervisor_param import HypervisorRow


def find_rows() -> Iterator[HypervisorRow]:
    """Return the rows that the modules of this package declare."""
    for module in modules_below(__name__):
        yield from (one for one in vars(module).values() if isinstance(one, HypervisorRow))


HYPERVISORS: dict[str, HypervisorRow] = {
    row.name: row for row in sorted(find_rows(), key=lambda row: not row.runs_guests)
}
"""By name, simulated ones last."""
