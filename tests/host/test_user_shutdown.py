"""Real guests that shut themselves down, on a node and in a cluster."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.model.instance_spec import InstanceSpec
from tests.host.test_cluster_guest import console, options, status
from tests.support.kvm_nodes import Node, boot, nothing_is_left
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.tiny_guest import (
    build_tiny_guest,
    install,
    said,
    tiny_instance,
)

pytestmark = [pytest.mark.host, pytest.mark.timeout(180)]


def power_off(console_socket: Path) -> None:
    """What the guest's user types."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(console_socket))
        client.sendall(b"sync; sleep 1; poweroff -f\n")
        heard = b""
        while b"poweroff -f" not in heard and (more := client.recv(4096)):
            heard += more


async def state_is(node: Node, instance: InstanceSpec, wanted: str | None) -> None:
    for _ in range(600):
        if await node.state(instance) == wanted:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"it does not become {wanted}")


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
    async with asyncio.timeout(60):
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


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    guest = build_tiny_guest()
    with local_cluster("--hypervisor", "kvm", "--guest", str(guest), nodes=1) as made:
        yield made


def test_list_and_info_say_user_down_and_start_and_shutdown_do_what_they_say(
    cluster: LocalCluster,
) -> None:
    name = "web1.example.com"
    cluster.ok(
        "gnt-instance", "add", "-n", "node1", "-H", "kvm:user_shutdown=true", *options(), name,
        timeout_s=120,
    )  # fmt: skip
    log = console(cluster, name)
    for times in (1, 2):
        wait_until(lambda: "TINY READY" in said(log), "the guest boots", 60)
        power_off(console_socket(cluster, name))
        wait_until(lambda: status(cluster, name) == "USER_down", "USER_down", 60)
        assert cluster.value("instance", name, "admin_state") == "up"
        assert "USER_down" in cluster.ok("gnt-instance", "list", "-o", "status").out
        assert "actual state is user down" in cluster.ok("gnt-instance", "info", name).out
        if times == 1:
            cluster.ok("gnt-instance", "start", name, timeout_s=60)
            assert status(cluster, name) == "running"
    cluster.ok("gnt-instance", "shutdown", name)
    assert status(cluster, name) == "ADMIN_down"
    assert not cluster.machines()


def console_socket(cluster: LocalCluster, name: str) -> Path:
    """Where the guest's console listens: beside its log, on the same node."""
    (found,) = Path(cluster.cluster.master.root).parent.rglob(f"{console(cluster, name).stem}.s")
    return found
