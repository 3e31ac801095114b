"""Programs of the node's administrator: what is run, and all that is not."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti.base.errors import GanetiError, HostError, PrereqError
from ganeti.base.paths import Paths
from ganeti.node.commands import NodeCommands
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.commands import (
    CommandOutput,
    OobArgs,
    ProgramsArgs,
    RestrictedArgs,
    ShellArgs,
)

DELAY_S = 0.05
OOB = "/usr/local/sbin/oob"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    for directory in (paths.restricted_commands, paths.below(OOB).parent):
        directory.mkdir(parents=True)
        directory.chmod(0o755)
    paths.etc.chmod(0o755)
    program(paths.below(OOB), 'echo "$@"; env >&2; exit "${STATUS:-0}"')
    program(paths.restricted_commands / "show", "echo shown; echo error >&2; exit 3")
    return paths


def program(path: Path, body: str, *, mode: int = 0o755) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(mode)
    return path


async def oob(paths: Paths, **fields: object) -> CommandOutput:
    given = {
        "program": OOB,
        "command": "power-on",
        "node_name": "node2.example.com",
        "timeout_s": 5.0,
    }
    args = OobArgs(**{**given, **fields})  # type: ignore[arg-type]  # by the caller
    return await NodeCommands(paths).oob_run(args, Call())


async def restricted(paths: Paths, name: str) -> CommandOutput:
    return await NodeCommands(paths, DELAY_S).restricted_command(
        RestrictedArgs(command=name), Call()
    )


async def test_an_out_of_band_program_gets_a_command_and_a_node(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "x")
    said = await oob(paths)
    assert (said.status, said.stdout) == (0, "power-on node2.example.com")
    assert "SECRET" not in said.stderr


@pytest.mark.parametrize(
    "fields",
    [
        {"command": "power-explode"},
        {"command": "--help"},
        {"node_name": "-rf"},
        {"node_name": "node2; reboot"},
        {"program": "oob"},
        {"program": "/usr/local/sbin/../sbin/oob"},
        {"program": "/usr/local/sbin/none"},
    ],
)
async def test_nothing_else_reaches_an_out_of_band_program(
    paths: Paths, fields: dict[str, object]
) -> None:
    with pytest.raises(GanetiError):
        await oob(paths, **fields)


async def test_an_out_of_band_program_that_hangs_is_ended(paths: Paths) -> None:
    program(paths.below(OOB), "echo begun; sleep 600")
    said = await oob(paths, timeout_s=0.3)
    assert (said.status, said.stdout) == (-1, "begun")
    assert "did not end within" in said.stderr


async def test_which_out_of_band_programs_would_not_be_run(paths: Paths) -> None:
    program(paths.below("/usr/local/sbin/open"), "exit 0", mode=0o777)
    paths.below("/usr/local/sbin/link").symlink_to(paths.below(OOB))
    names = [OOB, "/usr/local/sbin/open", "/usr/local/sbin/link", "/none/there", "relative"]
    found = await NodeCommands(paths).oob_problems(ProgramsArgs(programs=names), Call())
    assert sorted(found) == sorted(names[1:])


async def test_a_restricted_command_runs_without_arguments(paths: Paths) -> None:
    said = await restricted(paths, "show")
    assert said == CommandOutput(status=3, stdout="shown", stderr="error")


def _writable_by_others(paths: Paths) -> None:
    (paths.restricted_commands / "show").chmod(0o777)


def _directory_writable(paths: Paths) -> None:
    paths.restricted_commands.chmod(0o777)


def _above_writable(paths: Paths) -> None:
    paths.etc.chmod(0o777)


def _link(paths: Paths) -> None:
    path = paths.restricted_commands / "show"
    path.rename(path.with_name("real.sh"))
    path.symlink_to("real.sh")


def _of_another(paths: Paths) -> None:
    os.chown(paths.restricted_commands / "show", 65534, 0)


def _disabled(paths: Paths) -> None:
    (paths.restricted_commands / "show").unlink()
    paths.restricted_commands.rmdir()


def _not_executable(paths: Paths) -> None:
    (paths.restricted_commands / "show").chmod(0o644)


@pytest.mark.requirement("A31")
@pytest.mark.parametrize(
    "spoil",
    [
        _writable_by_others,
        _directory_writable,
        _above_writable,
        _link,
        _of_another,
        _disabled,
        _not_executable,
    ],
)
async def test_a_restricted_command_that_is_not_to_be_trusted_is_refused_late_and_without_detail(
    paths: Paths, spoil: Callable[[Paths], None]
) -> None:
    spoil(paths)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    with pytest.raises(HostError) as caught:
        await restricted(paths, "show")
    assert caught.value.message == "this node does not run that command; the reason is in its log"
    assert loop.time() - begin >= DELAY_S


@pytest.mark.requirement("A31")
@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../show", "/bin/sh", "show arg", "show\n", "show;id", "none", "-x", "a" * 300],
)
async def test_only_plain_names_are_restricted_commands(paths: Paths, name: str) -> None:
    with pytest.raises(HostError, match="does not run that command"):
        await restricted(paths, name)


async def test_a_line_of_shell_needs_the_leave_of_the_nodes_administrator(paths: Paths) -> None:
    commands = NodeCommands(paths)
    line = ShellArgs(line="echo out; echo err >&2; exit 7")
    with pytest.raises(PrereqError, match="its administrator can allow them"):
        await commands.shell_command(line, Call())
    paths.shell_commands_allowed.touch()
    paths.shell_commands_allowed.chmod(0o666)
    with pytest.raises(PrereqError, match="may write it"):
        await commands.shell_command(line, Call())
    paths.shell_commands_allowed.chmod(0o644)
    said = await commands.shell_command(line, Call())
    assert said == CommandOutput(status=7, stdout="out", stderr="err")
