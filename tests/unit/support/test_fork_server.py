"""A program that starts by a fork says the same as one that starts as ever, and ends with the same code."""

import contextlib
import marshal
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fork_server import BIN, VARIABLE, Forks, fork_server
from tests.support.local_cluster import wait_until

ROOT = {"GANETI_ROOTDIR": "/nowhere"}
NODED = (sys.executable, "-m", "ganeti.daemons.noded")


@pytest.fixture(scope="module")
def forked() -> Iterator[Forks]:
    with fork_server() as found:
        yield found


def ended(words: tuple[str, ...], variables: dict[str, str]) -> tuple[str, str, int]:
    done = subprocess.run(
        words, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    return done.stdout, done.stderr, done.returncode


@pytest.mark.parametrize(
    ("word", "code"), [("--help", 0), ("--nonsense", 2), ("--port=1", 5)], ids=str
)
def test_a_daemon_says_and_ends_as_without_a_fork(forked: Forks, word: str, code: int) -> None:
    found = ended((*NODED, word), {**forked.variables, **ROOT})
    assert found == ended((*NODED, word), ROOT)
    assert found[2] == code


@pytest.mark.parametrize(
    ("word", "code"), [("--version", 0), ("info", 5), ("nonsense", 1)], ids=str
)
def test_a_command_says_and_ends_as_without_a_fork(forked: Forks, word: str, code: int) -> None:
    own, copy = (shutil.which("gnt-cluster", path=path) for path in (BIN, forked.programs))
    assert own is not None
    assert copy not in (None, own)
    found = ended((str(copy), word), {**forked.variables, **ROOT})
    assert found == ended((own, word), ROOT)
    assert found[2] == code


def test_a_child_may_end_together_with_who_waits_for_it(forked: Forks) -> None:
    server = process_with(forked.variables[VARIABLE])
    variables = {**os.environ, **forked.variables, **ROOT}
    with subprocess.Popen((*NODED, "--help"), env=variables, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)  # the child runs
        os.kill(server, signal.SIGSTOP)
        wait_until(lambda: has_zombie(server), "the child has ended")
        process.kill()
        process.wait()
    os.kill(server, signal.SIGCONT)
    assert ended((*NODED, "--help"), {**forked.variables, **ROOT})[2] == 0
    assert process_with(forked.variables[VARIABLE]) == server


def test_who_asks_may_end_before_the_answer(forked: Forks) -> None:
    server = process_with(forked.variables[VARIABLE])
    asked = ([*NODED, "--help"], "/", {**os.environ, **forked.variables, **ROOT}, 0o022)
    os.kill(server, signal.SIGSTOP)
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking,
        Path(os.devnull).open("r+b", buffering=0) as null,
    ):
        asking.connect(forked.variables[VARIABLE])
        socket.send_fds(asking, [marshal.dumps(asked)], [null.fileno()] * 3)
    os.kill(server, signal.SIGCONT)
    assert ended((*NODED, "--help"), {**forked.variables, **ROOT})[2] == 0
    assert process_with(forked.variables[VARIABLE]) == server


def process_with(word: str) -> int:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(word) in entry.read_bytes().split(b"\0"):
                return int(entry.parent.name)
    raise AssertionError(f"no process with {word}")


def has_zombie(parent: int) -> bool:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return any(") Z " in Path(f"/proc/{one}/stat").read_text() for one in children)
