"""Answers calls about the agent in a guest, where the hypervisor can reach one."""

from collections.abc import Mapping
from dataclasses import dataclass

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.abilities import TalksToAgent
from ganeti.hypervisor.interface import Hypervisor, options_of
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.agent import (
    AGENT_FREEZE,
    AGENT_INFO,
    AGENT_THAW,
    AgentInfo,
    Frozen,
    FrozenArgs,
)
from ganeti.rpc.procedures.instances import InstanceArgs


def handlers(hypervisors: Mapping[str, Hypervisor], locks: InstanceLocks) -> Handlers:
    """Return the handlers; the ones that change something wait for the instance's lock."""
    agents = _Agents(hypervisors, locks)
    return {
        AGENT_INFO.name: agents.info,
        AGENT_FREEZE.name: agents.freeze,
        AGENT_THAW.name: agents.thaw,
    }


@dataclass(frozen=True)
class _Agents:
    hypervisors: Mapping[str, Hypervisor]
    locks: InstanceLocks

    async def info(self, args: InstanceArgs, _call: Call) -> AgentInfo | None:
        agents = options_of(self.hypervisors, args.instance.hypervisor).agents
        return await agents.agent_info(args.instance) if agents else None

    async def freeze(self, args: FrozenArgs, _call: Call) -> Frozen:
        driver = self._able(args.instance.hypervisor)
        async with self.locks.of(args.instance.name):
            return Frozen(file_systems=await driver.freeze(args.instance, args.limit_s))

    async def thaw(self, args: InstanceArgs, _call: Call) -> Frozen:
        driver = self._able(args.instance.hypervisor)
        async with self.locks.of(args.instance.name):
            return Frozen(file_systems=await driver.thaw(args.instance))

    def _able(self, name: str) -> TalksToAgent:
        agents = options_of(self.hypervisors, name).agents
        if agents is None:
            raise HypervisorError(f"instances of {name} have no agent on this node")
        return agents
