"""What lists cost: LUXI queries of many instances, small ones of many clients, and gnt-instance list.

The master is a process with the real LUXI server, queries and commands' socket; nodes are stood in for, so that
what is measured is the master.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import selectors
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from commands import Cost, cost_of
from machine import spin_ms, sync_ms

from ganeti.api.luxi_methods import LuxiMethods
from ganeti.api.luxi_server import LuxiServer
from ganeti.base.clock import SystemClock
from ganeti.base.paths import Paths
from ganeti.config.snapshot import Snapshot
from ganeti.model.names import AdminState
from ganeti.model.objects import (
    Cluster,
    GroupUuid,
    Instance,
    InstanceUuid,
    Nic,
    Node,
    NodeGroup,
    NodeUuid,
)
from ganeti.protocols.luxi import END, encode_request
from ganeti.query.execute import QueryExecutor
from ganeti.query.live import LiveSource
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.procedures.instances import INSTANCES_INFO, RunningInstance

NODES = 20
CLIENTS = 16
DEFAULT_FIELDS = ["hypervisor", "name", "os", "pnode", "snodes", "admin_state"]
LIVE_FIELDS = ["name", "hypervisor", "os", "pnode", "status", "oper_ram"]
"""Those of `gnt-instance list`; the first without what nodes must be asked for."""
ANSWER_S = 0.005
"""How long a node takes to answer."""


def uuid(kind: int, number: int) -> str:
    """A UUID of its own for each thing."""
    return f"00000000-0000-4000-{kind:04x}-{number:012x}"


def snapshot(instances: int) -> Snapshot:
    """A cluster of 20 nodes with so many instances."""
    cluster = Cluster(
        uuid=uuid(0, 1),
        name="cluster.example.com",
        master_node=NodeUuid(uuid(1, 0)),
        enabled_hypervisors=("fake",),
    )
    group = NodeGroup(uuid=GroupUuid(uuid(2, 1)), name="default")
    nodes = [
        Node(
            uuid=NodeUuid(uuid(1, number)),
            name=f"node{number}.example.com",
            primary_ip=f"192.0.2.{number + 1}",
            secondary_ip=f"192.0.2.{number + 1}",
            group=group.uuid,
            certificate=f"{number:064x}",
            master_candidate=number == 0,
        )
        for number in range(NODES)
    ]
    return Snapshot.of(
        1,
        cluster,
        nodes=nodes,
        groups=[group],
        instances=[_instance(number, nodes[number % NODES].uuid) for number in range(instances)],
    )


def _instance(number: int, node: NodeUuid) -> Instance:
    mac = f"aa:00:00:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"
    return Instance(
        uuid=InstanceUuid(uuid(3, number)),
        name=f"web{number}.example.com",
        primary_node=node,
        hypervisor="fake",
        os="noop",
        admin_state=AdminState.UP,
        nics=(Nic(uuid=uuid(4, number), mac=mac),),
    )


class StandInNodes:
    """Each answers after a moment that its instances run."""

    def __init__(self, shown: Snapshot) -> None:
        self._answers: dict[str, list[RunningInstance]] = {node: [] for node in shown.nodes}
        for one in shown.instances.values():
            running = RunningInstance(
                name=one.name, uuid=one.uuid, hypervisor="fake", memory=128, vcpus=1,
                state="running", cpu_time_s=1.0,
            )  # fmt: skip
            self._answers[one.primary_node].append(running)

    async def call(self, node: Node, procedure: Procedure[Any, Any], args: Any) -> Any:
        del args
        await asyncio.sleep(ANSWER_S)
        assert procedure is INSTANCES_INFO
        return self._answers[node.uuid]


class NoJobs:
    """A queue without jobs."""

    is_drained = False

    def ids(self) -> list[int]:
        return []

    def view(self, job_id: int, /) -> None:
        del job_id

    async def archived_view(self, job_id: int, /) -> None:
        del job_id

    async def archived_ids(self, *, below: int | None, limit: int) -> list[int]:
        del below, limit
        return []


class Shown:
    """The configuration, for readers."""

    degraded = False

    def __init__(self, shown: Snapshot) -> None:
        self.snapshot = shown


async def serve(path: Path, instances: int) -> None:
    """Answer LUXI clients until the process is ended."""
    shown, clock, jobs = snapshot(instances), SystemClock(), NoJobs()
    live = LiveSource(StandInNodes(shown), clock)
    queries = QueryExecutor(lambda: shown, jobs, list, live)
    unused: Any = None
    methods = LuxiMethods(
        queue=unused,
        config=Shown(shown),  # type: ignore[arg-type]  # what keeps the state is not asked for
        queries=queries,
        watcher_pause=unused,
        screenshots=unused,
        backups=unused,
        filters=unused,
        clock=clock,
        audit=unused,
        ha_status=unused,
        programs=unused,
    )
    server = LuxiServer(path, methods)
    await server.start()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await server.close()


def _process(path: Path, instances: int) -> None:
    asyncio.run(serve(path, instances))


@contextmanager
def master(instances: int) -> Iterator[Path]:
    """A master with so many instances; the directory that commands take for the host's root."""
    with tempfile.TemporaryDirectory(prefix="gnt-bench-") as name:
        paths = Paths(Path(name))
        paths.luxi_socket.parent.mkdir(parents=True)
        process = multiprocessing.get_context("spawn").Process(
            target=_process, args=(paths.luxi_socket, instances)
        )
        process.start()
        try:
            while not _serves(paths.luxi_socket):
                time.sleep(0.05)
            yield Path(name)
        finally:
            process.terminate()
            process.join()


