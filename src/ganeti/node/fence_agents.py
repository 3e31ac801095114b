"""Runs fence agents, which switch other nodes off (`docs/design/outofband.md`).

An agent runs as root, so only root may have installed it. Its options and its password are on its standard input:
arguments would be visible to every user of this node.
"""

import asyncio
from pathlib import Path

from ganeti.base.call_programs import run_endable
from ganeti.base.errors import ErrorCode, HostError, InputError, PrereqError
from ganeti.base.paths import Paths
from ganeti.base.process import CLEAN_ENVIRONMENT, CommandFailed
from ganeti.base.run_parts import LINGER_S, shown
from ganeti.model.fencing import (
    AGENT,
    AGENT_DIRECTORIES,
    PACKAGE,
    AgentAction,
    agent_input,
    check_password,
    parse_options,
)
from ganeti.node.commands import refusal_to_run
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.commands import (
    FENCE_AGENT_PROBLEMS,
    FENCE_AGENT_RUN,
    LIMIT_S,
    CommandOutput,
    FenceAgentArgs,
    FenceAgentsArgs,
)

OUTPUT_LIMIT = 4 * 1024
HIDDEN = "<hidden>"


class NodeFenceAgents:
    """The fence agents of this node."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def handlers(self) -> Handlers:
        return {
            FENCE_AGENT_RUN.name: self.run,
            FENCE_AGENT_PROBLEMS.name: self.problems,
        }

    async def run(self, args: FenceAgentArgs, _call: Call) -> CommandOutput:
        """Run an agent; HostError if it is missing or not trusted."""
        if args.action not in tuple(AgentAction):
            raise PrereqError(f"{args.action!r:.40} is not an action", ErrorCode.WRONG_INPUT)
        options = parse_options(" ".join(f"{name}={one}" for name, one in args.options.items()))
        if options != args.options:
            raise InputError("must be names and values without spaces", "options")
        if args.password:
            check_password(args.password)
        path, why = await asyncio.to_thread(self._find, args.agent)
        if why:
            raise HostError(f"fence agent {args.agent}: {why}")
        given = agent_input(AgentAction(args.action), options, args.password)
        try:
            done = await run_endable(
                [str(path)],
                timeout_s=min(args.timeout_s, LIMIT_S),
                stdin=given,
                env=CLEAN_ENVIRONMENT,
                check=False,
                linger_s=LINGER_S,
            )
        except CommandFailed as err:
            said = _text(err.completed.stderr, args.password)
            return CommandOutput(status=-1, stderr=f"{said}\n{err.why}" if said else err.why)
        return CommandOutput(
            status=done.status,
            stdout=_text(done.stdout, args.password),
            stderr=_text(done.stderr, args.password),
        )

    async def problems(self, args: FenceAgentsArgs, _call: Call) -> dict[str, str]:
        found = {one: (await asyncio.to_thread(self._find, one))[1] for one in args.agents}
        return {agent: why for agent, why in found.items() if why}

    def _find(self, agent: str) -> tuple[Path, str]:
        """Return the path of an agent, and why it must not run ('' if it may)."""
        if not AGENT.fullmatch(agent):
            return Path(), "it is not the name of an agent"
        for directory in AGENT_DIRECTORIES:
            name = f"{directory}/{agent}"
            path = self._paths.below(name)
            if path.exists() or path.is_symlink():
                return path, refusal_to_run(name, path)
        return Path(), f"it is not installed; install the Debian package {PACKAGE}"


def _text(said: bytes, password: str) -> str:
    text = said.decode(errors="replace").strip()
    return shown(text.replace(password, HIDDEN) if password else text, OUTPUT_LIMIT)
