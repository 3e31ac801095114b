"""Answers calls about the networks of this node."""

from collections.abc import Mapping
from dataclasses import dataclass

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.interface import Hypervisor
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.networks import NICS_CHECK, NicsArgs


def handlers(hypervisors: Mapping[str, Hypervisor]) -> Handlers:
    """Return the handlers of all calls about networks."""
    return {NICS_CHECK.name: _Networks(hypervisors).check}


@dataclass(frozen=True)
class _Networks:
    hypervisors: Mapping[str, Hypervisor]

    async def check(self, args: NicsArgs, _call: Call) -> list[str]:
        driver = self.hypervisors.get(args.hypervisor)
        if driver is None:
            raise HypervisorError(f"this node has no hypervisor {args.hypervisor!r:.40}")
        networks = driver.options.networks
        return await networks.wrong_nics(args.nics) if networks else []
