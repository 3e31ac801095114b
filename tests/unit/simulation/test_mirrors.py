"""Mirrored disks in the simulation: copies, links and synchronisation, and the real jobs on them."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from ganeti.base.errors import StorageError
from ganeti.jobs.view import JobView
from ganeti.model.instance_spec import DiskPeer, DiskSpec
from ganeti.model.names import AdminState, DiskRole, JobStatus
from ganeti.model.opcodes.instance import OpInstanceMigrate
from ganeti.model.opcodes.instance_changes import OpInstanceActivateDisks, OpInstanceReplaceDisks
from ganeti.model.opcodes.mirrors import OpInstanceDiskStatus
from ganeti.model.opcodes.moving import OpInstanceFailover
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.simulation.cluster import SimulatedCluster
from ganeti.simulation.durations import Durations
from ganeti.simulation.nodes.mirrors import Mirrors
from ganeti.simulation.trace import Kind
from tests.unit.whatif.small_cluster import small_source

MIB_S, WRITES = 10.0, 1.0


@dataclass
class Pairs:
    """Mirrors between nodes that may be lost."""

    lost: set[str] = field(default_factory=set)
    filled: list[tuple[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mirrors = Mirrors(
            rate_mib_s=MIB_S,
            write_mib_s=WRITES,
            reaches=lambda one, other: not self.lost & {one, other},
            in_sync=lambda _disk, node: self.filled.append(
                (node, asyncio.get_running_loop().time())
            ),
        )

    def disk(self, name: str, node: str, other: str, *, offline: bool = False) -> DiskSpec:
        peer = DiskPeer(name=other, address="", part=(), offline=offline)
        return DiskSpec(
            uuid=name, index=0, size=100, template="drbd", logical_id=(1,), part=(0,), peers=(peer,)
        )

    def pair(self, name: str = "disk", nodes: Iterable[str] = "ab") -> None:
        """Have both copies open and in sync; the first one is written."""
        one, other = nodes
        for role, node, peer in ((DiskRole.SECONDARY, other, one), (DiskRole.PRIMARY, one, other)):
            disk = self.disk(name, node, peer)
            self.mirrors.open(self.mirrors.add(node, disk, is_filled=True), disk, role)

    def lose(self, node: str) -> None:
        self.lost.add(node)
        for copy in self.mirrors.of_node(node):
            self.mirrors.close(copy)


@pytest.mark.virtual_time
async def test_copy_that_missed_writes_is_filled_at_the_rate() -> None:
    pairs = Pairs()
    pairs.pair()
    pairs.lose("b")
    await asyncio.sleep(50)
    pairs.lost.clear()
    disk = pairs.disk("disk", "b", "a")
    copy = pairs.mirrors.add("b", disk)
    pairs.mirrors.open(copy, disk, DiskRole.SECONDARY)
    status = pairs.mirrors.status(copy)
    assert (status.up_to_date, status.consistent, status.connected) == (False, False, True)
    await asyncio.sleep(2.5)
    assert pairs.mirrors.status(copy).percent == 50.0
    await asyncio.sleep(2.6)
    [(node, at)] = pairs.filled
    assert (node, at) == ("b", 55.0)
    assert pairs.mirrors.status(copy).in_sync


@pytest.mark.virtual_time
async def test_synchronisations_of_a_node_share_its_rate_and_continue_where_they_were() -> None:
    pairs = Pairs()
    for name in ("one", "two"):
        for node, other in (("a", "b"), ("b", "a")):
            pairs.mirrors.add(node, pairs.disk(name, node, other))
        for node, other, role in (("b", "a", DiskRole.SECONDARY), ("a", "b", DiskRole.PRIMARY)):
            disk = pairs.disk(name, node, other)
            pairs.mirrors.open(pairs.mirrors.add(node, disk), disk, role)
    await asyncio.sleep(10)
    pairs.lost.add("b")
    pairs.mirrors.settle_all()
    await asyncio.sleep(10)
    pairs.lost.clear()
    pairs.mirrors.settle_all()
    await asyncio.sleep(30)
    # 200 MiB at 10 MiB/s; while the link was cut, the guests wrote 10 MiB to each of two disks.
    assert [node for node, _ in pairs.filled] == ["b", "b"]
    assert pairs.filled[-1][1] == pytest.approx(32.0)


@pytest.mark.virtual_time
async def test_copies_that_were_both_written_drop_their_connection() -> None:
    pairs = Pairs()
    pairs.pair()
    pairs.lose("a")
    dead = pairs.disk("disk", "b", "a", offline=True)
    copy = pairs.mirrors.add("b", dead)
    pairs.mirrors.open(copy, dead, DiskRole.PRIMARY)
    pairs.lost = {"b"}
    other = pairs.disk("disk", "a", "b", offline=True)
    pairs.mirrors.open(pairs.mirrors.add("a", other), other, DiskRole.PRIMARY)
    pairs.lost.clear()
    pairs.mirrors.settle_all()
    assert pairs.mirrors.status(copy).dropped
    pairs.mirrors.discard(pairs.mirrors.add("a", other), other)
    assert pairs.mirrors.status(copy).connected
    await asyncio.sleep(20)
    assert [node for node, _ in pairs.filled] == ["a"]


@pytest.mark.virtual_time
async def test_disk_is_not_written_on_two_nodes_or_without_word_from_the_other() -> None:
    pairs = Pairs()
    pairs.pair()
    disk = pairs.disk("disk", "b", "a")
    copy = pairs.mirrors.add("b", disk)
    with pytest.raises(StorageError, match="a writes to it"):
        pairs.mirrors.open(copy, disk, DiskRole.PRIMARY)
    pairs.lost.add("a")
    pairs.mirrors.settle_all()
    with pytest.raises(StorageError, match="a does not answer"):
        pairs.mirrors.open(copy, disk, DiskRole.PRIMARY)


# The jobs of administrators


def cluster() -> SimulatedCluster:
    return SimulatedCluster(small_source().objects, seed=1, durations=Durations(resync_mib_s=50.0))


async def done(cluster: SimulatedCluster, *ops: object) -> JobView:
    view = await cluster.finished(await cluster.submit(*ops))  # type: ignore[arg-type]  # opcodes
    assert view.status is JobStatus.SUCCESS, view.ops[0].result
    return view


async def states(cluster: SimulatedCluster) -> list[str]:
    view = await done(cluster, OpInstanceDiskStatus(instance_name="web2"))
    return [f"{row['node']} {row['status']}" for row in view.ops[0].result]


def test_mirrored_instance_migrates_and_fails_over_and_is_mirrored_again() -> None:
    async def happen(cluster: SimulatedCluster) -> None:
        assert await states(cluster) == ["node2 ok", "node1 ok"]
        await done(cluster, OpInstanceMigrate(instance_name="web2"))
        assert await states(cluster) == ["node1 ok", "node2 ok"]
        assert cluster.trace.downtimes() == []
        cluster.fail_node("node2")
        await cluster.run_for(10)
        await done(cluster, OpNodeSetParams(node_name="node2", offline=True))
        assert (await states(cluster))[0] == "node1 connecting"
        await cluster.run_for(300)
        cluster.nodes["node2"].get_power()
        await done(cluster, OpNodeSetParams(node_name="node2", offline=False))
        await done(cluster, OpInstanceActivateDisks(instance_name="web2", wait_for_sync=True))
        assert await states(cluster) == ["node1 ok", "node2 ok"]
        assert [one.node for one in cluster.trace.of(Kind.DISK_IN_SYNC)] == ["node2"]

    cluster().run(happen)


def test_mirrored_instance_of_a_dead_node_is_started_from_the_other_copy() -> None:
    async def happen(cluster: SimulatedCluster) -> None:
        cluster.fail_node("node2")
        await cluster.run_for(60)
        await done(cluster, OpNodeSetParams(node_name="node2", offline=True))
        await done(cluster, OpInstanceFailover(instance_name="web2", ignore_consistency=True))
        web2 = cluster.snapshot.instance_by_name("web2")
        assert web2 is not None
        assert (web2.admin_state, web2.uuid in cluster.nodes["node1"].guests) == (
            AdminState.UP,
            True,
        )
        await done(
            cluster,
            OpInstanceReplaceDisks(
                instance_name="web2",
                mode="replace_new_secondary",
                remote_node="node3",
                ignore_ipolicy=True,
            ),
        )
        assert await states(cluster) == ["node1 ok", "node3 ok"]

    cluster().run(happen)
