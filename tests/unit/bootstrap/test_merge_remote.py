"""Reaching nodes by ssh, against a server in this process: host keys, passwords, keys."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from ganeti.base.errors import PrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap.merge.journal import MergeChoices
from ganeti.bootstrap.merge.messages import Action, Reply, Request, line_of
from ganeti.bootstrap.merge.remote import Ssh, make_key, own_key
from ganeti.bootstrap.merge.session import Session

HOST, PASSWORD = "127.0.0.1", "correct horse"
LARGE = 5 << 20
"""More than a window of ssh holds."""


class Server(asyncssh.SSHServer):
    """Lets root in by password or by the keys of a file."""

    def begin_auth(self, username: str) -> bool:
        assert username == "root"
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == ("root", PASSWORD)


async def _answer(process: "asyncssh.SSHServerProcess[bytes]") -> None:
    """Ends without an answer to `state`; any other answer has the number of requests that it had."""
    if process.command == "ganeti-node-join --reset":
        process.stdout.write(b"TOKEN\n")
        process.exit(0)
        return
    assert process.command == "ganeti-cluster-merge --on-node"
    count = 0
    async for line in process.stdin:
        count += 1
        asked = json.loads(line)["action"]
        if asked == "state":
            process.stderr.write(b"out of luck\n")
            process.exit(3)
            return
        data = b"x" * LARGE if asked == "backup" else b""
        answer = b"Welcome!" if asked == "facts" else line_of(Reply(text=str(count), data=data))
        process.stdout.write(b"%d\n" % len(answer) + answer)
    process.exit(0)


@contextlib.asynccontextmanager
async def server(
    tmp_path: Path, authorized: str = "", answer: Any = _answer
) -> AsyncIterator[tuple[int, str]]:
    """A server; its port, and how known hosts know it."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    keys = tmp_path / "authorized"
    keys.write_text(authorized)
    made = await asyncssh.listen(
        HOST,
        0,
        server_factory=Server,
        server_host_keys=[key],
        process_factory=answer,
        encoding=None,
        authorized_client_keys=str(keys) if authorized else None,
    )
    try:
        port = made.get_port()
        yield port, f"[{HOST}]:{port} {key.export_public_key().decode()}"
    finally:
        made.close()
        await made.wait_closed()


def ssh(tmp_path: Path, port: int, known: str | None, *passwords: str) -> tuple[Ssh, list[str]]:
    paths = Paths(tmp_path)
    paths.data.mkdir(parents=True, exist_ok=True)
    asked: list[str] = []
    given = list(passwords)
    if known is not None:
        (tmp_path / "known").write_text(known)

    async def password(host: str) -> str:
        asked.append(host)
        await asyncio.sleep(0.02)  # who is asked needs a while
        return given.pop(0)

    choices = MergeChoices(
        ssh_port=port,
        known_hosts=str(tmp_path / "known") if known is not None else "",
        check_host_key=known is not None,
    )
    return Ssh(paths, choices, password), asked


@pytest.mark.requirement("S34")
async def test_the_password_is_asked_for_once_and_requests_are_answered(tmp_path: Path) -> None:
    async with server(tmp_path) as (port, known):
        reach, asked = ssh(tmp_path, port, known, PASSWORD)
        for _ in range(2):
            remote = await reach(HOST)
            answer = await remote.call(Request(action=Action.DAEMONS))
            assert answer.text == "1"
            async with remote.joining() as token:
                assert token == "TOKEN"
            await remote.close()
        assert asked == [HOST]


@pytest.mark.requirement("S34")
async def test_nodes_that_are_reached_at_once_ask_for_their_password_once(tmp_path: Path) -> None:
    async with server(tmp_path) as (port, known):
        reach, asked = ssh(tmp_path, port, known, PASSWORD)
        for remote in await asyncio.gather(*(reach(HOST) for _ in range(4))):
            await remote.close()
        assert asked == [HOST]


@pytest.mark.requirement("S34")
async def test_one_password_is_asked_for_at_a_time(tmp_path: Path) -> None:
    asked = []

    def password(contact: str) -> str:
        asked.append(f"{contact}?")
        time.sleep(0.01)
        asked.append(f"{contact}!")
        return PASSWORD

    async with server(tmp_path) as (port, known):
        session = Session(ssh(tmp_path, port, known)[0].paths, password)
        choices = MergeChoices(ssh_port=port, known_hosts=str(tmp_path / "known"))
        await asyncio.gather(*(session.reach(contact, HOST, choices) for contact in ("c2", "c3")))
        await session.close()
    assert asked in (["c2?", "c2!", "c3?", "c3!"], ["c3?", "c3!", "c2?", "c2!"])


