"""Hooks on a node: real programs in real directories, some of them hostile."""

import os
import time
from pathlib import Path

import pytest

from ganeti.base.errors import HostError, PrereqError
from ganeti.base.paths import Paths
from ganeti.base.run_parts import OUTPUT_LIMIT, run_directory, scripts_of
from ganeti.model.hooks import Phase
from ganeti.node.hooks import NodeHooks
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.hooks import HookResult, HooksArgs

pytestmark = pytest.mark.requirement("A47", "A66")

PLACE = "instance-start-pre.d"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    (paths.hooks / PLACE).mkdir(parents=True)
    (paths.hooks / PLACE).chmod(0o755)
    paths.hooks.chmod(0o755)
    return paths


def script(paths: Paths, name: str, body: str, *, mode: int = 0o755) -> Path:
    path = paths.hooks / PLACE / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(mode)
    return path


async def run(paths: Paths, limit_s: float = 10.0, **environment: str) -> list[HookResult]:
    args = HooksArgs(hook="instance-start", phase=Phase.PRE, environment=environment)
    return await NodeHooks(paths, limit_s).run(args, Call())


async def listed(paths: Paths) -> list[tuple[str, str]]:
    found = await NodeHooks(paths).list_filled(Nothing(), Call())
    return [(one.hook, one.phase) for one in found]


async def test_programs_run_by_name_with_only_their_variables(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "x")
    script(paths, "20-second", "echo second >&2; exit 3")
    script(paths, "10-first", "env | sort; test -t 0 || cat")
    first, second = await run(paths, GANETI_INSTANCE_NAME="web1")
    assert (first.script, first.problem) == ("10-first", "")
    names = {line.partition("=")[0] for line in first.output.splitlines()}
    assert names - {"PWD", "_", "SHLVL", "OLDPWD"} == {
        *("PATH", "GANETI_INSTANCE_NAME", "GANETI_DATA_DIR"),
    }
    assert f"GANETI_DATA_DIR={paths.data}" in first.output
    assert second == HookResult(script="20-second", problem="exit status 3", output="second")


async def test_report_follows_the_directories(paths: Paths) -> None:
    hooks = NodeHooks(paths)
    assert hooks.report() == ""
    path = script(paths, "10-late", "true", mode=0o644)
    assert hooks.report() == ""
    path.chmod(0o755)
    assert hooks.report() == "instance-start-pre"
    path.unlink()
    assert hooks.report() == ""


async def test_values_reach_a_program_as_they_are(paths: Paths) -> None:
    nasty = "$(touch pwned); `id`\n'\"; rm -rf / \\"
    script(paths, "show", 'printf %s "$GANETI_INSTANCE_TAGS"')
    [result] = await run(paths, GANETI_INSTANCE_TAGS=nasty)
    assert result.output == nasty


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PATH", "GANETI_", "GANETI_A=B", "GANETI_A\nB"])
async def test_other_variables_are_refused(paths: Paths, name: str) -> None:
    args = HooksArgs(hook="instance-start", phase=Phase.PRE, environment={name: "x"})
    with pytest.raises(PrereqError, match="is not a hook variable"):
        await NodeHooks(paths).run(args, Call())


@pytest.mark.parametrize("hook", ["../../../etc", "instance-start-pre.d/../x", "", "watcher", "\n"])
async def test_only_known_hooks_are_run(paths: Paths, hook: str) -> None:
    args = HooksArgs(hook=hook, phase=Phase.PRE, environment={})
    with pytest.raises(PrereqError, match="does not exist"):
        await NodeHooks(paths).run(args, Call())


async def test_which_files_are_programs(paths: Paths) -> None:
    for name in ("10-a", "B_c", "x.sh", "y~", ".hidden", "z.dpkg-old", "with space"):
        script(paths, name, "exit 0")
    script(paths, "not-executable", "exit 1", mode=0o644)
    (paths.hooks / PLACE / "directory").mkdir()
    assert [one.script for one in await run(paths)] == ["10-a", "B_c"]


