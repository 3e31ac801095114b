"""The node that keeps memory free: settings from its files, guests of its drivers, one step at a time."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.abilities import GuestAmount, Options, SharesMemory
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.node.instance_locks import InstanceLocks
from ganeti.node.memory_policy import LOOK_EVERY_S, MemoryPolicy

pytestmark = pytest.mark.virtual_time


class Guests(SharesMemory):
    """Guests that follow at once; the node's free memory is what they leave."""

    def __init__(self, total: int, **memory: int) -> None:
        self.total, self.memory, self.before = total, memory, dict(memory)
        self.everyone: list[bool] = []
        self.refuses = ""
        self.goals: list[int] = []

    @property
    def free(self) -> int:
        return self.total - sum(self.memory.values())

    async def amounts(self, *, everyone: bool) -> Sequence[GuestAmount]:
        self.everyone.append(everyone)
        return [
            GuestAmount(uuid=name, name=name, memory=memory, before=self.before[name])
            for name, memory in self.memory.items()
            if everyone or memory != self.before[name]
        ]

    async def set_share(self, uuid: str, memory: int, goal: int) -> None:
        if self.refuses == uuid:
            raise HypervisorError("the monitor is silent")
        self.memory[uuid] = memory
        self.goals.append(goal)


class Driver(FakeHypervisor):
    """A driver with such guests."""

    shares: Guests

    @property
    def options(self) -> Options:
        return Options(shares=self.shares)


class Node:
    def __init__(self, root: Path, guests: Guests) -> None:
        self.paths, self.guests, self.locks = Paths(root), guests, InstanceLocks()
        driver = Driver(self.paths)
        driver.shares = guests
        self.policy = MemoryPolicy(
            self.paths,
            {"fake": driver, "plain": FakeHypervisor(self.paths)},
            self.locks,
            node_name=lambda: "node1",
            free_mib=lambda: guests.free,
        )

    def configure(self, goal: int, **minimums: int) -> None:
        self.paths.ssconf.mkdir(parents=True, exist_ok=True)
        lines = {
            "memory_goals": [f"node1 {goal}", "node2 99999"] if goal else [],
            "memory_minimums": [f"{name} {mib}" for name, mib in minimums.items()],
        }
        for name, content in lines.items():
            text = "".join(f"{line}\n" for line in content)
            (self.paths.ssconf / f"ssconf_{name}").write_text(text)

    async def steps(self, count: int = 30) -> None:
        for _ in range(count):
            await self.policy.step()


async def test_guests_give_memory_under_pressure_and_get_it_back(tmp_path: Path) -> None:
    guests = Guests(4000, a=2000, b=1000, fixed=500)
    node = Node(tmp_path, guests)
    node.configure(1000, a=1000, b=500)
    await node.steps()
    assert 990 <= guests.free <= 1000
    assert guests.memory["fixed"] == 500, "its minimum is unknown, so it gives nothing"
    assert 2000 - guests.memory["a"] > 1000 - guests.memory["b"] > 0
    assert set(guests.goals) == {1000}
    del guests.memory["fixed"]  # it has ended, but that is within the margin
    before = dict(guests.memory)
    guests.total -= 300
    await node.steps()
    assert guests.memory == before
    guests.total += 2000
    await node.steps()
    assert guests.memory == {"a": 2000, "b": 1000}


async def test_a_node_without_a_goal_asks_only_lowered_guests_and_gives_back(
    tmp_path: Path,
) -> None:
    guests = Guests(4000, a=2000, b=1000)
    node = Node(tmp_path, guests)
    await node.steps(1)  # it has no files yet
    node.configure(2000, a=500, b=500)
    await node.steps()
    assert guests.memory["a"] < 2000
    guests.everyone.clear()
    node.configure(0)
    await node.steps()
    assert (guests.memory, set(guests.everyone)) == ({"a": 2000, "b": 1000}, {False})


async def test_a_guest_that_is_being_changed_or_fails_does_not_hinder_others(
    tmp_path: Path,
) -> None:
    guests = Guests(4000, a=2000, b=1000, c=1000)
    node = Node(tmp_path, guests)
    node.configure(500, a=500, b=500, c=500)
    guests.refuses = "a"
    async with node.locks.of("b"):
        await node.steps(1)
    assert guests.memory["c"] < 1000
    assert (guests.memory["a"], guests.memory["b"]) == (2000, 1000)


async def test_it_looks_again_after_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guests = Guests(1000, a=1000)
    node = Node(tmp_path, guests)
    node.configure(500, a=500)
    (node.paths.ssconf / "ssconf_memory_goals").write_bytes(b"node1 \xff")
    running = asyncio.create_task(node.policy.run())
    await asyncio.sleep(3 * LOOK_EVERY_S + 1)
    assert caplog.text.count("keeping memory free") == 1
    node.configure(500, a=500)
    await asyncio.sleep(2 * LOOK_EVERY_S)
    assert guests.memory["a"] < 1000
    running.cancel()
