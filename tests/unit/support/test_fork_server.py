"""A program that starts by a fork says the same as one that starts as ever, and ends with the same code."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.fork_server import BIN, Forks, fork_server

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
