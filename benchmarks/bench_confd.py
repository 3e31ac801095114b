"""Answers of `ganeti-confd` about 1,000 nodes and 10,000 instances; how soon candidates know a change.

Answers are counted for each second of processor time that the daemon used, so that what the clients of
the same machine take does not matter; `valid_under_garbage` is a share, under garbage from another process.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench_memory import resident_mib
from local_cluster import local_cluster
from machine import spin_ms, sync_ms

from ganeti.base.ids import RandomIds
from ganeti.base.paths import CONFD_PORT, Paths
from ganeti.base.pidfile import pid_file, serving_process
from ganeti.clients.luxi import LuxiClient
from ganeti.confd.keys import keep_key, new_key
from ganeti.config.transaction import put_row
from ganeti.model.names import AdminState
from ganeti.model.objects import (
    Cluster,
    Disk,
    GroupUuid,
    Instance,
    InstanceUuid,
    Nic,
    Node,
    NodeGroup,
    NodeUuid,
)
from ganeti.protocols.confd import QueryType, Request, pack_request, parse_answer
from ganeti.store.backend import become_master
from ganeti.store.backends import open_alone
from ganeti.store.interface import MAX_OPERATIONS, Identity, Put, Transaction

PORT = 31814
GARBAGE_PER_S = 50_000
IN_FLIGHT = 64
START_S = 60.0


async def fill(paths: Paths, nodes: int, instances: int) -> None:
    """The state of a large cluster, in the database of one candidate."""
    ids = RandomIds()
    uuids = [NodeUuid(ids.uuid()) for _ in range(nodes)]
    store = await open_alone(paths, Identity(ids.uuid(), uuids[0]))
    try:
        lease = await become_master(store)
        group = GroupUuid(ids.uuid())
        rows = [put_row(Cluster(uuid=ids.uuid(), name="c.example.com", master_node=uuids[0]))]
        rows.append(put_row(NodeGroup(uuid=group, name="default")))
        rows += [
            put_row(
                Node(
                    uuid=uuid,
                    name=f"node{number}.example.com",
                    primary_ip=f"10.1.{number // 250}.{number % 250 + 1}",
                    secondary_ip="",
                    group=group,
                    certificate="",
                    master_candidate=number < 10,
                )
            )
            for number, uuid in enumerate(uuids)
        ]
        rows += [instance(number, uuids) for number in range(instances)]
        for start in range(0, len(rows), MAX_OPERATIONS):
            await store.commit(lease, Transaction(tuple(rows[start : start + MAX_OPERATIONS])))
    finally:
        await store.close()


def instance(number: int, nodes: list[NodeUuid]) -> Put:
    """One of them, on two nodes."""
    ids = RandomIds()
    uuid = ids.uuid()
    path = f"/srv/ganeti/shared-file-storage/{uuid}.file.disk0"
    return put_row(
        Instance(
            uuid=InstanceUuid(uuid),
            name=f"i{number}.example.com",
            primary_node=nodes[number % len(nodes)],
            os="debian+stable",
            admin_state=AdminState.UP,
            disk_template="sharedfile",
            disks=(
                Disk(uuid=ids.uuid(), size=20480, template="sharedfile", logical_id=("loop", path)),
            ),
            nics=(Nic(uuid=ids.uuid(), mac="aa:00:00:00:00:01", ip=address(number)),),
            hvparams={"kernel_path": "", "boot_order": "disk"},
            beparams={"vcpus": 2, "maxmem": 2048, "minmem": 2048},
        )
    )


def address(number: int) -> str:
    """Of an instance."""
    return f"10.{2 + number // 62_500}.{number // 250 % 250}.{number % 250 + 1}"


@contextmanager
def serving(paths: Paths) -> Iterator[int]:
    """A confd over that state; its process."""
    environment = {**os.environ, "GANETI_ROOTDIR": str(paths.root), "GANETI_ADDRESS": "127.0.0.1"}
    words = [sys.executable, "-m", "ganeti.daemons.confd", "--port", str(PORT)]
    paths.log.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(words, env=environment) as process:
        try:
            end = time.monotonic() + START_S
            while serving_process(pid_file(paths.run, "ganeti-confd")) is None:
                assert process.poll() is None, "it does not start"
                assert time.monotonic() < end, "it does not serve"
                time.sleep(0.02)
            yield process.pid
        finally:
            process.terminate()


def cpu_s(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def queries(key: bytes, count: int, instances: int) -> dict[str, bytes]:
    """Signed ones by their salts: what is asked most often."""
    chooser = random.Random(1)  # noqa: S311 - a choice of queries
    ids = RandomIds()
    made = {}
    for _ in range(count):
        number = chooser.randrange(instances)
        kind, query = chooser.choice(
            (
                (QueryType.PING, None),
                (QueryType.NODE_ROLE_BY_NAME, f"node{number % 1000}.example.com"),
                (QueryType.NODE_IP_BY_INSTANCE_IP, address(number)),
                (QueryType.MASTER, None),
                (QueryType.INSTANCE_DISKS, f"i{number}.example.com"),
            )
        )
        rsalt = ids.uuid()
        made[rsalt] = pack_request(key, Request(1, kind, rsalt, query), time.time())
    return made


def connected() -> socket.socket:
    """A client's socket."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    opened.connect(("127.0.0.1", PORT))
    opened.settimeout(1.0)
    return opened


