"""`maintain_node_health`: a node that its cluster takes for offline ends its guests (F20).

They may be running elsewhere by now, from the same disks.
"""

from collections.abc import Callable, Mapping

from ganeti import ssconf
from ganeti.base import certificates
from ganeti.base.errors import GanetiError
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import Hypervisor
from ganeti.model.hypervisor_params import hypervisor_defaults
from ganeti.model.instance_spec import InstanceSpec


def is_to_be_empty(paths: Paths) -> bool:
    """Whether the cluster keeps up the health of its nodes, and takes this one for offline.

    By the last facts that reached the node; without facts it is not.
    """
    facts = ssconf.SimpleStore(paths)
    try:
        _uuid, name = certificates.node_identity(paths.node_certificate.read_bytes())
        return facts.GetMaintainNodeHealth() and name in facts.GetOfflineNodeList()
    except (GanetiError, OSError):
        return False


async def end_guests(drivers: Mapping[str, Hypervisor], say: Callable[[str], None]) -> None:
    """End every guest of this node at once; what cannot be ended is said, and tried again by the next run."""
    for kind, driver in drivers.items():
        try:
            found = await driver.running()
        except GanetiError as err:
            say(f"{kind}: cannot find out what runs: {err.message}")
            continue
        for guest in found:
            spec = InstanceSpec(
                name=guest.name,
                uuid=guest.uuid,
                hypervisor=kind,
                os="",
                memory=guest.memory,
                vcpus=guest.vcpus,
                hvparams=hypervisor_defaults(kind),
            )
            try:
                await driver.stop(spec, 0.0)
            except GanetiError as err:
                say(f"{guest.name} cannot be ended: {err.message}")
            else:
                say(f"{guest.name} was ended: the cluster takes this node for offline")
