"""The same work on many hosts by ssh. A host's key must be known here, as for `ssh`."""

import asyncio
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

CONNECT_LIMIT_S = 30.0


@dataclass(frozen=True)
class Work:
    """A line of shell, and files that are beside it while it runs; one of them may be a program."""

    command: str
    files: tuple[Path, ...] = ()
    program: str = ""


@dataclass(frozen=True)
class Login:
    """Without a password the keys of this user and of an agent are offered."""

    user: str
    password: str | None = None


async def run_on_all(
    hosts: Sequence[str], work: Work, login: Login, logs: Path, *, at_a_time: int
) -> dict[str, str]:
    """Run it everywhere; the hosts that failed, and why. What each says is in `logs`, by its name."""
    room = asyncio.Semaphore(at_a_time)

    async def one(host: str) -> tuple[str, str]:
        async with room:
            return host, await run_on(host, work, login, logs / f"{host}.log")

    return {host: why for host, why in await asyncio.gather(*map(one, hosts)) if why}


async def run_on(host: str, work: Work, login: Login, log: Path) -> str:
    """Return why it failed, or ''."""
    options = {} if login.password is None else _only_password(login.password)
    try:
        connection = await asyncssh.connect(
            host, username=login.user, connect_timeout=CONNECT_LIMIT_S, **options
        )
    except (asyncssh.Error, OSError) as err:
        return f"cannot log in: {err}"
    try:
        return await _work(connection, work, log)
    except (asyncssh.Error, OSError) as err:
        return str(err)
    finally:
        connection.close()
        await connection.wait_closed()


def _only_password(password: str) -> dict[str, object]:
    return {"password": password, "client_keys": None, "agent_path": None}


async def _work(connection: asyncssh.SSHClientConnection, work: Work, log: Path) -> str:
    if not work.files:
        return await _ended(connection, work.command, log)
    made = await connection.run("mktemp -d /tmp/listrunner.XXXXXXXXXX", check=True)
    place = str(made.stdout).strip()
    try:
        async with connection.start_sftp_client() as files:
            for path in work.files:
                await files.put(str(path), f"{place}/{path.name}")
        words = [f"cd {shlex.quote(place)}"]
        if work.program:
            words.append(f"chmod 0700 ./{shlex.quote(work.program)}")
        return await _ended(connection, " && ".join((*words, work.command)), log)
    finally:
        await connection.run(f"rm -rf -- {shlex.quote(place)}")


async def _ended(connection: asyncssh.SSHClientConnection, command: str, log: Path) -> str:
    process = await connection.create_process(
        command, stdin=asyncssh.DEVNULL, stdout=log, stderr=asyncssh.STDOUT, encoding=None
    )
    done = await process.wait()
    return "" if done.exit_status == 0 else f"ended with {done.exit_status or done.exit_signal}"
