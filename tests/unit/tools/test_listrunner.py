"""The same work on many hosts, by real ssh to a server in this process."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from ganeti.base.errors import InputError
from ganeti.tools.listrunner import hosts_of, main, parser

PASSWORD = "only here"
HOSTS = "127.0.0.1,localhost"


class Server(asyncssh.SSHServer):
    """Lets in whoever knows the password."""

    most = 0
    now = 0

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        Server.now += 1
        Server.most = max(Server.most, Server.now)

    def connection_lost(self, exc: Exception | None) -> None:
        Server.now -= 1

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == ("admin", PASSWORD)


async def shell(process: "asyncssh.SSHServerProcess[bytes]") -> None:
    """Run the command, as sshd would."""
    child = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", process.command or "",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await child.communicate()
    process.stdout.write(out)
    process.stderr.write(err)
    process.exit(child.returncode or 0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user who knows the server by its key, and its port by a configuration of ssh."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = asyncssh.generate_private_key("ssh-ed25519")
    loop = asyncio.new_event_loop()
    Server.most = Server.now = 0

    async def listen() -> asyncssh.SSHAcceptor:
        return await asyncssh.listen(
            "127.0.0.1", 0, server_factory=Server, server_host_keys=[key],
            process_factory=shell, sftp_factory=True, encoding=None,
        )  # fmt: skip

    async def close(acceptor: asyncssh.SSHAcceptor) -> None:
        acceptor.close()
        await acceptor.wait_closed()

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    acceptor = asyncio.run_coroutine_threadsafe(listen(), loop).result(30)
    port = acceptor.get_port()
    place = tmp_path / ".ssh"
    place.mkdir()
    public = key.export_public_key().decode().split()
    known = "".join(f"[{host}]:{port} {public[0]} {public[1]}\n" for host in HOSTS.split(","))
    (place / "known_hosts").write_text(known)
    (place / "config").write_text(f"Host *\n  Port {port}\n")
    yield tmp_path
    asyncio.run_coroutine_threadsafe(close(acceptor), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def run(home: Path, *words: str) -> int:
    return main(["-l", str(home / "logs"), "-u", "admin", *words])


def log(home: Path, host: str = "127.0.0.1") -> str:
    return (home / "logs" / f"{host}.log").read_text()


def test_a_command_runs_everywhere_and_each_host_has_its_log(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(home, "-p", PASSWORD, "-h", HOSTS, "-c", "echo out; echo err >&2; exit 0") == 0
    assert "2 of 2 hosts succeeded" in capsys.readouterr().out
    for host in HOSTS.split(","):
        assert sorted(log(home, host).split()) == ["err", "out"]


def test_a_program_runs_beside_its_files_and_leaves_nothing(home: Path) -> None:
    program = home / "work me"
    program.write_text('#!/bin/sh\npwd; cat data; echo "$1-$2"\n')
    (home / "data").write_text("from here\n")
    hosts = home / "hosts"
    hosts.write_text("# all\n127.0.0.1\n\n127.0.0.1\n")
    words = ("-f", str(hosts), "-x", str(program), "-a", str(home / "data"), "--args", "one 'a b'")
    assert run(home, "-p", PASSWORD, *words) == 0
    place, *said = log(home).splitlines()
    assert said == ["from here", "one-a b"]
    assert not Path(place).exists()


def test_hosts_that_fail_are_told_and_the_others_go_on(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(home, "-p", PASSWORD, "-h", HOSTS, "-b", "1", "-c", "echo here; exit 3") == 0
    said = capsys.readouterr()
    assert "0 of 2 hosts" in said.out
    assert said.err == "127.0.0.1: ended with 3\nlocalhost: ended with 3\n"
    assert Server.most == 1
    assert run(home, "-p", "wrong", "-h", "127.0.0.1", "-c", "true") == 0
    assert "cannot log in" in capsys.readouterr().err
    (home / ".ssh" / "known_hosts").write_text("")
    assert run(home, "-p", PASSWORD, "-h", "127.0.0.1", "-c", "true") == 0
    assert "127.0.0.1: cannot log in: Host key is not trusted" in capsys.readouterr().err


def test_hosts_are_names_and_h_is_no_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert hosts_of("a\n b.example.com \n#c\n2001:db8::1\na") == [
        "a",
        "b.example.com",
        "2001:db8::1",
    ]
    for wrong in ("../a", "-oProxyCommand=x", "a b", "#"):
        with pytest.raises(InputError):
            hosts_of(wrong)
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["--help"])
    assert ended.value.code == 0
    assert "-h HOST,..." in capsys.readouterr().out


def test_no_prompt_appears_without_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "-h", "a", "-c", "true") == 1
    assert "-p or -A" in capsys.readouterr().err
    assert run(tmp_path, "-p", "x", "-h", "a", "-x", str(tmp_path / "none")) == 1
    assert "is not a file" in capsys.readouterr().err
