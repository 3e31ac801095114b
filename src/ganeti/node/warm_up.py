"""Background work of a node at its start."""

import asyncio
import logging
from collections.abc import Mapping

from ganeti import ssconf
from ganeti.base.errors import GanetiError
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import Hypervisor

LOOK_EVERY_S = 10.0

log = logging.getLogger(__name__)


async def warm_up(paths: Paths, hypervisors: Mapping[str, Hypervisor]) -> None:
    """Warm up the hypervisors of the cluster.

    A failure is only logged, because the first guest will meet it again.
    """
    for name in _used(paths):
        hypervisor = hypervisors.get(name)
        able = hypervisor.options.warm_up if hypervisor else None
        if able is None:
            continue
        try:
            await able.warm_up()
        except GanetiError as err:
            log.warning("hypervisor %s: %s", name, err)


async def look_after_guests(hypervisors: Mapping[str, Hypervisor]) -> None:
    """Do the periodic work of hypervisors for as long as the daemon runs."""
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        for name, hypervisor in hypervisors.items():
            if (able := hypervisor.options.upkeep) is not None:
                try:
                    await able.look_after()
                except (OSError, GanetiError) as err:
                    log.warning("supervising the guests of %s: %s", name, err)


def _used(paths: Paths) -> list[str]:
    try:
        return ssconf.SimpleStore(paths).GetHypervisorList()
    except GanetiError:
        return []  # not in a cluster yet
