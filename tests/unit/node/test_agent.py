"""Calls about the agent in a guest, at a hypervisor that can reach one and at one that cannot."""

from pathlib import Path

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.abilities import Options, TalksToAgent
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.model.instance_spec import InstanceSpec
from ganeti.node import agent
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.agent import AgentInfo, Frozen, FrozenArgs
from ganeti.rpc.procedures.instances import InstanceArgs

CALL = Call(1, "master", "1/0/1")


class Talking(FakeHypervisor, TalksToAgent):
    """Its guests have agents."""

    @property
    def options(self) -> Options:
        return Options(agents=self)

    async def agent_info(self, instance: InstanceSpec) -> AgentInfo | None:
        return AgentInfo(host_name=instance.name)

    async def freeze(self, instance: InstanceSpec, limit_s: float) -> int:
        return round(limit_s)

    async def thaw(self, instance: InstanceSpec) -> int:
        return 2


def instance(hypervisor: str) -> InstanceSpec:
    return InstanceSpec(
        name="web1", uuid="u", hypervisor=hypervisor, os="o", memory=1, vcpus=1, hvparams={}
    )


async def test_an_agent_is_asked_where_the_hypervisor_reaches_one(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    known = {"talking": Talking(paths), "plain": FakeHypervisor(paths)}
    handlers = agent.handlers(known, InstanceLocks())
    info, freeze, thaw = (handlers[name] for name in ("agent_info", "agent_freeze", "agent_thaw"))
    talking, plain = (
        InstanceArgs(instance=instance("talking")),
        InstanceArgs(instance=instance("plain")),
    )
    assert await info(talking, CALL) == AgentInfo(host_name="web1")
    frozen = FrozenArgs(instance=talking.instance, limit_s=7)
    assert await freeze(frozen, CALL) == Frozen(file_systems=7)
    assert await thaw(talking, CALL) == Frozen(file_systems=2)
    assert await info(plain, CALL) is None
    with pytest.raises(HypervisorError, match="have no agent on this node"):
        await thaw(plain, CALL)
