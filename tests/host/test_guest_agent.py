"""The agent in a real guest, over a real channel: what it says, its shutdown, and a freeze."""

import asyncio
from pathlib import Path

import pytest

from ganeti.base.errors import HypervisorError
from tests.support.kvm_nodes import Node, boot, migrate, nothing_is_left
from tests.support.patience import patience
from tests.support.tiny_guest import disk_heartbeats, install, tiny_instance

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(180),
    pytest.mark.requirement("A64"),
]


async def test_guest_agent_answers_before_and_after_a_move(
    nodes: list[Node], guest: Path, disk: Path
) -> None:
    """By a QEMU without rights: the channel's socket is the node daemon's."""
    source, target = nodes
    instance = tiny_instance(
        guest,
        template="sharedfile",
        use_guest_agent=True,
        security_model="user",
        security_domain="nobody",
        use_chroot=True,
    )
    install(guest, disk, instance.name)
    await boot(source, instance, disk)
    for _ in range(3):  # each opens the channel and closes it
        found = await source.driver.agents.agent_info(instance)
        assert found is not None
        assert (found.host_name, found.os) == (instance.name, "Ganeti's tiny guest")
        assert found.kernel[0].isdigit()
        [loopback] = found.interfaces
        assert (loopback.name, loopback.addresses[0]) == ("lo", "127.0.0.1/8")
    await migrate(source, target, instance, disk)
    moved = await target.driver.agents.agent_info(instance)
    assert moved == found
    assert await source.driver.agents.agent_info(instance) is None


async def test_a_frozen_guest_writes_nothing_until_it_is_thawed_or_its_time_is_over(
    node: Node, guest: Path, disk: Path
) -> None:
    """And by its agent it shuts down, although it ignores the power button."""
    instance = tiny_instance(guest, use_guest_agent=True)
    install(guest, disk, instance.name, ignore_acpi="yes")
    await boot(node, instance, disk)
    await node.beats(instance)
    assert await node.driver.agents.freeze(instance, 60) == 1
    assert await node.driver.agents.freeze(instance, 60) == 0  # it stands still already
    frozen = disk_heartbeats(disk)
    await asyncio.sleep(1)
    assert disk_heartbeats(disk) == frozen
    assert await node.driver.agents.thaw(instance) == 1
    await node.beats(instance)
    assert len(disk_heartbeats(disk)) > len(frozen)
    assert await node.driver.agents.thaw(instance) == 0

    await node.driver.agents.freeze(instance, 0.1)
    await asyncio.sleep(0.2)
    await node.driver.upkeep.look_after()
    await node.beats(instance)

    loop = asyncio.get_running_loop()
    began = loop.time()
    await node.driver.stop(instance, 120)
    assert loop.time() - began < 60 * patience()
    assert nothing_is_left(node, instance)
    assert "GANETI-TINY SHUTDOWN by its agent" in node.console(instance).read_text()


async def test_a_guest_without_an_agent_is_no_worse_off(
    node: Node, guest: Path, disk: Path
) -> None:
    """It has the channel, and nobody listens there."""
    instance = tiny_instance(guest, use_guest_agent=True)
    await node.driver.start(instance, [str(disk)], paused=True)
    assert await node.driver.agents.agent_info(instance) is None
    with pytest.raises(HypervisorError, match="agent did not answer"):
        await node.driver.agents.freeze(instance, 60)
    await node.driver.stop(instance, 0)
