"""`gnt-cluster init` through a pseudo-terminal: a real cluster from answers, and from the command line that it shows."""

import contextlib
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import time

import pytest

from tests.cluster.nodes import Nodes, TestNode
from tests.support.patience import patience

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
RUN = [sys.executable, "-c", "import sys; from ganeti.cli.gnt_cluster import main; main()"]
PASSWORD = "a password of anna"


class Conversation:
    """A command on a terminal."""

    def __init__(self, node: TestNode, *words: str) -> None:
        self._own, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [*RUN, *words], env=node.environment, stdin=terminal, stdout=terminal, stderr=terminal,
            start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        self.shown = ""
        self._read = 0

    def answer(self, question: str, text: str) -> None:
        """Wait for a question, and answer it."""
        self._until(question)
        os.write(self._own, text.encode() + b"\n")

    def _until(self, text: str) -> None:
        end = time.monotonic() + 60 * patience()
        while text not in self.shown[self._read :]:
            readable, _, _ = select.select((self._own,), (), (), max(0, end - time.monotonic()))
            assert readable, self.shown
            try:
                data = os.read(self._own, 4096)
            except OSError:  # the process has ended
                raise AssertionError(self.shown) from None
            self.shown += data.decode().replace("\r\n", "\n")
        self._read = self.shown.index(text, self._read) + len(text)

    def end(self) -> int:
        """Return the exit code, after all was shown."""
        with contextlib.suppress(OSError):
            while data := os.read(self._own, 4096):
                self.shown += data.decode().replace("\r\n", "\n")
        os.close(self._own)
        return self.process.wait(60 * patience())


def ran(node: TestNode, *words: str) -> str:
    done = subprocess.run(
        [*RUN, *words], env=node.environment, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, timeout=100 * patience(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_answers_make_a_cluster_and_the_shown_command_makes_the_same(nodes: Nodes) -> None:
    node = nodes.new()
    shared = f"--shared-file-storage-dir={node.paths.root}/shared"
    told = Conversation(node, "init", shared, "-N", "link=br0")
    told.answer("Name of the cluster", "c b")
    told.answer("is not a host name", "c.invalid")
    told.answer("Address of the cluster", "192.0.2.99")
    told.answer("Network interface", "none")
    told.answer("Hypervisor", "fake")
    told.answer("Volume group", "none")
    told.answer("Directory of disks", "")
    told.answer("Store of the state", "")
    told.answer("First administrator", "anna")
    told.answer("Create the cluster", "")
    told.answer("Password for anna", PASSWORD)
    told.answer("again", PASSWORD)
    assert told.end() == 0, told.shown
    assert PASSWORD not in told.shown
    [line] = re.findall(r"^  (gnt-cluster init .*)$", told.shown, re.MULTILINE)
    assert shared in shlex.split(line)
    info = ran(node, "info")
    assert "anna" in ran(node, "list-users")
    ran(node, "destroy", "--yes-do-it")
    ran(node, *shlex.split(line)[1:])
    again = ran(node, "info")
    assert _settings(again) == _settings(info)
    ran(node, "destroy", "--yes-do-it")


def _settings(info: str) -> list[str]:
    """Lines of the cluster's information without times and UUIDs."""
    return [line for line in info.splitlines() if not re.search(r"time|UUID", line)]


@pytest.mark.parametrize("answer", ["n", "\x04"], ids=["no", "end"])
async def test_refused_cluster_is_not_made(nodes: Nodes, answer: str) -> None:
    node = nodes.new()
    words = ["--enabled-hypervisors=fake", "--vg-name=", "--file-storage-dir=/srv/f", "--state=embedded",
             "--master-netdev=", "--master-ip=192.0.2.99", "-N", "link=br0"]  # fmt: skip
    told = Conversation(node, "init", *words)
    told.answer("Name of the cluster", "c.invalid")
    told.answer("First administrator", "none")
    told.answer("Create the cluster", answer)
    assert told.end() == 13
    assert "nothing was changed" in told.shown
    assert not node.paths.register.exists()
