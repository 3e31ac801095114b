"""The cluster's address on a node: which commands are run, and when none is."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from ganeti.base.errors import GanetiError, HostError, InputError, PrereqError
from ganeti.base.process import CommandFailed, Completed
from ganeti.model.hooks import Phase
from ganeti.node import master_ip_setup
from ganeti.node.master_ip import handlers
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.mastership import MasterIpArgs

pytestmark = pytest.mark.requirement("F5")

ADDRESS = MasterIpArgs(address="192.0.2.99", netmask=24, netdev="eth0")
SHOW = "ip -o address show to 192.0.2.99"
PROBE = "arping -q -D -c 2 -w 2 -I eth0 192.0.2.99"
PING = "ping -q -n -c 2 -w 2 192.0.2.99"
ADD = "ip address add 192.0.2.99/24 dev eth0"
TELL = "arping -q -U -c 1 -w 1 -I eth0 192.0.2.99"
DELETE = "ip address del 192.0.2.99/24 dev eth0"


class Commands:
    """Answers by command line: a status, or 127 for a program that is not there."""

    def __init__(self, **statuses: int) -> None:
        self.run_words: list[str] = []
        self.output = b""
        self.statuses = statuses

    async def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Completed:
        line = " ".join(argv)
        self.run_words.append(line)
        status = self.statuses.get(argv[0], 0)
        done = Completed(tuple(argv), status, self.output if line == SHOW else b"", b"")
        if status == 127 or (check and status):
            raise CommandFailed(done, "cannot be started")
        return done


async def test_free_address_is_configured_and_announced() -> None:
    commands = Commands()
    await handlers(commands)["master_ip_up"](ADDRESS, Call())
    assert commands.run_words == [SHOW, PROBE, ADD, TELL]


async def test_used_address_is_not_configured() -> None:
    commands = Commands(arping=1)
    with pytest.raises(PrereqError, match=r"another host answers at .* 192\.0\.2\.99"):
        await handlers(commands)["master_ip_up"](ADDRESS, Call())
    assert commands.run_words == [SHOW, PROBE]


async def test_an_address_that_is_here_is_announced_again() -> None:
    commands = Commands()
    commands.output = b"2: eth0 inet 192.0.2.99/24\n"
    await handlers(commands)["master_ip_up"](ADDRESS, Call())
    assert commands.run_words == [SHOW, TELL]


@pytest.mark.parametrize(("ping", "is_free"), [(0, False), (1, True)])
async def test_without_arping_the_address_is_pinged(ping: int, is_free: bool) -> None:
    commands = Commands(arping=127, ping=ping)
    if is_free:
        await handlers(commands)["master_ip_up"](ADDRESS, Call())
    else:
        with pytest.raises(PrereqError):
            await handlers(commands)["master_ip_up"](ADDRESS, Call())
    assert commands.run_words[:3] == [SHOW, PROBE, PING]
    assert (ADD in commands.run_words) is is_free


async def test_an_address_that_cannot_be_probed_is_not_configured() -> None:
    commands = Commands(arping=127, ping=127)
    with pytest.raises(HostError, match="neither arping nor ping"):
        await handlers(commands)["master_ip_up"](ADDRESS, Call())
    assert ADD not in commands.run_words


async def test_an_ipv6_address_is_pinged() -> None:
    commands = Commands(ping=1)
    args = MasterIpArgs(address="2001:db8::9", netmask=64, netdev="eth0")
    await handlers(commands)["master_ip_up"](args, Call())
    assert [line.split()[0] for line in commands.run_words] == ["ip", "ping", "ip"]


async def test_an_address_is_taken_away_where_it_is() -> None:
    commands = Commands()
    down = handlers(commands)["master_ip_down"]
    await down(ADDRESS, Call())
    assert commands.run_words == [SHOW]
    commands.output = b"2: eth0 inet 192.0.2.99/24\n"
    await down(ADDRESS, Call())
    assert commands.run_words == [SHOW, SHOW, DELETE]


async def test_nothing_is_done_without_an_interface() -> None:
    commands = Commands()
    both = handlers(commands)
    args = MasterIpArgs(address="192.0.2.99", netmask=24, netdev="")
    await both["master_ip_up"](args, Call())
    await both["master_ip_down"](args, Call())
    assert commands.run_words == []


@pytest.mark.requirement("A40")
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"netdev": "-x"}, InputError),
        ({"netdev": "a b"}, InputError),
        ({"address": "--help"}, PrereqError),
        ({"netmask": 33}, PrereqError),
        ({"netmask": 0}, PrereqError),
    ],
)
async def test_nothing_else_becomes_a_word_of_a_command(
    fields: dict[str, object], error: type[GanetiError]
) -> None:
    commands = Commands()
    given = {"address": "192.0.2.99", "netmask": 24, "netdev": "eth0", **fields}
    with pytest.raises(error):
        await handlers(commands)["master_ip_up"](MasterIpArgs(**given), Call())  # type: ignore[arg-type] # wrong ones on purpose
    assert commands.run_words == []


VARIABLES = "MASTER_NETDEV=eth0 MASTER_IP=192.0.2.99 MASTER_NETMASK=24 CLUSTER_IP_VERSION=4"
BY_SCRIPT = msgspec.structs.replace(ADDRESS, by_script=True)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    place = tmp_path / "etc" / "scripts"
    for directory in (tmp_path / "etc", place):
        directory.mkdir()
        directory.chmod(0o755)
    path = place / "master-ip-setup"
    said = " ".join(f"{one}=$" + one for one in VARIABLES.replace("=", " ").split()[::2])
    path.write_text(f'#!/bin/sh\necho "$1 {said}" >>"{tmp_path}/said"\n[ ! -e "{tmp_path}/bad" ]\n')
    path.chmod(0o755)
    return path


async def test_an_administrators_script_has_the_address_to_itself(
    script: Path, tmp_path: Path
) -> None:
    commands, hooks = Commands(), []

    async def run_hooks(hook: str, phase: Phase, _variables: Mapping[str, str]) -> None:
        hooks.append(f"{hook}-{phase.value}")

    given = handlers(commands, run_hooks, script)
    await given["master_ip_up"](BY_SCRIPT, Call())
    await given["master_ip_down"](BY_SCRIPT, Call())
    assert (tmp_path / "said").read_text() == f"start {VARIABLES}\nstop {VARIABLES}\n"
    assert commands.run_words == []
    assert hooks == [
        *("master-ip-turnup-pre", "master-ip-turnup-post"),
        *("master-ip-turndown-pre", "master-ip-turndown-post"),
    ]
    (tmp_path / "bad").touch()
    with pytest.raises(HostError, match="master-ip-setup start failed"):
        await given["master_ip_up"](BY_SCRIPT, Call())


@pytest.mark.requirement("A47", "A66")
async def test_a_script_that_others_could_have_written_is_not_run(
    script: Path, tmp_path: Path
) -> None:
    up = handlers(Commands(), script=script)["master_ip_up"]
    for path in (script, script.parent, script.parent.parent):
        path.chmod(0o777)
        with pytest.raises(HostError, match="cannot be trusted"):
            await up(BY_SCRIPT, Call())
        path.chmod(0o755)
    real = script.rename(tmp_path / "real")
    script.symlink_to(real)
    with pytest.raises(HostError, match="it is a link"):
        await up(BY_SCRIPT, Call())
    script.unlink()
    with pytest.raises(HostError, match="does not exist"):
        await up(BY_SCRIPT, Call())
    assert not (tmp_path / "said").exists()


def test_the_program_does_what_the_node_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for one in VARIABLES.split():
        monkeypatch.setenv(*one.split("="))
    commands = Commands()
    assert master_ip_setup.main(["start"], commands) == 0
    assert commands.run_words == [SHOW, PROBE, ADD, TELL]
    commands.output = b"2: eth0 inet 192.0.2.99/24\n"
    assert master_ip_setup.main(["stop"], commands) == 0
    assert commands.run_words[4:] == [SHOW, DELETE]
    assert master_ip_setup.main(["start"], Commands(arping=1)) == 1
    assert "another host answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        "MASTER_NETDEV=",
        "MASTER_NETMASK=x",
        "MASTER_NETMASK=33",
        "CLUSTER_IP_VERSION=6",
        "MASTER_IP=a",
    ],
)
def test_the_program_refuses_what_is_no_address(
    wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for one in (*VARIABLES.split(), wrong):
        monkeypatch.setenv(*one.split("="))
    commands = Commands()
    assert master_ip_setup.main(["start"], commands) == 1
    assert commands.run_words == []
    assert capsys.readouterr().err.startswith("master-ip-setup: ")
