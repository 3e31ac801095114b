"""Procedures about the agent in a guest (`use_guest_agent`)."""

from ganeti.rpc.procedures.form import NORMAL_S, Message, Procedure, optional
from ganeti.rpc.procedures.instances import InstanceArgs


class AgentInterface(Message, frozen=True, kw_only=True):
    """A network interface as its guest sees it; addresses with their prefix."""

    name: str
    mac: str = ""
    addresses: list[str] = []


class AgentInfo(Message, frozen=True, kw_only=True):
    """A guest's report about itself, of bounded length and not trustworthy."""

    host_name: str = ""
    os: str = ""
    kernel: str = ""
    interfaces: list[AgentInterface] = []


class FrozenArgs(InstanceArgs, frozen=True, kw_only=True):
    """Freeze a guest's file systems; they thaw automatically after `limit_s`, or with the next daemon."""

    limit_s: float


class Frozen(Message, frozen=True, kw_only=True):
    """Number of file systems that were frozen or resumed."""

    file_systems: int


AGENT_INFO = Procedure("agent_info", InstanceArgs, optional(AgentInfo), NORMAL_S, changes=False)
"""None where the guest has no channel for an agent, or the agent does not answer."""

AGENT_FREEZE = Procedure("agent_freeze", FrozenArgs, Frozen, NORMAL_S, changes=True)

AGENT_THAW = Procedure("agent_thaw", InstanceArgs, Frozen, NORMAL_S, changes=True)