async def test_links_and_what_others_may_write_is_not_run(paths: Paths, tmp_path: Path) -> None:
    victim = script(paths, "elsewhere.sh", f"touch {tmp_path}/ran")
    (paths.hooks / PLACE / "10-link").symlink_to(victim)
    script(paths, "20-writable", f"touch {tmp_path}/ran", mode=0o777)
    results = await run(paths)
    assert [one.script for one in results] == ["10-link", "20-writable"]
    assert "link" in results[0].problem
    assert "other than its owner" in results[1].problem
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
async def test_programs_of_others_are_not_run(paths: Paths) -> None:
    os.chown(script(paths, "of-another", "exit 0"), 65534, 0)
    [result] = await run(paths)
    assert "belongs to user 65534" in result.problem


async def test_directories_that_others_may_write_are_not_trusted(paths: Paths) -> None:
    script(paths, "a", "exit 0")
    (paths.hooks / PLACE).chmod(0o775)
    with pytest.raises(HostError, match="cannot be trusted"):
        await run(paths)
    assert await listed(paths) == [("instance-start", "pre")], "and this is not hidden"


async def test_a_directory_that_is_a_link_is_not_followed(paths: Paths, tmp_path: Path) -> None:
    script(paths, "a", "exit 0")
    (paths.hooks / PLACE).rename(tmp_path / "moved")
    (paths.hooks / PLACE).symlink_to(tmp_path / "moved")
    with pytest.raises(HostError, match="not a directory"):
        await run(paths)


async def test_directories_with_programs_are_listed(paths: Paths) -> None:
    assert await listed(paths) == []
    script(paths, "a", "exit 0")
    (paths.hooks / "unknown-thing-pre.d").mkdir()
    (paths.hooks / "node-add-post.d").mkdir()
    assert await listed(paths) == [("instance-start", "pre")]


async def test_without_any_directory_there_is_nothing(tmp_path: Path) -> None:
    assert await listed(Paths(tmp_path)) == []
    assert scripts_of(tmp_path / "etc" / "none-pre.d") == []


async def test_a_program_that_hangs_is_ended_with_its_children(
    paths: Paths, tmp_path: Path
) -> None:
    script(paths, "10-hang", f"sleep 600 & echo $! >{tmp_path}/child; echo begun; sleep 600")
    script(paths, "20-late", "echo too late")
    first, second = await run(paths, limit_s=0.4)
    assert "did not end within" in first.problem
    assert first.output == "begun"
    assert second.problem != ""
    child = int((tmp_path / "child").read_text())
    wait_until_gone(child)


async def test_a_program_that_leaves_something_in_the_background_has_ended(
    paths: Paths, tmp_path: Path
) -> None:
    script(paths, "daemon", f"sleep 60 & echo $! >{tmp_path}/child; echo done")
    begin = time.monotonic()
    [result] = await run(paths)
    child = int((tmp_path / "child").read_text())
    try:
        assert result == HookResult(script="daemon", output="done")
        assert time.monotonic() - begin < 5
        os.kill(child, 0)  # it goes on
    finally:
        os.kill(child, 9)


async def test_of_endless_output_the_beginning_is_kept(paths: Paths) -> None:
    script(paths, "loud", "head -c 30000000 /dev/zero | tr '\\0' 'x'")
    [result] = await run(paths)
    assert result.problem == ""
    assert result.output == "x" * OUTPUT_LIMIT + " […]"


async def test_output_is_cleaned_of_what_a_terminal_obeys(paths: Paths) -> None:
    script(paths, "red", "printf '\\033[31mred\\377'")
    [result] = await run(paths)
    assert result.output == "�[31mred�"


async def test_a_program_that_cannot_be_started_has_failed(paths: Paths) -> None:
    path = script(paths, "broken", "exit 0")
    path.write_bytes(b"\x7fELF nothing")
    [result] = await run_directory(path.parent, {}, 10.0)
    assert result.problem.startswith("cannot be started")


def wait_until_gone(pid: int) -> None:
    """A killed process is gone as soon as its new parent has seen it."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.01)
    raise AssertionError(f"{pid} still runs")
