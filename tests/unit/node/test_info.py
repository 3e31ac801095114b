"""What a node says about itself."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from ganeti import __version__
from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.jobs.record import JOB_KIND, job_key
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.objects import NodeUuid
from ganeti.node import info
from ganeti.node.info import Facts, Host, parse_cpuinfo, parse_meminfo
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import PROTOCOL_VERSION, Nothing
from ganeti.rpc.procedures.host import (
    NODE_INFO,
    NODE_VERIFY,
    VERSION,
    NodeInfo,
    NodeInfoArgs,
    NodeVersion,
    VerifyArgs,
    VerifyReport,
)
from ganeti.store.database import Database, History, Limits
from ganeti.store.interface import ZERO, Position, Put, Transaction
from ganeti.store.preserved_states import preserve_state
from tests.support.predictable import FrozenClock

ROOT = "/srv/ganeti/file-storage"
MEMINFO = """MemTotal:        8192000 kB
MemFree:          102400 kB
MemAvailable:    4096000 kB
Cached:          3993600 kB
HugePages_Total:       0
"""
CPUINFO = """processor\t: 0
physical id\t: 0
cpu cores\t: 2

processor\t: 1
physical id\t: 0

processor\t: 2
physical id\t: 1
"""


class Counting(FakeHypervisor):
    """Counts the questions for its version."""

    asked = 0
    broken = False

    async def version(self) -> str:
        self.asked += 1
        if self.broken:
            raise HypervisorError("no program")
        return "9.1"


class Node:
    def __init__(self, root: Path) -> None:
        self.paths = Paths(root)
        for directory in (
            *(self.paths.etc, self.paths.data, self.paths.log, self.paths.run),
            self.paths.below(ROOT),
        ):
            directory.mkdir(parents=True, exist_ok=True)
        self.paths.file_storage_paths.write_text(f"{ROOT}\n")
        proc = root / "proc"
        (proc / "sys/kernel/random").mkdir(parents=True)
        (proc / "sys/kernel/random/boot_id").write_text("boot-1\n")
        (proc / "meminfo").write_text(MEMINFO)
        (proc / "cpuinfo").write_text(CPUINFO)
        for number in range(2):
            (root / f"sys/devices/system/node/node{number}").mkdir(parents=True)
        self.clock = FrozenClock()
        self.hypervisor = Counting(self.paths)
        self.connections: list[tuple[str, int]] = []
        self.handlers: Handlers = info.handlers(
            self.paths,
            {"fake": self.hypervisor},
            Facts(lambda: "cluster-1", lambda: 42, lambda: 5.0),
            self.clock,
            host=Host(proc, root / "sys"),
            connect=self._connect,
        )

    async def _connect(self, address: str, port: int) -> None:
        self.connections.append((address, port))
        if address == "192.0.2.8":
            raise ConnectionRefusedError(111, "Connection refused")
        if address == "192.0.2.9":
            await asyncio.sleep(3600)

    async def info(self, args: NodeInfoArgs) -> NodeInfo:
        answer = await self.handlers[NODE_INFO.name](args, Call())
        assert isinstance(answer, NodeInfo)
        return answer

    async def verify(self, args: VerifyArgs) -> VerifyReport:
        answer = await self.handlers[NODE_VERIFY.name](args, Call())
        assert isinstance(answer, VerifyReport)
        return answer


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_the_version_names_software_node_and_cluster(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    assert await node.handlers[VERSION.name](Nothing(), Call()) == NodeVersion(
        software=__version__,
        protocol=PROTOCOL_VERSION,
        node_name="node1.example.com",
        cluster_uuid="cluster-1",
    )


async def test_memory_counts_the_page_cache_as_free_and_processors_are_counted(node: Node) -> None:
    answer = await node.info(NodeInfoArgs(hypervisors=["fake"]))
    assert (answer.memory_total, answer.memory_free, answer.memory_node) == (8000, 4000, 4000)
    assert (answer.cpu_total, answer.cpu_nodes, answer.cpu_sockets, answer.cpu_node) == (3, 2, 2, 1)
    assert (answer.boot_id, answer.time) == ("boot-1", node.clock.time())
    assert answer.hypervisor_versions == {"fake": "9.1"}
    assert answer.storage == []


async def test_usable_directories_report_their_space(node: Node) -> None:
    args = NodeInfoArgs(
        hypervisors=[],
        storage=[
            StorageUnit(kind="file", key=ROOT),
            StorageUnit(kind="sharedfile", key="/srv/not/allowed"),
            StorageUnit(kind="tape", key="unknown"),
        ],
    )
    (space,) = (await node.info(args)).storage
    real = os.statvfs(node.paths.below(ROOT))
    assert space.unit == StorageUnit(kind="file", key=ROOT)
    assert space.total == real.f_blocks * real.f_frsize // 2**20
    assert space.free <= space.total


async def test_a_hypervisor_is_asked_for_its_version_now_and_then(node: Node) -> None:
    args = NodeInfoArgs(hypervisors=["fake"])
    for _ in range(3):
        await node.info(args)
    assert node.hypervisor.asked == 1
    node.clock.advance(info.VERSION_LIFETIME_S)
    await node.info(args)
    assert node.hypervisor.asked == 2


async def test_a_hypervisor_that_cannot_say_its_version_does_not_hide_the_rest(node: Node) -> None:
    node.hypervisor.broken = True
    answer = await node.info(NodeInfoArgs(hypervisors=["fake", "xen"]))
    assert answer.hypervisor_versions == {"fake": "", "xen": ""}


@pytest.mark.virtual_time
async def test_verifying_names_the_states_of_old_masters(node: Node) -> None:
    preserved = node.paths.data / "state.db.aside-3-17"
    for name in (preserved.name, "state.db.aside-3-17-wal", "state.db", "state.db-wal"):
        (node.paths.data / name).write_text("")
    report = await node.verify(VerifyArgs(hypervisors=[]))
    assert report.preserved_states == [str(preserved)]
    assert msgspec.to_builtins(report)["states_aside"] == [str(preserved)]  # the name on the wire
    assert report.preserved_contents == {}
    for path in (node.paths.state, preserved):
        path.unlink()
    database = Database(node.paths.state, Limits())
    database.open("cluster-1", NodeUuid("node-1"))
    database.apply([(3, Transaction((Put(JOB_KIND, job_key(8), b"{}"),)))])
    kept = []
    database.begin_snapshot(
        lambda opened: kept.append(preserve_state(opened, node.paths.state, database.history, ZERO))
    )
    database.end_snapshot(History(Position(4, 1)))
    database.close()
    report = await node.verify(VerifyArgs(hypervisors=[]))
    assert report.preserved_states == [str(path) for path in kept]
    assert report.preserved_contents[str(kept[0])].endswith("only this file has jobs 8")


@pytest.mark.virtual_time
async def test_verification_reports_every_problem(node: Node) -> None:
    node.paths.run.rmdir()
    (node.paths.fake_hypervisor).mkdir(parents=True)
    (node.paths.fake_hypervisor / "fail-verify").write_text("no accelerator")
    node.paths.log.rmdir()
    report = await node.verify(
        VerifyArgs(
            hypervisors=["fake", "xen"],
            storage=[
                StorageUnit(kind="file", key=ROOT),
                StorageUnit(kind="sharedfile", key="/srv/other"),
            ],
            nodes=[
                ("node2", "192.0.2.2", 1811),
                ("node8", "192.0.2.8", 1811),
                ("node9", "192.0.2.9", 1811),
            ],
        )
    )
    assert report.hypervisor_problems == {
        "fake": ["no accelerator"],
        "xen": ["this node has no hypervisor xen"],
    }
    assert len(report.storage_problems) == 1
    assert report.storage_problems[0].startswith("sharedfile storage: /srv/other is not below")
    assert report.connection_problems == {
        "node8": "192.0.2.8:1811 cannot be reached: Connection refused",
        "node9": "192.0.2.9:1811 does not answer within 5 s",
    }
    assert report.writable_problems == [
        f"{node.paths.log} cannot be written: No such file or directory"
    ]
    assert (report.ssconf_position, report.certificate_not_after) == (42, 5.0)


async def test_a_good_node_has_no_problems(node: Node) -> None:
    report = await node.verify(
        VerifyArgs(
            hypervisors=["fake"],
            storage=[StorageUnit(kind="file", key=ROOT)],
            nodes=[("node2", "192.0.2.2", 1811)],
        )
    )
    assert node.connections == [("192.0.2.2", 1811)]
    assert report.hypervisor_problems == {"fake": []}
    assert not report.storage_problems
    assert not report.connection_problems
    assert not report.writable_problems


async def test_a_real_connection_is_made_and_a_refused_one_is_an_error() -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await info.connect("127.0.0.1", port)
    server.close()
    await server.wait_closed()
    with pytest.raises(OSError, match=str(port)):
        await info.connect("127.0.0.1", port)


def test_the_kernels_texts_are_read() -> None:
    assert parse_meminfo(MEMINFO) == (8000, 4000)
    assert parse_cpuinfo(CPUINFO) == (3, 2)
    assert parse_cpuinfo("processor : 0\n") == (1, 1)


def test_this_machine_can_be_read() -> None:
    host = Host()
    total, free = host.memory()
    assert 0 < free <= total
    assert min(host.cpus) >= 1
