"""Webhooks of a real cluster: a receiver that verifies, fails and recovers, and a change of the master."""

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ganeti.clients.luxi import LuxiClient
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.masters import DELAY, fail_over

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "integrations.md").read_text()
SECRET = "canary-4711-of-a-webhook"


class Receiver:
    """A receiver with the verification of the manual; `status` is its answer."""

    def __init__(self) -> None:
        code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
        assert code is not None
        names: dict[str, Any] = {}
        exec(code[1], names)  # noqa: S102 - our own page
        self.status, self.bad = 200, 0
        self.events: list[dict[str, Any]] = []
        self.requests = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests += 1
                if not names["is_genuine"](SECRET, self.headers, content):
                    receiver.bad += 1
                elif receiver.status == 200:
                    receiver.events += json.loads(content)["events"]
                self.send_response(receiver.status)
                self.end_headers()

            def log_message(self, *_args: Any) -> None:
                """Write nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/ganeti"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def ended(self) -> list[int]:
        """The ids of jobs that have ended with success, as often as they were sent."""
        return [one["content"]["id"] for one in self.events
                if one["kind"] == "job" and one["content"]["status"] == "success"]  # fmt: skip


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.close()


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(nodes=2) as one:
        yield one


def delays(cluster: LocalCluster, master: int, count: int) -> list[int]:
    with LuxiClient(cluster.node(master).paths) as client:
        return [int(client.call("SubmitJob", [DELAY])) for _ in range(count)]


@pytest.mark.requirement("G23", "A57")
def test_events_reach_the_receiver_through_failures_and_another_master(
    cluster: LocalCluster, receiver: Receiver
) -> None:
    secret = cluster.directory / "secret"
    secret.write_text(SECRET)
    words = ["gnt-cluster", "webhook", "add", "chat", "--url", receiver.url, "--kinds=job", "--secret-file", str(secret)]  # fmt: skip
    cluster.ok(*words)
    assert "--allow-local" in cluster.fails("gnt-cluster", "webhook", "test", "chat")
    assert receiver.requests == 0
    cluster.ok("gnt-cluster", "webhook", "modify", "chat", "--allow-local=yes")
    assert "status 200" in cluster.ok("gnt-cluster", "webhook", "test", "chat").out

    ids = delays(cluster, 1, 20)
    wait_until(lambda: set(ids) <= set(receiver.ended()), "the receiver has all jobs", 60)

    receiver.status = 500
    ids += delays(cluster, 1, 3)
    wait_until(
        lambda: "status 500" in cluster.ok("gnt-cluster", "webhook", "info", "chat").out,
        "the failure is shown",
        60,
    )
    # The next master begins with the shortest pause.
    fail_over(cluster, 2)
    receiver.status = 200
    ids += delays(cluster, 2, 3)
    wait_until(lambda: set(ids) <= set(receiver.ended()), "nothing is lost", 120)
    assert receiver.bad == 0
    assert list(dict.fromkeys(one for one in receiver.ended() if one in ids)) == ids
    numbers = [tuple(map(int, one["number"].split("-"))) for one in receiver.events if one["kind"] != "test"]  # fmt: skip
    first = [one for index, one in enumerate(numbers) if one not in numbers[:index]]
    assert first == sorted(first)

    listed = cluster.run(
        "gnt-cluster", "webhook", "list", "--no-headers", "-o", "name,state", node=2
    )
    assert listed.out.split() == ["chat", "good"]
    time.sleep(1)
    secret.unlink()
    found = [
        path
        for path in cluster.directory.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    # The state has it; no log, no job file and no list of facts.
    assert all(".db" in path.name for path in found), found
