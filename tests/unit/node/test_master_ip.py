"""The cluster's address on a node: which commands are run, and when none is."""

from collections.abc import Mapping, Sequence

import pytest

from ganeti.base.errors import GanetiError, HostError, InputError, PrereqError
from ganeti.base.process import CommandFailed, Completed
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


async def test_an_address_that_nobody_has_is_configured_and_announced() -> None:
    commands = Commands()
    await handlers(commands)["master_ip_up"](ADDRESS, Call())
    assert commands.run_words == [SHOW, PROBE, ADD, TELL]


async def test_an_address_that_somebody_has_is_left_alone() -> None:
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
