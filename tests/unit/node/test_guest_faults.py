"""Faults of guests as a node reports them."""

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.recovery import GuestFault
from ganeti.node.guest_faults import MISSING_S, GuestFaults
from ganeti.node.instance_locks import InstanceLocks
from tests.support.predictable import FrozenClock

WEB1 = InstanceSpec(
    name="web1", uuid="u1", hypervisor="fake", os="o", memory=128, vcpus=2, hvparams={}
)
CRASHED = {"u1": GuestFault.CRASHED}


class Reporting(FakeHypervisor):
    """Has one look that takes until `go`."""

    def __init__(self, paths: Paths) -> None:
        super().__init__(paths)
        self.go, self.looks = asyncio.Event(), 0

    async def look(self, wanted: Collection[str]) -> None:
        self.looks += 1
        await self.go.wait()
        raise HypervisorError("a guest does not answer")


class Node:
    """A node with the simulated hypervisor."""

    def __init__(self, paths: Paths) -> None:
        self.paths, self.clock, self.locks = paths, FrozenClock(), InstanceLocks()
        self.fake = Reporting(paths)
        self.fake.go.set()
        self.faults = GuestFaults({"fake": self.fake}, self.locks, self.clock)

    def lose(self) -> None:
        """The guest ends, and nobody asked for it."""
        (self.paths.fake_hypervisor / "u1.json").unlink()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(Paths(tmp_path))


async def test_lost_guest_is_reported_until_it_runs_again(node: Node) -> None:
    await node.fake.start(WEB1, [])
    assert node.faults(["u1"]) == {}
    node.lose()
    assert node.faults(["u1"]) == CRASHED
    assert node.faults(["u1"]) == CRASHED
    await node.fake.start(WEB1, [])
    assert node.faults(["u1"]) == {}
    await node.faults.close()


async def test_guest_that_a_call_works_on_is_not_reported(node: Node) -> None:
    await node.fake.start(WEB1, [])
    node.faults(["u1"])
    node.lose()
    async with node.locks.of("web1"):
        assert node.faults(["u1"]) == {}
    assert node.faults(["u1"]) == CRASHED
    await node.faults.close()


async def test_stopped_guest_is_reported_only_after_a_while(node: Node) -> None:
    await node.fake.start(WEB1, [])
    node.faults(["u1"])
    await node.fake.stop(WEB1, 0)
    assert node.faults(["u1"]) == {}
    node.clock.advance(MISSING_S - 1)
    assert node.faults(["u1"]) == {}
    node.clock.advance(1)
    assert node.faults(["u1"]) == CRASHED
    assert node.faults([]) == {}
    assert node.faults(["u1"]) == {}  # the time begins again
    await node.faults.close()


async def test_slow_look_neither_delays_an_answer_nor_is_repeated(node: Node) -> None:
    node.fake.go.clear()
    await node.fake.start(WEB1, [])
    for _ in range(3):
        assert node.faults(["u1"]) == {}
        await asyncio.sleep(0)
    assert node.fake.looks == 1
    node.fake.go.set()
    await asyncio.sleep(0.01)
    assert node.faults(["u1"]) == {}
    await asyncio.sleep(0)
    assert node.fake.looks == 2
    await node.faults.close()
