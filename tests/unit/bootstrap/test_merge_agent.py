"""What a node does for a merge, on real files."""

import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.errors import InputError, PrereqError
from ganeti.base.paths import Paths
from ganeti.base.process import Completed
from ganeti.bootstrap.daemons import Daemons
from ganeti.bootstrap.merge import agent
from ganeti.bootstrap.merge.messages import Action, Reply, Request
from ganeti.bootstrap.merge.program import main, parser
from ganeti.node.master_ip_setup import address_of
from ganeti.rpc.procedures.mastership import MasterIpArgs

LINE = "ssh-ed25519 AAAAC3 ganeti-cluster-merge-1"


def keys(paths: Paths) -> Path:
    return paths.root_ssh / "authorized_keys"


@pytest.mark.requirement("S35", "S47")
@pytest.mark.parametrize(
    "old", [None, b"", b"ssh-rsa AAAA admin\n", b"ssh-rsa AAAA admin", b"# only\n\n"]
)
def test_the_key_is_one_marked_line_and_leaves_the_file_as_it_was(
    tmp_path: Path, old: bytes | None
) -> None:
    paths = Paths(tmp_path)
    if old is not None:
        paths.root_ssh.mkdir(parents=True)
        keys(paths).write_bytes(old)
        keys(paths).chmod(0o640)
    for _ in range(2):  # a repetition adds nothing
        agent.trust(paths, LINE)
        lines = keys(paths).read_text().splitlines()
        assert [line for line in lines if line.startswith(LINE)] == [lines[-1]]
        assert len(lines) == len((old or b"").splitlines()) + 1
    agent.trust(paths, LINE.replace("merge-1", "merge-2"))  # another merge does not disturb it
    agent.distrust(paths, LINE.replace("merge-1", "merge-2"))
    for _ in range(2):
        agent.distrust(paths, LINE)
        assert (keys(paths).read_bytes() if keys(paths).exists() else None) == old
    if old is not None:
        assert keys(paths).stat().st_mode & 0o777 == 0o640


def test_a_line_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        agent.trust(Paths(tmp_path), "ssh-rsa AAAA\nssh-rsa BBBB")


@pytest.mark.parametrize("by_script", [False, True])
async def test_an_address_is_taken_away_by_the_node_s_program_or_the_administrator_s(
    tmp_path: Path, by_script: bool
) -> None:
    ran: list[tuple[list[str], Mapping[str, str]]] = []

    async def run(
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Completed:
        del timeout_s, stdin, check
        ran.append((list(argv), env or {}))
        return Completed(tuple(argv), 0, b"", b"")

    paths = Paths(tmp_path)
    one = agent.Agent(paths, Daemons(paths), runs=run)
    address = MasterIpArgs(address="2001:db8::9", netmask=64, netdev="eth0", by_script=by_script)
    await one.answer(Request(action=Action.DROP_ADDRESS, address=address))
    ((words, environment),) = ran
    assert words[-1] == "stop"
    assert (words[0] == str(paths.master_ip_script)) is by_script
    assert address_of(environment) == replace(address, by_script=False)


@pytest.mark.requirement("S34")
def test_the_first_type_of_keys_that_is_there_is_given(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    assert agent.private_key(paths, ["ed25519", "rsa", "dsa"]) == ""
    paths.root_ssh.mkdir(parents=True)
    for name in ("dsa", "rsa"):
        (paths.root_ssh / f"id_{name}").write_text(name)
    assert agent.private_key(paths, ["ed25519", "rsa", "dsa"]) == "rsa"
    assert agent.private_key(paths, ["dsa", "rsa"]) == "dsa"
    with pytest.raises(InputError):
        agent.private_key(paths, ["../../etc/shadow"])


@pytest.mark.requirement("S37")
def test_watcher_is_paused_and_restored(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.data.mkdir(parents=True)
    assert agent.paused(paths) is None
    for text in ("2000000000\n", ""):  # one without a time is for ever
        agent.pause(paths, text)
        assert agent.paused(paths) == text == paths.watcher_pause.read_text()
    agent.pause(paths, None)
    agent.pause(paths, None)
    assert not paths.watcher_pause.exists()


def test_an_answer_may_hold_a_key_and_does_not_show_it() -> None:
    assert "secret" not in repr(Reply(text="secret", data=b"secret"))


def test_requests_are_answered_in_turn_and_one_that_makes_no_sense_with_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    wrong = ["", "nonsense", '{"action": "rm"}', '{"action": "paused", "more": 1}', "[" * 9999]
    lines = [*wrong, '{"action": "paused"}', '{"action": "trust", "line": "a\\nb"}']
    stdin = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stdin))
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["--on-node"]) == 0
    out.seek(0)
    errors = []
    while size := out.buffer.readline():
        errors.append(json.loads(out.buffer.read(int(size))).get("error", ""))
    assert [bool(error) for error in errors] == [True] * len(wrong) + [False, True]
    assert errors[-1] == "line: must be one line"


def test_foreign_answer_is_refused_with_its_name() -> None:
    with pytest.raises(PrereqError, match=r"node1 gave an unexpected answer"):
        agent.parse_answer(b"Welcome!\n", "node1")
    with pytest.raises(PrereqError, match="node1: no such luck"):
        agent.parse_answer(b'{"error": "no such luck"}', "node1")


def test_options_match_the_manual_page() -> None:
    page = (Path(__file__).parents[3] / "docs/man/ganeti-cluster-merge.md").read_text()
    for action in parser()._actions:
        if action.help != "==SUPPRESS==":
            assert all(
                f"`{name}" in page for name in action.option_strings if name.startswith("--")
            )
