"""The REST server over TLS: small requests, bulk lists, many idle and slow clients, events, open pages of the console."""

import argparse
import asyncio
import base64
import contextlib
import json
import ssl
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench_memory import pss_mib
from local_cluster import connected, local_cluster
from machine import spin_ms
from processor_time import process_seconds

from ganeti.base.paths import RAPI_PORT
from ganeti.bootstrap.daemons import RAPI, Daemons
from ganeti.vcluster.layout import VirtualCluster

LOGIN = "Basic " + base64.b64encode(b"bench:secret").decode()
ROOM = ("--max-connections", "8000", "--max-connections-per-address", "8000")
CONNECTING_AT_ONCE = 50
FIELDS = {
    "instance": [
        "name", "status", "pnode", "snodes", "os", "hypervisor", "be/vcpus", "be/maxmem", "oper_ram", "disk_usage",
        "disk_template", "tags", "admin_state", "pnode.group",
    ],
    "node": [
        "name", "role", "group", "offline", "drained", "mtotal", "mfree", "mnode", "dtotal", "dfree", "ctotal",
        "pinst_cnt", "sinst_cnt", "tags", "maintenance", "recovery_state", "recovery_why", "vm_capable",
    ],
}  # fmt: skip
"""Fields that the console shows by default."""


