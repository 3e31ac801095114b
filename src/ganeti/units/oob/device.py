"""The device that switches a node off: its fence agent, or its out-of-band program."""

from dataclasses import dataclass, field

from ganeti.config.fill import filled_ndparams
from ganeti.config.snapshot import Snapshot
from ganeti.model.fencing import STATUS_OFF, STATUS_ON, AgentAction, parse_options
from ganeti.model.objects import Node
from ganeti.model.outofband import OobCommand, parse_answer
from ganeti.model.recovery import FenceMethod
from ganeti.rpc.procedures.commands import CommandOutput, FenceAgentArgs, OobArgs

ACTIONS = {
    OobCommand.POWER_OFF: AgentAction.OFF,
    OobCommand.POWER_ON: AgentAction.ON,
    OobCommand.POWER_CYCLE: AgentAction.CYCLE,
    OobCommand.POWER_STATUS: AgentAction.STATUS,
}
"""What a fence agent does for each command of `gnt-node power`; agents know nothing of a host's health."""
_COMMANDS = {action: command for command, action in ACTIONS.items()}
_SHOWN = 300


@dataclass(frozen=True)
class PowerDevice:
    """How the master switches one node off."""

    node_name: str
    agent: str = ""
    """The fence agent; '' if it is `program`."""
    program: str = ""
    options: str = ""
    """The node parameter `fence_options`."""
    password: str = field(default="", repr=False)
    timeout_s: float = 60.0

    @property
    def what(self) -> str:
        """The name of the agent, or the path of the program."""
        return self.agent or self.program

    @property
    def hint(self) -> str:
        """What an administrator can do if it does not answer."""
        if self.program:
            return f"try it: {self.program} {OobCommand.POWER_STATUS} {self.node_name}"
        return (
            "check the node parameter fence_options, and the password"
            f" (gnt-node fence-password {self.node_name})"
        )

    def agent_args(self, action: AgentAction, limit_s: float) -> FenceAgentArgs:
        """Return the call that runs its agent; InputError if the stored options are not allowed any more."""
        return FenceAgentArgs(
            agent=self.agent,
            action=action,
            options=parse_options(self.options),
            password=self.password,
            timeout_s=limit_s,
        )

    def program_args(self, action: AgentAction, limit_s: float) -> OobArgs:
        """Return the call that runs its out-of-band program."""
        return OobArgs(
            program=self.program,
            command=_COMMANDS[action],
            node_name=self.node_name,
            timeout_s=limit_s,
        )

    def judged(self, said: CommandOutput) -> tuple[bool | None, str]:
        """Return whether a node is on, from an answer to `status`; None with the reason if that is not known."""
        if self.agent:
            if said.status in (STATUS_ON, STATUS_OFF):
                return said.status == STATUS_ON, ""
            return None, failure(said)
        if said.status:
            return None, failure(said)
        try:
            return parse_answer(OobCommand.POWER_STATUS, said.stdout)["powered"], ""
        except ValueError as err:
            return None, str(err)


def failure(said: CommandOutput) -> str:
    """Return why a program failed, in one line."""
    words = " ".join((said.stderr or said.stdout).split())
    return words[-_SHOWN:] or f"exit status {said.status}"


def power_device(snapshot: Snapshot, node: Node) -> PowerDevice | None:
    """Return the device of a node: the fence agent before the out-of-band program; None if it has neither."""
    params = filled_ndparams(snapshot, node)
    agent, program = str(params["fence_agent"]), str(params["oob_program"])
    if not (agent or program):
        return None
    return PowerDevice(
        node.name,
        agent=agent,
        program="" if agent else program,
        options=str(params["fence_options"]) if agent else "",
        password=node.fence_secret if agent else "",
        timeout_s=float(params["fence_timeout"]),
    )


def commanded_device(snapshot: Snapshot, node: Node) -> PowerDevice | None:
    """Return the device for an administrator's commands: the out-of-band program, which can do more than an agent."""
    device = power_device(snapshot, node)
    program = str(filled_ndparams(snapshot, node)["oob_program"])
    return PowerDevice(node.name, program=program) if program else device


def uses_power(snapshot: Snapshot, node: Node) -> bool:
    """Return whether automatic recovery may switch a node off."""
    return FenceMethod.POWER in str(filled_ndparams(snapshot, node)["fence_methods"]).split()


def no_device(node: Node) -> str:
    """Return what is missing on a node without a device."""
    return (
        f"node {node.name} has neither a fence agent nor an out-of-band program: gnt-node modify"
        f" --node-parameters fence_agent=AGENT,fence_options='ip=ADDRESS username=NAME' {node.name}"
    )
