"""`maintain_node_health`: a node that its cluster considers offline ends its guests (F20).

They may be running elsewhere by now, from the same disks.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Protocol

from ganeti import ssconf
from ganeti.base.certificate_facts import node_identity
from ganeti.base.errors import GanetiError
from ganeti.base.paths import Paths
from ganeti.clients.confd import BestAnswer, ConfdClient, NoAnswer
from ganeti.hypervisor.interface import Hypervisor
from ganeti.model.hypervisor_params import hypervisor_defaults
from ganeti.model.instance_spec import InstanceSpec
from ganeti.protocols.confd import NodeRole, QueryType


class Asks(Protocol):
    """Asks the master candidates, like `ganeti.clients.confd.ConfdClient`; NoAnswer."""

    async def ask(self, kind: QueryType, query: str) -> BestAnswer: ...


async def is_to_be_empty(paths: Paths, candidates: Asks | None = None) -> bool:
    """Return whether the cluster maintains the health of its nodes and considers this one offline.

    Candidates answer that. A node that cannot ask them, or gets no answer, uses the last facts that
    it received; without facts the result is False.
    """
    facts = ssconf.SimpleStore(paths)
    try:
        _uuid, name = node_identity(paths.node_certificate.read_bytes())
        if not facts.GetMaintainNodeHealth():
            return False
        if candidates is not None:
            with contextlib.suppress(NoAnswer):
                found = await candidates.ask(QueryType.NODE_ROLE_BY_NAME, name)
                return bool(found.answer.answer == NodeRole.OFFLINE)
        return name in facts.GetOfflineNodeList()
    except (GanetiError, OSError):
        return False


def candidates_of(paths: Paths) -> ConfdClient | None:
    """Return the candidates of this node's cluster; None if the node does not have their key."""
    try:
        key = paths.confd_key.read_bytes().strip()
        return ConfdClient(key, ssconf.SimpleStore(paths).GetMasterCandidatesIPList())
    except (GanetiError, OSError):
        return None


async def end_guests(drivers: Mapping[str, Hypervisor], say: Callable[[str], None]) -> None:
    """End every guest of this node at once; failures are logged, and the next run retries."""
    for kind, driver in drivers.items():
        try:
            found = await driver.running()
        except GanetiError as err:
            say(f"{kind}: cannot list the running guests: {err.message}")
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
                say(f"{guest.name} was ended: the cluster considers this node offline")
