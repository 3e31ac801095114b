"""A command whose connection breaks after its request was sent submits one job all the same."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import MASTERD
from ganeti.protocols.luxi import END
from tests.support.local_cluster import LocalCluster
from tests.support.patience import ran

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


class Relay:
    """A socket in front of the master's that swallows the first answer, and hangs up instead."""

    def __init__(self, path: Path, master: Path, then: Callable[[], object]) -> None:
        self.path = path
        self.connections = 0
        self.swallowed = b""
        self._master = master
        self._then = then
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(8)
        self._ends = False
        self._thread = threading.Thread(target=self._serve, name="relay")
        self._thread.start()

    def close(self) -> None:
        self._ends = True
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
            knock.connect(str(self.path))
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            client, _ = self._listener.accept()
            with client:
                if self._ends:
                    return
                self.connections += 1
                # A master that is down looks as one that hangs up.
                with contextlib.suppress(OSError), self._to_master() as master:
                    self._converse(client, master)
            if self.connections == 1:
                self._then()

    def _converse(self, client: socket.socket, master: socket.socket) -> None:
        while request := _message(client):
            master.sendall(request)
            answer = _message(master)
            if not self.swallowed:
                self.swallowed = answer
                return
            client.sendall(answer)

    def _to_master(self) -> socket.socket:
        master = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            master.connect(str(self._master))
        except OSError:
            master.close()
            raise
        return master


def _message(line: socket.socket) -> bytes:
    data = b""
    while not data.endswith(END):
        more = line.recv(65536)
        if not more:
            return b""
        data += more
    return data


@contextlib.contextmanager
def relay(cluster: LocalCluster, then: Callable[[], object]) -> Iterator[Relay]:
    """A relay to the master of a cluster."""
    path = cluster.directory / "relay"
    one = Relay(path, cluster.cluster.master.paths.luxi_socket, then)
    try:
        yield one
    finally:
        one.close()
        path.unlink()


def jobs_that_say(cluster: LocalCluster, reason: str) -> list[int]:
    with cluster.luxi() as client:
        rows = client.query_jobs([], ["id", "ops"])
    return [row[0] for row in rows if row is not None and reason in str(row[1])]


def submit_through(cluster: LocalCluster, path: Path, reason: str) -> int:
    """The id that `gnt-debug delay --submit` prints when it talks to another socket."""
    done = ran(
        cluster.node(1).words(["gnt-debug", "delay", "0", "--submit", "--reason", reason]),
        env={**cluster.node(1).environment(), "GANETI_LUXI_SOCKET": str(path)},
        limit_s=30,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.removeprefix("JobID: "))


@pytest.mark.requirement("F16")
def test_an_answer_that_is_lost_does_not_make_a_second_job(cluster: LocalCluster) -> None:
    with relay(cluster, lambda: None) as between:
        job_id = submit_through(cluster, between.path, "lost answer")
    assert b'"success":true' in between.swallowed
    assert between.connections == 2
    assert jobs_that_say(cluster, "lost answer") == [job_id]


@pytest.mark.requirement("F16")
def test_a_master_that_dies_after_taking_a_job_is_not_given_it_again(cluster: LocalCluster) -> None:
    def crash() -> None:
        cluster.kill(MASTERD)
        cluster.start(MASTERD)

    with relay(cluster, crash) as between:
        job_id = submit_through(cluster, between.path, "dead master")
    assert b'"success":true' in between.swallowed
    assert jobs_that_say(cluster, "dead master") == [job_id]