class Client:
    """One connection that is kept."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, path: str, etag: str = "") -> None:
        """A GET; with a tag it asks whether the answer is another one now."""
        known = f"If-None-Match: {etag}\r\n" if etag else ""
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {LOGIN}\r\n{known}\r\n"
        self.writer.write(head.encode())

    async def etag(self, path: str) -> str:
        """The tag of an answer."""
        self.send(path)
        head = await self.reader.readuntil(b"\r\n\r\n")
        await self.reader.readexactly(_field(head, b"content-length"))
        return head.lower().partition(b"etag: ")[2].partition(b"\r\n")[0].decode()

    async def get(self, path: str, etag: str = "") -> bytes:
        """A GET and its answer's body; with a tag there is none, as nothing has changed."""
        self.send(path, etag)
        head = await self.reader.readuntil(b"\r\n\r\n")
        if etag:
            assert head.startswith(b"HTTP/1.1 304"), head
            return b""
        assert head.startswith(b"HTTP/1.1 200"), head
        return await self.reader.readexactly(_field(head, b"content-length"))

    async def query(self, kind: str, name: str) -> bytes:
        """Return the answer to a query of one object, in the form of the console."""
        wanted = {
            "fields": FIELDS[kind],
            "qfilter": ["&", ["|", ["=", "name", name]], ["?", "name"]],
        }
        body = json.dumps(wanted)
        head = f"PUT /2/query/{kind} HTTP/1.1\r\nHost: x\r\nAuthorization: {LOGIN}\r\n"
        self.writer.write(
            f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        answer = await self.reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        return await self.reader.readexactly(_field(answer, b"content-length"))


def _field(head: bytes, name: bytes) -> int:
    return int(head.lower().partition(name + b": ")[2].partition(b"\r\n")[0])


class Rest:
    """The server of a cluster."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._address = cluster.master.address
        self._context = ssl.create_default_context(cafile=cluster.master.paths.rapi_certificate)
        self._gate = asyncio.Semaphore(CONNECTING_AT_ONCE)

    async def connect(self) -> Client:
        """A new connection."""
        async with self._gate:
            return Client(
                *await asyncio.open_connection(
                    self._address, RAPI_PORT, ssl=self._context, limit=2**25
                )
            )

    async def several(self, count: int) -> list[Client]:
        """New connections."""
        return list(await asyncio.gather(*(self.connect() for _ in range(count))))


async def per_second(clients: list[Client], path: str, seconds: float, etag: str = "") -> float:
    """Return how many answers all clients together get in a second, each asking again and again."""
    end, count = time.perf_counter() + seconds, 0

    async def again(client: Client) -> int:
        done = 0
        while time.perf_counter() < end:
            await client.get(path, etag)
            done += 1
        return done

    begun = time.perf_counter()
    count = sum(await asyncio.gather(*(again(client) for client in clients)))
    return count / (time.perf_counter() - begun)


async def instances(cluster: VirtualCluster, count: int) -> None:
    """Make instances without disks."""
    node = cluster.nodes[-1].name
    op = {"OP_ID": "OP_INSTANCE_CREATE", "disk_template": "diskless", "pnode": node,
          "no_install": True, "start": False, "os_type": "none"}  # fmt: skip
    async with connected(cluster.master.paths.luxi_socket) as client:
        jobs = [[{**op, "instance_name": f"web{number}.example.com"}] for number in range(count)]
        await client.call("SubmitManyJobs", jobs)
        while True:
            found = await client.call("QueryInstances", [], ["name"], False)
            states = await client.call("QueryJobs", [], ["status"])
            if all(one[0] in ("success", "error") for one in states):
                break
            await asyncio.sleep(0.5)
        assert len(found) <= count
        left = await client.call("QueryInstances", [], ["name"], False)
        assert len(left) == count, states[-1]


async def latency_ms(client: Client, seconds: float) -> float:
    """The 99th of 100 small requests, in milliseconds."""
    taken, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        begun = time.perf_counter()
        await client.get("/version")
        taken.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(0.005)
    return statistics.quantiles(taken, n=100)[-1]


async def crowded_ms(rest: Rest, idle: int, slow: int, seconds: float) -> float:
    """The same, beside clients that say nothing, and others that send a byte now and then."""
    waiting, dripping = await rest.several(idle), await rest.several(slow)
    others = await rest.several(1)

    async def drip(client: Client) -> None:
        with contextlib.suppress(ConnectionError):
            for byte in b"GET /version HTTP/1.1\r\nHost: slow-client\r\nX: y":
                client.writer.write(bytes((byte,)))
                await asyncio.sleep(0.5)

    drips = [asyncio.create_task(drip(client)) for client in dripping]
    found = await latency_ms(others[0], seconds)
    for task in drips:
        task.cancel()
    await asyncio.gather(*drips, return_exceptions=True)
    for client in (*waiting, *dripping, *others):
        client.writer.transport.abort()
    return found


async def event_ms(rest: Rest, cluster: VirtualCluster, subscribers: int, jobs: int) -> float:
    """From the end of a job until a subscriber knows, the 99th of 100, in milliseconds."""
    clients = await rest.several(subscribers)
    arrived: dict[int, list[float]] = {}

    async def listen(client: Client, first: Callable[[], None]) -> None:
        client.send("/2/events?kinds=job")
        await client.reader.readuntil(b": welcome\n\n")
        first()
        while True:
            block = await client.reader.readuntil(b"\n\n")
            now = time.time()
            _, _, data = block.partition(b"data: ")
            if b'"success"' in data:
                arrived.setdefault(json.loads(data)["id"], []).append(now)

    there = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(listen(client, there.release)) for client in clients]
    for _ in clients:
        await there.acquire()
    delays: list[float] = []
    async with connected(cluster.master.paths.luxi_socket) as luxi:
        for _ in range(jobs):
            op = {"OP_ID": "OP_TEST_DELAY", "duration": 0.05, "on_master": True}
            job_id = await luxi.call("SubmitJob", [op])
            while len(arrived.get(job_id, ())) < subscribers:  # noqa: ASYNC110 - they come in other tasks
                await asyncio.sleep(0.05)
            [[end]] = await luxi.call("QueryJobs", [job_id], ["end_ts"])
            delays += [(at - end[0] - end[1] / 1e6) * 1000 for at in arrived[job_id]]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for client in clients:
        client.writer.transport.abort()
    return statistics.quantiles(delays, n=100)[-1]


async def open_pages(
    rest: Rest, cluster: VirtualCluster, pages: int, change_s: float, seconds: float
) -> tuple[float, float]:
    """Return the server's processor time in percent and its memory in MiB with open pages of the console.

    Each page follows events, and requests each changed instance and its node, as the console does.
    """
    clients: list[Client] = []
    begun = 0

    async def follow() -> None:
        nonlocal begun
        stream = await rest.connect()
        clients.append(stream)
        stream.send("/2/events")
        await stream.reader.readuntil(b": welcome\n\n")
        own = await rest.connect()
        clients.append(own)
        await own.query("instance", "web1.example.com")
        begun += 1
        while True:
            block = await stream.reader.readuntil(b"\n\n")
            if b"event: instance\n" in block:
                await asyncio.sleep(0.04)  # the page gathers events
                for kind, name in (
                    ("instance", "web1.example.com"),
                    ("node", cluster.nodes[-1].name),
                ):
                    await own.query(kind, name)

    tasks = [asyncio.create_task(follow()) for _ in range(pages)]
    while begun < pages:
        assert not any(task.done() for task in tasks), "a page has ended"
        await asyncio.sleep(0.1)
    server = Daemons(cluster.master.paths, environment=cluster.master.environment()).status(RAPI)
    assert server.process is not None
    pid = server.process.pid
    async with connected(cluster.master.paths.luxi_socket) as luxi:
        before, start = process_seconds(pid), time.perf_counter()
        for turn in range(max(1, round(seconds / change_s))):
            op = {
                "OP_ID": "OP_TAGS_SET",
                "kind": "instance",
                "name": "web1.example.com",
                "tags": [f"t{turn}"],
            }
            await luxi.call("SubmitJob", [op])
            await asyncio.sleep(change_s)
        spent = process_seconds(pid) - before
        percent = spent / (time.perf_counter() - start) * 100
    mib = pss_mib(pid)
    assert not any(task.done() for task in tasks), "a page has ended"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for client in clients:
        client.writer.transport.abort()
    return percent, mib


async def measure(cluster: VirtualCluster, *, quick: bool, seconds: float) -> dict[str, Any]:
    """All figures."""
    rest = Rest(cluster)
    found: dict[str, Any] = {}
    many = await rest.several(16)
    await per_second(many, "/version", 0.5)
    found["rest_version_1_per_second"] = round(await per_second(many[:1], "/version", seconds))
    found["rest_version_16_per_second"] = round(await per_second(many, "/version", seconds))
    await instances(cluster, 100 if quick else 1000)
    bulk = await per_second(many[:4], "/2/instances?bulk=1", seconds)
    found["rest_bulk_1000_per_second"] = round(bulk / (10 if quick else 1), 1)
    names = "/2/instances"
    found["rest_names_1000_per_second"] = round(await per_second(many[:4], names, seconds))
    same = await per_second(many[:4], names, seconds, await many[0].etag(names))
    found["rest_names_1000_unchanged_per_second"] = round(same)
    found["event_ms"] = round(await event_ms(rest, cluster, 50 if quick else 500, 10), 1)
    pages, change_s = (20, 0.5) if quick else (200, 5.0)
    percent, mib = await open_pages(rest, cluster, pages, change_s, seconds=4 * change_s)
    found["open_pages_cpu_percent"], found["open_pages_mib"] = round(percent, 1), round(mib, 1)
    idle, slow = (200, 20) if quick else (2000, 200)
    found["rest_p99_ms"] = round(await crowded_ms(rest, idle, slow, seconds), 1)
    for client in many:
        client.writer.transport.abort()
    return found


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--smoke", action="store_true", help="one of everything, to see that it runs"
    )
    args = parser.parse_args()
    quick = args.quick or args.smoke
    seconds = 0.2 if args.smoke else 2.0 if quick else 8.0
    with local_cluster(2) as cluster:
        users = cluster.master.paths.rapi_users
        users.write_text("bench secret write\n")
        users.chmod(0o600)
        daemons = Daemons(cluster.master.paths, environment=cluster.master.environment())
        asyncio.run(daemons.start(RAPI, ROOM))
        figures = asyncio.run(measure(cluster, quick=quick, seconds=seconds))
        figures["spin_ms"] = spin_ms()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
