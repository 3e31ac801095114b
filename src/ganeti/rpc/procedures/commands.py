"""Procedures that run programs of an administrator.

Out-of-band management, fence agents, restricted commands, shell lines.
"""

from ganeti.rpc.procedures.form import NORMAL_S, SLOW_S, Message, Procedure

LIMIT_S = SLOW_S - NORMAL_S
"""Time limit of a program."""


class OobArgs(Message, frozen=True, kw_only=True):
    """Run `program COMMAND NODE_NAME` here, for another node (or this one) within `timeout_s`."""

    program: str
    command: str
    node_name: str
    timeout_s: float


class CommandOutput(Message, frozen=True, kw_only=True):
    """A program's exit status, -1 if it was killed, and the beginning of its output."""

    status: int
    stdout: str = ""
    stderr: str = ""


class ProgramsArgs(Message, frozen=True, kw_only=True):
    """Paths of out-of-band programs."""

    programs: list[str]


class FenceAgentArgs(Message, frozen=True, kw_only=True):
    """Run a fence agent here, with its options and its password on its standard input, within `timeout_s`."""

    agent: str
    action: str
    options: dict[str, str] = {}
    password: str = ""
    timeout_s: float


class FenceAgentsArgs(Message, frozen=True, kw_only=True):
    """Names of fence agents."""

    agents: list[str]


class RestrictedArgs(Message, frozen=True, kw_only=True):
    """The name of a program in this node's `restricted-commands`."""

    command: str


class ShellArgs(Message, frozen=True, kw_only=True):
    """A line for `/bin/sh`."""

    line: str


OOB_RUN = Procedure("oob_run", OobArgs, CommandOutput, SLOW_S, changes=True)

OOB_PROBLEMS = Procedure("oob_problems", ProgramsArgs, dict[str, str], NORMAL_S, changes=False)
"""Program -> why this node would not run it; programs that it would run are absent."""

FENCE_AGENT_RUN = Procedure("fence_agent_run", FenceAgentArgs, CommandOutput, SLOW_S, changes=True)

FENCE_AGENT_PROBLEMS = Procedure(
    "fence_agent_problems", FenceAgentsArgs, dict[str, str], NORMAL_S, changes=False
)
"""Agent -> why this node would not run it; agents that it would run are absent."""

RESTRICTED_COMMAND = Procedure(
    "restricted_command", RestrictedArgs, CommandOutput, SLOW_S, changes=True
)

SHELL_COMMAND = Procedure("shell_command", ShellArgs, CommandOutput, SLOW_S, changes=True)
