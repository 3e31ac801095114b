"""A daemon that starts by a fork says the same as one that starts as ever, and ends with the same code."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.fork_server import fork_server

NODED = (sys.executable, "-m", "ganeti.daemons.noded")


@pytest.fixture(scope="module")
def by_a_fork() -> Iterator[dict[str, str]]:
    with fork_server() as variables:
        yield variables


def ended(words: tuple[str, ...], variables: dict[str, str]) -> tuple[str, str, int]:
    done = subprocess.run(
        words, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    return done.stdout, done.stderr, done.returncode


@pytest.mark.parametrize(
    ("word", "code"), [("--help", 0), ("--nonsense", 2), ("--port=1", 5)], ids=str
)
def test_a_daemon_says_and_ends_as_without_a_fork(
    by_a_fork: dict[str, str], word: str, code: int
) -> None:
    root = {"GANETI_ROOTDIR": "/nowhere"}
    forked = ended((*NODED, word), {**by_a_fork, **root})
    assert forked == ended((*NODED, word), root)
    assert forked[2] == code
