"""The watchdog process beside a real node daemon: it is started by heartbeats, and outlives the daemon."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ganeti.base.clock import BootClock
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import GUARD, NODED
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.recovery import Token
from ganeti.node.watchdog_device import DEVICE, DISARMED
from ganeti.recovery.times import LEASE_S
from ganeti.rpc.client import RpcClient
from ganeti.rpc.procedures.instances import INSTANCE_START, StartArgs
from ganeti.rpc.procedures.recovery import HEARTBEAT, HeartbeatArgs, HeartbeatResult
from tests.cluster.nodes import Nodes, TestNode
from tests.support.patience import patience

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.requirement("D7"),
]

WEB = InstanceSpec(
    name="web1.example",
    uuid="55555555-5555-4555-8555-555555555555",
    hypervisor="fake",
    os="",
    memory=128,
    vcpus=1,
    hvparams={},
    is_protected=True,
)


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[tuple[TestNode, str]]:
    nodes = Nodes(tmp_path)
    try:
        node, founded = await nodes.cluster()
        device = node.paths.below(DEVICE)
        device.parent.mkdir(parents=True, exist_ok=True)
        device.touch()
        yield node, founded.node_uuid
    finally:
        await nodes.close()


async def beat(
    node: TestNode, client: RpcClient, token: Token | None = None, *protected: str
) -> HeartbeatResult:
    args = HeartbeatArgs(token=token, protected=protected)
    return await client.call(node.as_object(), HEARTBEAT, args)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30 * patience()):
        while not condition():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)


def guest(paths: Paths) -> Path:
    return paths.fake_hypervisor / f"{WEB.uuid}.json"


async def test_guests_of_a_node_whose_daemon_was_killed_end_with_the_lease(
    master: tuple[TestNode, str],
) -> None:
    node, uuid = master
    device = node.paths.below(DEVICE)
    async with node.client(1, uuid) as client:
        fresh = (await beat(node, client)).token
        token = Token(fresh.boot_id, fresh.sent_at - LEASE_S / 2)
        assert node.daemons.status(GUARD).process is None
        await beat(node, client, token)
        await client.call(node.as_object(), INSTANCE_START, StartArgs(instance=WEB))
        assert guest(node.paths).exists()
        answer = await beat(node, client, None, WEB.uuid)
        assert (answer.is_armed, answer.why_unarmed) == (True, "")
    process = node.daemons.status(NODED).process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    await until(lambda: not guest(node.paths).exists())
    assert 0 <= BootClock().monotonic() - (token.sent_at + LEASE_S) < 2.0
    # The next daemon goes on: the list is kept until the master says otherwise.
    await node.daemons.start(NODED, ["--bind-address", node.address])
    async with node.client(1, uuid) as client:
        fresh = (await beat(node, client)).token
        assert (await beat(node, client, fresh)).is_armed
        assert not device.read_bytes().endswith(DISARMED)
        await node.daemons.stop(GUARD)
    assert device.read_bytes().endswith(DISARMED)
