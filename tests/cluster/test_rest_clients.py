"""REST on real clusters: who follows events through changes of master, and a crowd of idle and slow clients."""

import asyncio
import contextlib
import http.client
import json
import random
import resource
import ssl
import statistics
import threading
import time
from collections.abc import Iterator

import pytest

from ganeti.base.paths import RAPI_PORT
from ganeti.clients.luxi import LuxiClient
from ganeti.vcluster.layout import VirtualNode
from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.masters import DELAY, fail_over, rest_cluster
from tests.support.rest import EventReader, credentials

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(600)]
USER = {"Authorization": credentials("tour")}
IDLE, SLOW, HALF_OPEN = 2000, 500, 500
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
OF_ADDRESS = 50
"""Connections from one address; the server takes 64."""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with rest_cluster("tour secret write\n") as made:
        yield made


def connection(node: VirtualNode, timeout_s: float) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=node.paths.rapi_certificate)
    context.check_hostname = False
    return http.client.HTTPSConnection(node.address, RAPI_PORT, timeout=timeout_s, context=context)


class Follower(threading.Thread):
    """Follows events wherever they are told, and is cut off again and again."""

    def __init__(self, cluster: LocalCluster, seed: int) -> None:
        super().__init__()
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._is_to_end = threading.Event()
        self.reader = EventReader("0-0")
        self.resets = self.streams = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._is_to_end.is_set():
                for number in (1, 2, 3):
                    with contextlib.suppress(OSError, http.client.HTTPException):
                        self._follow(self._cluster.node(number))
                    self.reader.cut_off()
                self._is_to_end.wait(0.2)
        except BaseException as err:  # noqa: BLE001 - the test's thread looks at it
            self.error = err

    def _follow(self, node: VirtualNode) -> None:
        until = time.monotonic() + self._chance.random() * 4
        with contextlib.closing(connection(node, 2)) as client:
            last = {"Last-Event-ID": self.reader.last} if self.reader.last else {}
            client.request("GET", "/2/events?kinds=job", headers={**USER, **last})
            answer = client.getresponse()
            if answer.status != http.client.OK:
                return
            self.streams += 1
            fields: dict[str, str] = {}
            while time.monotonic() < until and (line := answer.readline().decode()):
                name, _, value = line.rstrip("\n").partition(": ")
                if name:
                    fields[name] = value
                elif "event" in fields:
                    content = json.loads(fields["data"])
                    self.reader.take(fields["event"], content, fields.get("id"))
                    self.resets += fields["event"] == "reset"
                    fields = {}

    def end(self) -> None:
        """Stop, and raise what went wrong."""
        self._is_to_end.set()
        self.join()
        if self.error is not None:
            raise self.error


def jobs_of(cluster: LocalCluster, node: int) -> dict[int, str]:
    with LuxiClient(cluster.node(node).paths) as client:
        return {row[0]: row[1] for row in client.call("QueryJobs", [], ["id", "status"])}


def test_event_subscriber_sees_every_job_across_masters(
    cluster: LocalCluster,
) -> None:
    followers = [Follower(cluster, seed) for seed in range(4)]
    for one in followers:
        one.start()
    try:
        wait_until(lambda: all(one.streams for one in followers), "all listen", 90)
        for master, following in ((1, 2), (2, 3), (3, 1)):
            with LuxiClient(cluster.node(master).paths) as client:
                for _ in range(20):
                    client.call("SubmitJob", [DELAY])
                    time.sleep(0.02)
            fail_over(cluster, following)

        def all_know() -> bool:
            truth = jobs_of(cluster, 1)
            return all(one.reader.jobs.items() >= truth.items() for one in followers)

        wait_until(all_know, "all know what has become of every job", 180)
    finally:
        for one in followers:
            one.end()
    # Each has seen all that the log has, from the first transaction on, whoever told it: nothing anew, nothing twice.
    assert [one.resets for one in followers] == [0] * len(followers)
    seen = [one.reader.numbers for one in followers]
    shortest = min(map(len, seen))
    assert all(one[:shortest] == seen[0][:shortest] for one in seen)


@pytest.mark.requirement("A7", "G18")
async def test_a_crowd_of_idle_and_slow_clients_leaves_others_served(cluster: LocalCluster) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        await crowd(cluster.node(1))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def crowd(node: VirtualNode) -> None:
    context = ssl.create_default_context(cafile=node.paths.rapi_certificate)
    context.check_hostname = False
    gate = asyncio.Semaphore(40)
    asked = f"GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: {USER['Authorization']}\r\n\r\n".encode()

    async def connect(number: int, tls: ssl.SSLContext | None) -> Connection:
        source = (f"127.66.{number // OF_ADDRESS // 250}.{number // OF_ADDRESS % 250 + 1}", 0)
        async with gate:
            return await asyncio.open_connection(
                node.address, RAPI_PORT, ssl=tls, local_addr=source, ssl_handshake_timeout=60 if tls else None
            )  # fmt: skip

    async def ask(one: Connection) -> float:
        begun = time.perf_counter()
        one[1].write(asked)
        head = await one[0].readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await one[0].readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
        return time.perf_counter() - begun

    async def idle(number: int) -> Connection:
        one = await connect(number, context)
        await ask(one)
        return one

    async def seconds_until_cut(number: int, tls: ssl.SSLContext | None) -> float:
        reader, writer = await connect(number, tls)
        begun = time.perf_counter()
        with contextlib.suppress(OSError):
            for byte in b"GET /version HTTP/1.1" * 9 if tls else b"":
                writer.write(bytes((byte,)))
                await asyncio.sleep(1)
                if reader.at_eof():
                    break
            await reader.read()
        writer.transport.abort()
        return time.perf_counter() - begun

    idlers = await asyncio.gather(*(idle(number) for number in range(IDLE)))
    admin = await idle(10 * IDLE)
    attacks = [
        asyncio.create_task(seconds_until_cut(IDLE + number, context if number < SLOW else None))
        for number in range(SLOW + HALF_OPEN)
    ]
    taken = []
    while not all(one.done() for one in attacks):
        taken.append(await ask(admin))
        await asyncio.sleep(0.05)
    cut = await asyncio.gather(*attacks)
    for _, writer in (*idlers, admin):
        writer.transport.abort()
    assert len(taken) > 50
    assert statistics.quantiles(taken, n=100)[-1] < 1, sorted(taken)[-20:]
    assert max(cut) < 30, sorted(cut)[-20:]
