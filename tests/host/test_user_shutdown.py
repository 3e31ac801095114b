"""Real guests that shut themselves down, on a node; in a cluster: tests/host/test_cluster_guest.py."""

import asyncio
from pathlib import Path

import pytest

from ganeti.model.instance_spec import InstanceSpec
from tests.support.kvm_nodes import Node, boot, nothing_is_left
from tests.support.patience import patience
from tests.support.tiny_guest import install, power_off, tiny_instance

pytestmark = [pytest.mark.host, pytest.mark.timeout(180)]


async def state_is(node: Node, instance: InstanceSpec, wanted: str | None) -> None:
    for _ in range(600):
        if await node.state(instance) == wanted:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"it does not become {wanted}")


@pytest.mark.soak
async def test_a_guest_that_shut_itself_down_is_known_as_such_until_it_is_started_or_stopped(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest, user_shutdown=True)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    first = node.record(instance).pid
    await asyncio.to_thread(power_off, node.files(instance).console)
    await state_is(node, instance, "shutdown")

    await boot(node, instance, disk)
    assert await node.state(instance) == "running"
    assert node.record(instance).pid != first

    await asyncio.to_thread(power_off, node.files(instance).console)
    await state_is(node, instance, "shutdown")
    await node.driver.stop(instance, 60)
    assert await node.state(instance) is None
    assert nothing_is_left(node, instance)


async def test_a_shutdown_that_we_ask_for_ends_the_process_without_force(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest, user_shutdown=True)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    async with asyncio.timeout(60 * patience()):
        await node.driver.stop(instance, 120)
    assert nothing_is_left(node, instance)


async def test_without_the_parameter_a_guest_that_shuts_itself_down_is_gone(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    await asyncio.to_thread(power_off, node.files(instance).console)
    await state_is(node, instance, None)
    assert nothing_is_left(node, instance)
