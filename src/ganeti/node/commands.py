"""Answers the calls that run programs of the node's administrator (B6, A31).

The node itself allows each kind. Only root may write an out-of-band program, restricted commands
are the files of their directory, and shell lines need a file that permits them.
"""

import asyncio
import logging
from pathlib import Path

from ganeti.base.call_programs import run_endable
from ganeti.base.errors import ErrorCode, HostError, PrereqError
from ganeti.base.identifiers import host_name, is_absolute_path
from ganeti.base.paths import Paths
from ganeti.base.process import CLEAN_ENVIRONMENT, CommandFailed
from ganeti.base.run_parts import (
    LINGER_S,
    NAME,
    check_directory,
    distrust,
    is_program,
    shown,
)
from ganeti.model.outofband import OobCommand
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.commands import (
    LIMIT_S,
    OOB_PROBLEMS,
    OOB_RUN,
    RESTRICTED_COMMAND,
    SHELL_COMMAND,
    CommandOutput,
    OobArgs,
    ProgramsArgs,
    RestrictedArgs,
    ShellArgs,
)

REFUSAL_DELAY_S = 10.0
"""Delay after an unknown restricted command, which slows down guessing."""
OUTPUT_LIMIT = 64 * 1024

log = logging.getLogger(__name__)


class NodeCommands:
    """The programs of this node's administrator."""

    def __init__(self, paths: Paths, refusal_delay_s: float = REFUSAL_DELAY_S) -> None:
        self._paths = paths
        self._refusal_delay_s = refusal_delay_s
        self._restricted = asyncio.Lock()

    def handlers(self) -> Handlers:
        return {
            OOB_RUN.name: self.oob_run,
            OOB_PROBLEMS.name: self.oob_problems,
            RESTRICTED_COMMAND.name: self.restricted_command,
            SHELL_COMMAND.name: self.shell_command,
        }

    async def oob_run(self, args: OobArgs, _call: Call) -> CommandOutput:
        """Run an out-of-band program; HostError if it is not trusted."""
        if args.command not in tuple(OobCommand):
            raise PrereqError(f"{args.command!r:.40} is not a command", ErrorCode.WRONG_INPUT)
        name = host_name(args.node_name, "node_name")
        program = self._paths.below(args.program)
        if why := await asyncio.to_thread(refusal_to_run, args.program, program):
            raise HostError(f"out-of-band program {args.program}: {why}")
        return await _run([str(program), args.command, name], min(args.timeout_s, LIMIT_S))

    async def oob_problems(self, args: ProgramsArgs, _call: Call) -> dict[str, str]:
        found = {
            one: await asyncio.to_thread(refusal_to_run, one, self._paths.below(one))
            for one in args.programs
        }
        return {program: why for program, why in found.items() if why}

    async def restricted_command(self, args: RestrictedArgs, _call: Call) -> CommandOutput:
        """Run one, without arguments and one at a time.

        The answer for a missing or forbidden command is the same, and delayed (A31).
        """
        directory = self._paths.restricted_commands
        async with self._restricted:
            why = await asyncio.to_thread(_restricted_refusal, directory, args.command)
            if not why:
                return await _run([str(directory / args.command)], LIMIT_S)
            log.warning("restricted command %.80r was refused: %s", args.command, why)
            await asyncio.sleep(self._refusal_delay_s)
        raise HostError("this node does not run that command; the reason is in its log")

    async def shell_command(self, args: ShellArgs, _call: Call) -> CommandOutput:
        """Run a line of shell, where this node's administrator allows that."""
        path = self._paths.shell_commands_allowed
        if why := await asyncio.to_thread(_shell_refusal, path):
            raise PrereqError(
                (
                    f"this node does not run shell command lines ({why}): its administrator can "
                    f"allow them with an empty file {path} that belongs to root"
                ),
                ErrorCode.WRONG_STATE,
            )
        log.info("running for gnt-cluster command: %.500r", args.line)
        return await _run(["/bin/sh", "-c", args.line], LIMIT_S)


async def _run(words: list[str], limit_s: float) -> CommandOutput:
    try:
        done = await run_endable(
            words, timeout_s=limit_s, env=CLEAN_ENVIRONMENT, check=False, linger_s=LINGER_S
        )
    except CommandFailed as err:
        tail = _text(err.completed.stderr)
        return CommandOutput(
            status=-1,
            stdout=_text(err.completed.stdout),
            stderr=f"{tail}\n{err.why}" if tail else err.why,
        )
    return CommandOutput(status=done.status, stdout=_text(done.stdout), stderr=_text(done.stderr))


def _text(said: bytes) -> str:
    return shown(said.decode(errors="replace").strip(), OUTPUT_LIMIT)


def refusal_to_run(name: str, path: Path) -> str:
    """Return why a program must not run; '' if it may. `name` is its name in the cluster."""
    if not is_absolute_path(name):
        return "it is not an absolute path"
    try:
        check_directory(path.parent)
        status = path.lstat()
    except HostError as err:
        return err.message
    except OSError as err:
        return str(err.strerror)
    if not is_program(status):
        return "it is not an executable file (links are not followed)"
    return distrust(status)


def _restricted_refusal(directory: Path, command: str) -> str:
    if not NAME.fullmatch(command):
        return "it is not a name"
    try:
        check_directory(directory.parent)
    except (HostError, OSError) as err:
        return str(err)
    return refusal_to_run("/" + command, directory / command)


def _shell_refusal(path: Path) -> str:
    try:
        check_directory(path.parent)
        status = path.lstat()
    except FileNotFoundError:
        return "that has not been allowed"
    except (HostError, OSError) as err:
        return str(err)
    return distrust(status)
