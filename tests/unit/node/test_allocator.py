"""Running external allocators."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ganeti.base.errors import HostError, InputError
from ganeti.base.paths import Paths
from ganeti.base.process import OUTPUT_LIMIT, Completed, Run, run
from ganeti.node import allocator
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.programs import ALLOCATOR_RUN, AllocatorArgs, AllocatorOutput


class Node:
    def __init__(self, root: Path, run: Run = run) -> None:
        self.paths = Paths(root)
        self.first, self.second = root / "first", root / "second"
        self.first.mkdir()
        self.second.mkdir()
        self.handler = allocator.handlers(self.paths, run)[ALLOCATOR_RUN.name]

    def script(self, body: str, name: str = "hail", directory: Path | None = None) -> Path:
        path = (directory or self.first) / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    async def ask(self, name: str = "hail", message: str = '{"version":2}') -> AllocatorOutput:
        answer = await self.handler(AllocatorArgs(name=name, message=message), Call())
        assert isinstance(answer, AllocatorOutput)
        return answer

    def left_files(self) -> list[Path]:
        return list(self.paths.run.rglob("iallocator-*"))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setenv("GANETI_IALLOCATOR_SEARCH_PATH", "/missing,/first,/second")
    return Node(tmp_path)


@pytest.mark.requirement("S161")
async def test_the_program_gets_one_argument_a_private_file_with_the_message(node: Node) -> None:
    node.script('echo "$#"; stat -c %a "$1"; cat "$1"; echo aside >&2')
    answer = await node.ask(message='{"name":"Ä"}')
    assert answer.found
    assert answer.stdout == '1\n600\n{"name":"Ä"}'
    assert (answer.status, answer.stderr) == (0, "aside\n")
    assert node.left_files() == []


@pytest.mark.requirement("S158")
async def test_the_first_directory_that_has_the_name_wins(node: Node) -> None:
    node.script("echo second", directory=node.second)
    assert (await node.ask()).stdout == "second\n"
    node.script("echo first")
    assert (await node.ask()).stdout == "first\n"
    assert not (await node.ask("other")).found


@pytest.mark.requirement("S159")
def test_the_default_search_path_is_that_of_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GANETI_IALLOCATOR_SEARCH_PATH", raising=False)
    assert Paths().iallocator_search_path == (Path("/usr/lib/ganeti/iallocators"),)


@pytest.mark.requirement("S162")
async def test_failure_is_reported_with_the_full_output(node: Node) -> None:
    node.script("echo partly; echo broken >&2; exit 1")
    assert await node.ask() == AllocatorOutput(
        found=True, status=1, stdout="partly\n", stderr="broken\n"
    )
    assert node.left_files() == []


@pytest.mark.requirement("F36", "A40", "G24")
@pytest.mark.parametrize(
    "name",
    [
        *("../hail", "/bin/sh", "a/../hail", ".", "..", "", "x" * 256, "hail\n", "ha\nil"),
        *("hail\0", "-hail", "ha il", "$(id)", "`id`", ";id", "a|b", "'a'", "%s%n", "{0}"),
        *("\u202ehail", "\uff0e\uff0e"),
    ],
)
async def test_a_name_that_is_no_plain_word_runs_nothing(node: Node, name: str) -> None:
    node.script("touch ran")
    with pytest.raises(InputError, match="iallocator"):
        await node.ask(name)


@pytest.mark.parametrize(
    ("mode", "why"), [(0o644, "not an executable file"), (0o757, "writable by all users")]
)
async def test_a_program_in_a_bad_state_is_not_run(node: Node, mode: int, why: str) -> None:
    node.script("true").chmod(mode)
    node.script("echo second", directory=node.second)
    with pytest.raises(HostError, match=why):
        await node.ask()


async def test_a_directory_of_that_name_is_not_run(node: Node) -> None:
    (node.first / "hail").mkdir()
    with pytest.raises(HostError, match="not an executable file"):
        await node.ask()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the privileges of root")
async def test_a_program_of_another_user_is_not_run(node: Node) -> None:
    os.chown(node.script("true"), 12345, -1)
    with pytest.raises(HostError, match="belongs to user 12345"):
        await node.ask()


async def test_program_that_cannot_start_is_reported(node: Node) -> None:
    node.script("true").write_text("#!/no/such/interpreter\n")
    answer = await node.ask()
    assert answer.status == 127
    assert "cannot be started" in answer.stderr


async def test_endless_output_is_bounded(node: Node) -> None:
    node.script("head -c 20000000 /dev/zero")
    assert len((await node.ask()).stdout) == OUTPUT_LIMIT


async def test_deadline_is_reported_and_the_message_removed(tmp_path: Path, node: Node) -> None:
    async def impatient(argv: Sequence[str], **options: object) -> Completed:
        assert options["timeout_s"] == 120
        return await run(argv, timeout_s=0.05)

    node.handler = allocator.handlers(node.paths, impatient)[ALLOCATOR_RUN.name]
    node.script("sleep 60")
    answer = await node.ask()
    assert answer.status == -9
    assert "did not end within 0.05 s" in answer.stderr
    assert node.left_files() == []