def _serves(path: Path) -> bool:
    """Whether clients are accepted: the socket exists some time before."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(os.fspath(path)) == 0


class Peer(NamedTuple):
    """The LUXI socket of another master, and the kind and the name of an object that it has."""

    path: Path
    thing: Sequence[str]


class Client:
    """A blocking connection that reads no more of an answer than its end."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(os.fspath(path))

    def ask(self, request: bytes) -> None:
        """Send a request, and wait for the end of its answer."""
        self.socket.sendall(request)
        while not self.socket.recv(1 << 20).endswith(END):
            pass


def query_ms(root: Path, request: bytes, runs: int, pause_s: float = 0.0) -> float:
    """Milliseconds of one query (median)."""
    client = Client(Paths(root).luxi_socket)
    client.ask(request)
    taken = []
    for _ in range(runs):
        time.sleep(pause_s)
        begun = time.perf_counter()
        client.ask(request)
        taken.append((time.perf_counter() - begun) * 1000)
    client.socket.close()
    return round(statistics.median(taken), 2)


def small_per_second(path: Path, count: int, seconds: float, thing: Sequence[str]) -> float:
    """Answers a second to so many clients that each ask for one name of a kind, again and again."""
    kind, name = thing
    request = encode_request("Query", [kind, ["name"], ["=", "name", name]])
    clients = [Client(path) for _ in range(count)]
    ready = selectors.EpollSelector()
    for client in clients:
        ready.register(client.socket, selectors.EVENT_READ)
        client.socket.sendall(request)
    answers, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for key, _events in ready.select():
            connection: Any = key.fileobj
            if connection.recv(65536).endswith(END):
                answers += 1
                connection.sendall(request)
    took = time.perf_counter() - begun
    for client in clients:
        client.socket.close()
    ready.close()
    return round(answers / took)


def list_cost(root: Path, runs: int) -> Cost:
    """What `gnt-instance list` costs."""
    environment = {**os.environ, "GANETI_ROOTDIR": os.fspath(root)}
    command = [os.fspath(Path(sys.executable).with_name("gnt-instance")), "list"]
    return cost_of(command, environment, runs)


def small(own: Path, peer: Peer | None, *, quick: bool) -> dict[str, float]:
    """Rates of small queries, and the shares of the peer's rates, measured in turn with this implementation."""
    rounds, seconds = (2, 0.5) if quick else (5, 1.0)
    figures: dict[str, float] = {}
    for clients, key in ((1, "luxi_small_1"), (CLIENTS, "luxi_small")):
        rates, shares = [], []
        for _ in range(rounds):
            rates.append(small_per_second(own, clients, seconds, ("instance", "web7.example.com")))
            if peer is not None:
                shares.append(rates[-1] / small_per_second(peer.path, clients, seconds, peer.thing))
        figures[f"{key}_per_second"] = statistics.median(rates)
        if shares:
            figures[f"{key}_of_peer"] = round(statistics.median(shares), 2)
    return figures


def measure(peer: Peer | None, *, quick: bool) -> dict[str, float]:
    """All figures."""
    runs = 5 if quick else 30
    stored = encode_request("Query", ["instance", DEFAULT_FIELDS, None])
    live = encode_request("Query", ["instance", LIVE_FIELDS, None])
    figures: dict[str, float] = {}
    with master(1_000) as root:
        figures["luxi_instances_1000_ms"] = query_ms(root, stored, runs)
        # So that no query may use the answers that the last one got from the nodes.
        figures["luxi_live_1000_ms"] = query_ms(root, live, runs // 3, pause_s=1.1)
        figures |= small(Paths(root).luxi_socket, peer, quick=quick)
        figures |= list_cost(root, runs).figures("cli_list_1000")
    with master(10_000) as root:
        figures["luxi_instances_10000_ms"] = query_ms(root, stored, runs)
    with master(0) as root:
        figures |= list_cost(root, runs).figures("cli_list_0")
        figures |= {"sync_ms": sync_ms(root), "spin_ms": spin_ms()}
    return figures


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--peer", nargs=3, metavar=("SOCKET", "KIND", "NAME"),
        help="also measure another master, by queries for this object of its own",
    )  # fmt: skip
    args = parser.parse_args()
    peer = args.peer and Peer(Path(args.peer[0]), args.peer[1:])
    print(json.dumps(measure(peer, quick=args.quick)))


if __name__ == "__main__":
    main()
