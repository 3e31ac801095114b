"""Runs all programs of an administrator's directory in order, like run-parts (A47, A66).

They run as root: the directory, the one above it and the programs must belong to root and be
writable by no other user, and none of them may be a link.
"""

import asyncio
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.call_programs import run_endable
from ganeti.base.errors import HostError
from ganeti.base.process import CommandFailed

PATH = "/sbin:/bin:/usr/sbin:/usr/bin"
NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
"""The names of programs; run-parts has the same rule."""
OUTPUT_LIMIT = 16 * 1024
"""Bytes of one program's output that are kept."""
LINGER_S = 0.5
"""Time for which the output of background processes is read."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Script:
    """A program to run; `problem` is the reason why it must not run."""

    path: Path
    problem: str = ""


@dataclass(frozen=True)
class Ended:
    """A program's result: `problem` is '' after success; `output` is the beginning of its output."""

    name: str
    problem: str = ""
    output: str = ""


async def run_directory(
    directory: Path, environment: Mapping[str, str], limit_s: float
) -> list[Ended]:
    """Run all programs of a directory within `limit_s`; programs without remaining time have failed.

    They get PATH and `environment`, and nothing else. HostError if the directory is not trusted.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    results = []
    for script in await asyncio.to_thread(scripts_of, directory):
        if script.problem:
            results.append(Ended(script.path.name, script.problem))
        else:
            results.append(await run_one(script.path, environment, max(end - loop.time(), 0.0)))
    return results


async def run_one(
    path: Path, environment: Mapping[str, str], limit_s: float, *arguments: str
) -> Ended:
    """Run one trusted program."""
    try:
        done = await run_endable(
            [str(path), *arguments],
            timeout_s=limit_s,
            env={"PATH": PATH, **environment},
            linger_s=LINGER_S,
        )
    except CommandFailed as err:
        return Ended(path.name, err.why, shown(err.completed.text))
    return Ended(path.name, output=shown(done.text))


def shown(text: str, limit: int = OUTPUT_LIMIT) -> str:
    """Return a program's output for people: its beginning, without terminal control."""
    kept = text[:limit]
    more = " […]" if len(kept) < len(text) else ""
    return "".join(one if one.isprintable() or one in "\n\t" else "�" for one in kept) + more


def scripts_of(directory: Path) -> list[Script]:
    """Return the programs of a directory, by name; none if the directory does not exist.

    Files that are not executable are ignored. HostError if the directory itself is not trusted.
    """
    try:
        check_directory(directory.parent)
        check_directory(directory)
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as err:
        raise HostError(f"{directory}: {err.strerror}") from err
    found = (_script(Path(entry.path)) for entry in entries if NAME.fullmatch(entry.name))
    return [script for script in found if script is not None]


def check_program(path: Path) -> None:
    """Raise HostError unless it is a program in a directory where only root could have put it."""
    try:
        check_directory(path.parent.parent)
        check_directory(path.parent)
        script = _script(path)
    except FileNotFoundError:
        script = None
    except OSError as err:
        raise HostError(f"{path}: {err.strerror}") from err
    if script is None:
        raise HostError(f"{path} does not exist or is not executable")
    if script.problem:
        raise HostError(f"{path} cannot be trusted: {script.problem}")


def _script(path: Path) -> Script | None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return Script(path, "it is a link: use the program itself")
    if not is_program(status):
        return None
    return Script(path, distrust(status))


def is_program(status: os.stat_result) -> bool:
    """Return whether it is a file that its owner may execute."""
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & stat.S_IXUSR)


def check_directory(directory: Path) -> None:
    """Raise HostError unless it is a directory, not a link, that only root may write; OSError."""
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise HostError(f"{directory} is not a directory (links are not followed)")
    if why := distrust(status):
        raise HostError(f"{directory} cannot be trusted: {why}")


def distrust(status: os.stat_result) -> str:
    """Return why a user other than root and the program's own could have written it; '' if none could."""
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to user {status.st_uid}, not to root"
    if status.st_mode & OTHERS_WRITE:
        return f"users other than its owner may write it (mode {stat.S_IMODE(status.st_mode):04o})"
    return ""
