"""What a node finds out of itself while nobody waits for it."""

import logging
from collections.abc import Mapping

from ganeti import ssconf
from ganeti.base.errors import GanetiError
from ganeti.base.paths import Paths
from ganeti.hypervisor.abilities import FindsOutEarly
from ganeti.hypervisor.interface import Hypervisor

log = logging.getLogger(__name__)


async def find_out(paths: Paths, hypervisors: Mapping[str, Hypervisor]) -> None:
    """Let those that the cluster uses find out what takes a while; what fails will say so when it is needed."""
    for name in _used(paths):
        hypervisor: object = hypervisors.get(name)
        if not isinstance(hypervisor, FindsOutEarly):
            continue
        try:
            await hypervisor.find_out()
        except GanetiError as err:
            log.warning("hypervisor %s: %s", name, err)


def _used(paths: Paths) -> list[str]:
    try:
        return ssconf.SimpleStore(paths).GetHypervisorList()
    except GanetiError:
        return []  # not in a cluster yet