async def test_one_program_on_a_node_answers_all_requests_and_another_one_when_it_has_ended(
    tmp_path: Path,
) -> None:
    async with server(tmp_path) as (port, known):
        remote = await ssh(tmp_path, port, known, PASSWORD)[0](HOST)
        paused, backup = Request(action=Action.PAUSED), Request(action=Action.BACKUP)
        first, second = await asyncio.gather(remote.call(paused), remote.call(backup))
        assert [first.text, second.text, len(second.data)] == ["1", "2", LARGE]
        with pytest.raises(
            PrereqError, match=r"ended with status 3 .*installed there\? out of luck"
        ):
            await remote.call(Request(action=Action.STATE))
        assert (await remote.call(paused)).text == "1"
        with pytest.raises(PrereqError, match="gave an unexpected answer"):
            await remote.call(Request(action=Action.FACTS))
        await remote.close()
        with pytest.raises(PrereqError, match=r"127\.0\.0\.1: the connection by ssh failed"):
            await remote.call(paused)


async def test_lost_connection_to_a_node_is_made_again(tmp_path: Path) -> None:
    async with server(tmp_path) as (port, known):
        paths = ssh(tmp_path, port, known)[0].paths
        session = Session(paths, lambda _contact: PASSWORD)
        choices = MergeChoices(ssh_port=port, known_hosts=str(tmp_path / "known"))
        first = await session.reach("c2", HOST, choices)
        assert await session.reach("c2", HOST, choices) is first
        await first.close()
        second = await session.reach("c2", HOST, choices)
        assert (await second.call(Request(action=Action.PAUSED))).text == "1"
        await session.close()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("3.0.2\n", r"in a cluster of Ganeti 3\.0\.2 without this implementation: install it"),
        ("", r"ended with status 127 .* is this version installed there\? not found"),
        ("Welcome 3.0\n", r"is this version installed there\?"),
    ],
)
async def test_node_without_this_implementation_is_refused_with_a_remedy(
    tmp_path: Path, said: str, why: str
) -> None:
    async def shell(process: "asyncssh.SSHServerProcess[bytes]") -> None:
        if process.command == "cat /var/lib/ganeti/ssconf_release_version":
            process.stdout.write(said.encode())
            process.exit(0 if said else 1)
        else:
            process.stderr.write(b"not found\n")
            process.exit(127)

    async with server(tmp_path, answer=shell) as (port, known):
        remote = await ssh(tmp_path, port, known, PASSWORD)[0](HOST)
        with pytest.raises(PrereqError, match=why):
            await remote.call(Request(action=Action.FACTS))
        await remote.close()


@pytest.mark.requirement("S34")
async def test_a_key_goes_before_the_password(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    async with server(tmp_path, key.export_public_key().decode()) as (port, known):
        reach, asked = ssh(tmp_path, port, known)
        assert not reach.add_key("nonsense")
        assert reach.add_key(key.export_private_key().decode())
        await (await reach(HOST)).close()
        assert asked == []


async def test_wrong_password_is_reported_and_requested_again(tmp_path: Path) -> None:
    async with server(tmp_path) as (port, known):
        reach, asked = ssh(tmp_path, port, known, "wrong", PASSWORD)
        with pytest.raises(PrereqError, match="does not let root in"):
            await reach(HOST)
        await (await reach(HOST)).close()
        assert asked == [HOST, HOST]


async def test_an_unknown_host_gets_no_password(tmp_path: Path) -> None:
    async with server(tmp_path) as (port, _known):
        other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
        for known in ("", f"[{HOST}]:{port} {other}"):
            reach, asked = ssh(tmp_path, port, known, PASSWORD)
            with pytest.raises(PrereqError, match=r"the host key of 127\.0\.0\.1 is not known"):
                await reach(HOST)
            assert asked == []


async def test_without_the_check_the_first_key_is_the_only_one(tmp_path: Path) -> None:
    async with server(tmp_path) as (port, _known):
        reach, _ = ssh(tmp_path, port, None, PASSWORD)
        await (await reach(HOST)).close()
        pinned = Paths(tmp_path).merge / "known_hosts"
        assert pinned.read_text().startswith(f"[{HOST}]:{port} ssh-ed25519 ")
        reach, _ = ssh(tmp_path, port, None, PASSWORD)
        await (await reach(HOST)).close()
        key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
        pinned.write_text(f"[{HOST}]:{port} {key}")
        reach, asked = ssh(tmp_path, port, None, PASSWORD)
        with pytest.raises(PrereqError, match="is not known"):
            await reach(HOST)
        assert asked == []


async def test_unreachable_host_is_an_error_with_its_name(tmp_path: Path) -> None:
    reach, _ = ssh(tmp_path, 1, "", PASSWORD)
    with pytest.raises(PrereqError, match=r"127\.0\.0\.1: the connection by ssh failed"):
        await reach(HOST)


def test_only_root_reads_the_key_of_a_merge(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.data.mkdir(parents=True)
    public = make_key(paths)
    assert public != make_key(paths)  # nothing of a former merge is used again
    assert public.startswith("ssh-ed25519 ")
    assert len(public.split()) == 2
    assert own_key(paths).stat().st_mode & 0o777 == 0o600
