"""A real guest that writes while its disks are copied: nothing changes meanwhile, and all fits together."""

import asyncio
from pathlib import Path

import pytest

from ganeti.hypervisor.abilities import Held
from ganeti.model.names import Consistency
from tests.support.kvm_nodes import Node, boot
from tests.support.tiny_guest import (
    are_consecutive,
    disk_heartbeats,
    install,
    tiny_instance,
)

pytestmark = [pytest.mark.host, pytest.mark.timeout(180), pytest.mark.requirement("G11")]


@pytest.mark.parametrize("has_agent", [True, False])
async def test_a_held_guest_writes_nothing_and_then_goes_on(
    node: Node, guest: Path, disk: Path, *, has_agent: bool
) -> None:
    instance = tiny_instance(guest, use_guest_agent=has_agent)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    await node.beats(instance)
    if has_agent:
        assert await node.driver.agents.agent_info(instance) is not None
    copies: list[bytes] = []
    taken: list[Held] = []
    for _ in range(3):
        async with node.driver.holding.held(instance, 60) as held:
            assert await node.state(instance) == "paused"
            first = disk.read_bytes()
            await asyncio.sleep(0.5)
            assert disk.read_bytes() == first
        taken.append(held)
        copies.append(first)
        await node.beats(instance)
        assert await node.state(instance) == "running"
    wanted = Consistency.AGENT if has_agent else Consistency.CRASH
    assert [one.consistency for one in taken] == [wanted] * 3
    lengths = []
    for number, content in enumerate(copies):
        copy = disk.with_name(f"copy{number}")
        copy.write_bytes(content)
        beats = sorted(disk_heartbeats(copy))
        assert are_consecutive(beats)
        lengths.append(beats[-1])
    assert lengths == sorted(set(lengths)), "the guest went on after each"
    assert max(disk_heartbeats(disk)) > lengths[-1]
    await node.driver.stop(instance, 0)


async def test_a_daemon_that_dies_while_it_holds_a_guest_leaves_it_running(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    files = node.files(instance)
    found = node.driver.holding.guests.here(instance)
    node.driver.holding.guests.change(found, resume_at=2**40)
    await node.ask(instance)("stop")
    await node.driver.upkeep.look_after()
    assert await node.state(instance) == "paused"
    await node.driver.upkeep.holding.resume_in_time(files, at_once=True)
    assert await node.state(instance) == "running"
    await node.beats(instance)
    await node.driver.stop(instance, 0)