def per_core(pid: int, packets: list[bytes], in_flight: int, seconds: float) -> float:
    """Answers a second of the daemon's processor time, with so many queries on their way."""
    with connected() as client:
        sent = answered = 0
        begun, used = time.monotonic(), cpu_s(pid)
        while time.monotonic() - begun < seconds:
            while sent - answered < in_flight:
                client.send(packets[sent % len(packets)])
                sent += 1
            client.recv(65_536)
            answered += 1
        return answered / max(0.01, cpu_s(pid) - used)


def p99_ms(packets: list[bytes], per_s: float, seconds: float) -> float:
    """Milliseconds within which 99 of 100 queries at this rate were answered."""
    taken = []
    with connected() as client:
        begun = time.perf_counter()
        for number in range(int(per_s * seconds)):
            while (now := time.perf_counter()) < begun + number / per_s:
                time.sleep(min(0.0005, begun + number / per_s - now))
            client.send(packets[number % len(packets)])
            client.recv(65_536)
            taken.append((time.perf_counter() - now) * 1000)
    return statistics.quantiles(taken, n=100)[-1]


def throw_garbage(per_s: int, seconds: float) -> None:
    """What an attacker sends who has no key: noise, and datagrams of the right form."""
    chooser = random.Random(2)  # noqa: S311 - noise
    forged = [
        pack_request(b"not the cluster's key", Request(1, 0, f"r{number}"), time.time())
        for number in range(100)
    ]
    noise = [chooser.randbytes(chooser.randrange(1, 400)) for _ in range(100)]
    packets = forged + noise
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", PORT))
        begun = time.monotonic()
        count = 0
        while (passed := time.monotonic() - begun) < seconds:
            for _ in range(50):
                if count >= passed * per_s:
                    break
                try:
                    sender.send(packets[count % len(packets)])
                except OSError:
                    break
                count += 1
            else:
                continue
            time.sleep(0.0005)
        print(f"{count / seconds:.0f} pieces of garbage a second", file=sys.stderr)


def under_garbage(key: bytes, made: dict[str, bytes], seconds: float) -> float:
    """The share of valid queries, 200 a second, that are answered within a second."""
    thrower = multiprocessing.get_context("spawn").Process(
        target=throw_garbage, args=(GARBAGE_PER_S, seconds + 1)
    )
    thrower.start()
    answered = asked = 0
    with connected() as client:
        begun = time.monotonic()
        for rsalt, packet in made.items():
            if time.monotonic() - begun > seconds:
                break
            client.send(packet)
            asked += 1
            try:
                answered += parse_answer(client.recv(65_536), key, rsalt) is not None
            except TimeoutError:
                continue
            time.sleep(0.004)
    thrower.join()
    return answered / asked


def change_s(changes: int) -> float:
    """Seconds until all three candidates of a cluster answer the position of a change (the longest)."""
    with local_cluster(confd=True) as cluster:
        key = cluster.master.paths.confd_key.read_bytes()
        taken = []
        for number in range(changes):
            before = min(serials(key, [node.address for node in cluster.nodes]))
            client = LuxiClient(cluster.master.paths)
            job = client.call(
                "SubmitJob",
                [{"OP_ID": "OP_TAGS_SET", "kind": "cluster", "tags": [f"t{number}"], "reason": []}],
            )
            begun = time.monotonic()
            while client.call("QueryJobs", [job], ["status"])[0][0] != "success":
                begun = time.monotonic()
            wanted = max(serials(key, [node.address for node in cluster.nodes[:1]]))
            while min(seen := serials(key, [node.address for node in cluster.nodes])) <= before or (
                min(seen) < wanted
            ):
                assert time.monotonic() - begun < START_S
            taken.append(time.monotonic() - begun)
            client.close()
        return max(taken)


def serials(key: bytes, addresses: list[str]) -> list[int]:
    """Return what each candidate's answers are of."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(2.0)
        for one in addresses:
            rsalt = RandomIds().uuid()
            packet = pack_request(key, Request(1, QueryType.PING, rsalt), time.time())
            client.sendto(packet, (one, CONFD_PORT))
            answer = parse_answer(client.recv(65_536), key, rsalt)
            assert answer is not None
            found.append(answer.serial)
    return found


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter times, a smaller cluster")
    parser.add_argument(
        "--smoke", action="store_true", help="one of everything, to see that it runs"
    )
    args = parser.parse_args()
    quick = args.quick or args.smoke
    nodes, instances, seconds = (100, 1000, 2.0) if quick else (1000, 10_000, 10.0)
    if args.smoke:
        nodes, instances, seconds = 10, 100, 0.2
    with tempfile.TemporaryDirectory(prefix="gnt-") as directory:
        paths = Paths(Path(directory))
        paths.data.mkdir(parents=True)
        asyncio.run(fill(paths, nodes, instances))
        key = new_key()
        keep_key(paths, key)
        with serving(paths) as pid:
            made = queries(key, 20_000, instances)
            packets = list(made.values())
            one = per_core(pid, packets, 1, seconds)
            many = per_core(pid, packets, IN_FLIGHT, seconds)
            figures = {
                "one_per_second": round(one),
                "sixty_four_per_second": round(many),
                "p99_ms": round(p99_ms(packets, min(one, 8000) / 2, seconds), 3),
                "valid_under_garbage": round(under_garbage(key, made, seconds), 4),
                "mib": round(resident_mib(pid), 1),
                "sync_ms": sync_ms(paths.root),
                "spin_ms": spin_ms(),
            }
    figures["change_s"] = round(change_s(3 if quick else 20), 3)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
