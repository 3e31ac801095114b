"""A cluster whose state is in etcd, with real daemons: masters are elected by themselves, and lose nothing."""

import asyncio
import os
import random
import shutil
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ganeti.base.state_kinds import ETCD_SERVER
from ganeti.bootstrap.daemons import MASTERD, NODED
from ganeti.clients.luxi import LuxiClient
from ganeti.store.etcd.files import EtcdFiles
from ganeti.store.etcd.gateway import Gateway
from ganeti.store.etcd.messages import StatusAnswer
from ganeti.store.etcd.opening import open_gateway
from ganeti.store.etcd.settings import client_url, has_data
from ganeti.store.register import RegisterFile
from ganeti.store.settings import state_settings
from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.masters import (
    BUSY_S,
    DELAY,
    FAILOVER_S,
    NODES,
    FrozenMaster,
    Load,
    etcd_cluster,
    fail_over,
    first_job,
    is_follower,
    master_of,
    verified,
)
from tests.support.patience import patience
from tests.support.protected import Protected
from tests.support.shared_cluster import SharedCluster, shared_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.in_turn, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedCluster]:
    with shared_cluster(etcd_cluster) as made:
        yield made


@pytest.fixture
def cluster(shared: SharedCluster, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with shared.lent(request) as lent:
        yield lent


def epochs(cluster: LocalCluster) -> list[int]:
    """What the nodes' registers have promised."""
    registers = [RegisterFile(cluster.node(node).paths.register).read() for node in NODES]
    return [register.promised.epoch for register in registers if register]


def killed_under_load(cluster: LocalCluster, times: int, *, alone: int) -> list[float]:
    """Kill one master after the other; how long it took each time until the next acknowledged a job.

    Every `alone`-th stays away until then; the others are started again at once, as systemd does.
    """
    took: list[float] = []
    master = master_of(cluster)
    with Load(cluster) as load:
        for number in range(1, times + 1):
            stays_away = number % alone == 0
            before = max(epochs(cluster))
            time.sleep(0.2 + random.random() / 2)
            cluster.kill(MASTERD, master)
            died = time.monotonic()
            if not stays_away:
                cluster.start(MASTERD, master)
            killed, master = master, first_job(cluster, *NODES)
            took.append(time.monotonic() - died)
            assert max(epochs(cluster)) > before
            if stays_away:
                assert master != killed
                cluster.start(MASTERD, killed)
        load.judge(master_of(cluster))
    return took


@pytest.mark.requirement("G1", "G2", "G4", "G7", "G8", "G19")
def test_masters_killed_under_load_are_replaced_by_themselves(cluster: LocalCluster) -> None:
    took = killed_under_load(cluster, 3, alone=3)
    assert max(took) < (FAILOVER_S + BUSY_S) * patience()
    verified(cluster)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.requirement("G1", "G2", "G4", "G7", "G8", "G19")
def test_twenty_masters_killed_under_load_are_replaced_in_time(cluster: LocalCluster) -> None:
    assert max(killed_under_load(cluster, 20, alone=1)) < (FAILOVER_S + BUSY_S) * patience()
    assert max(killed_under_load(cluster, 20, alone=20)) < (FAILOVER_S + BUSY_S) * patience()


@pytest.mark.soak
@pytest.mark.requirement("G1", "G4", "F4", "F6")
def test_a_master_that_hangs_is_replaced_and_obeys_when_it_wakes(cluster: LocalCluster) -> None:
    master = master_of(cluster)
    frozen = FrozenMaster(cluster, master)
    stopped = [cluster.pid(name, master) for name in (MASTERD, NODED)]
    with Load(cluster) as load:
        try:
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            taken = first_job(cluster, *[node for node in NODES if node != master])
            with LuxiClient(cluster.node(taken).paths) as client:
                frozen.ask(client.call("SubmitJob", [DELAY]))
            time.sleep(0.5)
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        frozen.judge()
        wait_until(lambda: is_follower(cluster, master), "the old master obeys", BUSY_S)
        load.judge(master_of(cluster))


async def give_lead(cluster: LocalCluster, node: int) -> None:
    """Let the etcd server of a node lead the others."""
    status = await server_status(cluster, node)
    (leader,) = [
        one
        for one in NODES
        if (await server_status(cluster, one)).header.member_id == status.leader
    ]
    if leader != node:
        async with gateway_of(cluster) as gateway:
            url = client_url(cluster.node(leader).address)
            await gateway.move_leader(url, status.header.member_id)


async def server_status(cluster: LocalCluster, node: int) -> StatusAnswer:
    """What the etcd server of a node says of itself."""
    async with gateway_of(cluster) as gateway:
        return await gateway.status(client_url(cluster.node(node).address))


@asynccontextmanager
async def gateway_of(cluster: LocalCluster) -> AsyncIterator[Gateway]:
    paths = cluster.node(1).paths
    gateway = open_gateway(paths, state_settings(paths))
    try:
        yield gateway
    finally:
        await gateway.close()


@pytest.mark.requirement("G1", "G2")
def test_a_machine_that_dies_with_its_server_of_etcd_is_replaced(cluster: LocalCluster) -> None:
    master = master_of(cluster)
    asyncio.run(give_lead(cluster, master))

    def is_led_by_another() -> bool:
        status = asyncio.run(server_status(cluster, master))
        return status.leader not in (0, status.header.member_id)

    wait_until(is_led_by_another, "etcd is led by another node than the master's", BUSY_S)
    with Load(cluster) as load:
        for name in (MASTERD, ETCD_SERVER.daemon):
            cluster.kill(name, master)
        first_job(cluster, *[node for node in NODES if node != master])
        cluster.start(ETCD_SERVER.daemon, master)
        cluster.start(MASTERD, master)
        load.judge(master_of(cluster))
    wait_until(lambda: is_follower(cluster, master), "the old master follows", BUSY_S)


@pytest.mark.requirement("G19")
def test_the_mastership_is_handed_over_when_that_is_asked_for(cluster: LocalCluster) -> None:
    master = master_of(cluster)
    target = next(node for node in NODES if node != master)
    with Load(cluster) as load:
        assert "epoch" in fail_over(cluster, target)
        assert master_of(cluster) == target
        load.judge(target)
    other = next(node for node in NODES if node not in (master, target))
    done = cluster.run(
        "gnt-cluster", "master-failover", "--no-voting", "--yes-do-it", node=other, timeout_s=95
    )
    assert done.status != 0
    assert "forced campaign without etcd's quorum does not exist" in done.out + done.err


@pytest.mark.requirement("G22")
def test_a_candidate_that_is_none_any_more_leaves_etcd_and_comes_back(
    cluster: LocalCluster,
) -> None:
    master = master_of(cluster)
    other = next(node for node in NODES if node != master)
    name = cluster.node(other).name
    done = cluster.run(
        "gnt-node", "modify", "--master-candidate=no", "--auto-promote", name, node=master
    )
    assert done.status == 0, done.out + done.err
    paths = cluster.node(other).paths
    wait_until(lambda: not EtcdFiles(paths).directory.exists(), "its data is gone", BUSY_S)
    assert not Path(paths.state_settings).exists()
    done = cluster.run("gnt-node", "modify", "--master-candidate=yes", name, node=master)
    assert done.status == 0, done.out + done.err
    assert EtcdFiles(paths).data.exists()
    wait_until(lambda: is_follower(cluster, other), "it follows again", BUSY_S)


@pytest.mark.requirement("G19")
def test_a_master_that_is_stopped_in_order_is_followed_by_another_and_follows_it(
    cluster: LocalCluster,
) -> None:
    master = master_of(cluster)
    with Load(cluster) as load:
        begun = time.monotonic()
        cluster.stop(MASTERD, master)
        first_job(cluster, *[node for node in NODES if node != master])
        assert time.monotonic() - begun < (FAILOVER_S + BUSY_S) * patience()
        # A candidate without a master daemon is none: the new master starts it there.
        wait_until(lambda: is_follower(cluster, master), "the former master follows", BUSY_S)
        load.judge(master_of(cluster))


def named(cluster: LocalCluster, node: int, said: list[str]) -> bool:
    """Whether verify names the server of etcd that is killed, and what helps; all that it `said`."""
    # A master that was elected a moment ago starts the servers of all candidates, each once.
    if cluster.runs(ETCD_SERVER.daemon, node):
        cluster.kill(ETCD_SERVER.daemon, node)
    name, master = cluster.node(node).name, master_of(cluster)
    done = cluster.run("gnt-cluster", "verify", "--error-codes", node=master)
    said.append(f"node{master}: {done}")
    wanted = (
        f"ERROR:ENODESETUP:node:{name}:its etcd server does not answer",
        f"--master-candidate=no --auto-promote {name}",
    )
    return done.status != 0 and all(words in done.out for words in wanted)


@pytest.mark.requirement("G1", "G22")
def test_a_server_that_is_down_is_named_and_one_without_its_data_is_replaced(
    cluster: LocalCluster,
) -> None:
    master = master_of(cluster)
    other = next(node for node in NODES if node != master)
    paths, said = cluster.node(other).paths, list[str]()
    with Load(cluster) as load:
        try:
            wait_until(lambda: named(cluster, other, said), "the server is named", BUSY_S)
        except AssertionError as err:
            pytest.fail(f"{err}; verify said last: {said[-1]}")
        shutil.rmtree(EtcdFiles(paths).data)
        wait_until(lambda: has_data(paths), "another member is in its place", BUSY_S)
        verified(cluster)
        load.judge(master_of(cluster))
    # It counts again: the state is not lost with one of the others.
    cluster.kill(ETCD_SERVER.daemon, master)
    cluster.kill(MASTERD, master)
    first_job(cluster, *[node for node in NODES if node != master])
    cluster.start(ETCD_SERVER.daemon, master)
    cluster.start(MASTERD, master)
    verified(cluster)


@pytest.mark.requirement("D7", "D10", "D12")
def test_guests_of_a_master_without_power_run_elsewhere_once(cluster: LocalCluster) -> None:
    lost = master_of(cluster)
    others = [node for node in NODES if node != lost]
    guests = Protected(cluster)
    guests.add(3, lost, master=lost)
    guests.switch_off(lost)
    assert guests.wait_until_all_run() < 60
    master = master_of(cluster, *others)
    shown = guests.shown(master, lost)
    assert (shown["state"], "confirms that the power is off" in shown["why"]) == ("fenced", True)
    guests.switch_on(lost)
    guests.wait_until_back(lost, master)
    guests.wait_until_all_run()
    assert all(len(nodes) == 1 and lost not in nodes for nodes in guests.seen.values())
    guests.remove(master)
