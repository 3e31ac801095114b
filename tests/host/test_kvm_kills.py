"""The node daemon killed (SIGKILL) before and after questions to real QEMU processes; a new one puts all in order.

`tests/unit/hypervisor/kvm/test_killed.py` has every question, with a monitor that is played; here are
those after which QEMU is another one, and in the soak test every question, too.
"""

import secrets
import subprocess
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ganeti.hypervisor.kvm.network import tap_name
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.rpc.procedures.migration import Incoming, MigrationEnd, MigrationResult
from tests.support.killed_daemons import Act, Daemons, Kill, each, numbered
from tests.support.kvm_nodes import READY, Node, accept, nothing_is_left, send
from tests.support.tiny_guest import install, make_disk, tiny_instance, wait_for_text

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(300),
    pytest.mark.requirement("G5", "G11", "F20", "F23"),
]


@pytest.fixture
def nodes(tmp_path: Path, acceleration: bytes) -> Iterator[tuple[Daemons, Daemons]]:
    """Two nodes that share this host; whatever they still run at the end is ended."""
    made = (Daemons(tmp_path / "a", acceleration), Daemons(tmp_path / "b", acceleration))
    yield made
    for daemons in made:
        daemons.end_guests()


@pytest.fixture
def bridge() -> Iterator[str]:
    """A bridge of this host, on which nothing else is."""
    name = f"gt{secrets.token_hex(4)}"
    subprocess.run(["ip", "link", "add", name, "up", "type", "bridge"], check=True)
    yield name
    subprocess.run(["ip", "link", "delete", name], check=True)


@dataclass(frozen=True)
class Scene:
    """An instance with its disk, another disk, and a NIC of a bridge."""

    instance: InstanceSpec
    system: Path
    other: DiskSpec
    file: Path
    nic: NicSpec

    async def start(self, node: Node) -> None:
        await node.driver.start(self.instance, [str(self.system)])

    async def boot(self, node: Node) -> None:
        await self.start(node)
        await wait_for_text(node.console(self.instance), READY)

    async def stop(self, node: Node) -> None:
        await node.driver.stop(self.instance, 0)

    async def plug(self, node: Node) -> None:
        await node.driver.hotplug.add_disk(self.instance, self.other, str(self.file))
        await node.driver.hotplug.add_nic(self.instance, self.nic)

    async def unplug(self, node: Node) -> None:
        await node.driver.hotplug.remove_disk(self.instance, self.other)
        await node.driver.hotplug.remove_nic(self.instance, self.nic)

    async def settle(self, node: Node) -> None:
        await node.driver.migration_info(self.instance)

    async def state(self, node: Node) -> str | None:
        return await node.state(self.instance)

    async def devices(self, node: Node) -> list[str]:
        """The kinds of what was plugged in and QEMU has, the record's and the host's beside it."""
        found = await node.ask(self.instance)("qom-list", {"path": "/machine/peripheral"})
        own = f"disk_{self.instance.disks[0].uuid.replace('-', '')[:24]}"
        names = {str(one["name"]) for one in found} - {own}
        kinds = {name.partition("_")[0] for name in names if name.startswith(("disk_", "nic_"))}
        spec = node.record(self.instance).instance
        recorded = {"disk"} if len(spec.disks) > 1 else set()
        recorded |= {"nic"} if spec.nics else set()
        assert recorded == kinds
        tap = Path("/sys/class/net") / tap_name(node.paths.root, self.nic)
        assert tap.exists() == ("nic" in kinds)
        nodes = await node.ask(self.instance)("query-named-block-nodes")
        assert (str(self.file) in str(nodes) or "/dev/fdset/" in str(nodes)) == ("disk" in kinds)
        return sorted(kinds)


@pytest.fixture
def scene(tmp_path: Path, guest: Path, bridge: str) -> Scene:
    instance = tiny_instance(guest, template="sharedfile")
    system = make_disk(tmp_path / "system")
    install(guest, system, instance.name)
    other = DiskSpec(
        uuid=str(uuid.uuid4()), index=1, size=8, template="sharedfile", logical_id=("file", "y")
    )
    nic = NicSpec(uuid=str(uuid.uuid4()), index=0, mac="aa:00:00:11:22:33", link=bridge)
    return Scene(instance, system, other, make_disk(tmp_path / "other", 8), nic)


def started(node: Daemons, scene: Scene, kill: Kill) -> bool:
    was_killed = node.killed(scene.start, kill)
    assert node.do(scene.state) in (None, "paused", "running")
    node.do(scene.start)
    assert node.do(scene.state) == "running"
    return was_killed


def stopped(node: Daemons, scene: Scene, kill: Kill) -> bool:
    was_killed = node.killed(scene.stop, kill)
    node.do(scene.stop)
    assert node.do(scene.state) is None
    assert nothing_is_left(node.node, scene.instance)
    return was_killed


def plugged(node: Daemons, scene: Scene, kill: Kill) -> bool:
    was_killed = node.killed(scene.plug, kill)
    node.do(scene.settle)
    node.do(scene.devices)
    node.do(scene.plug)
    assert node.do(scene.devices) == ["disk", "nic"]
    return was_killed


def unplugged(node: Daemons, scene: Scene, kill: Kill) -> bool:
    was_killed = node.killed(scene.unplug, kill)
    node.do(scene.unplug)
    assert node.do(scene.devices) == []
    return was_killed


def moved(source: Daemons, target: Daemons, scene: Scene, end: str, kill: Kill) -> bool:
    """Move the guest, while the daemon of one end dies over its part; the guest is then on the target."""
    instance = scene.instance

    def prepared() -> Callable[[Node], Awaitable[Incoming]]:
        info = source.do(lambda node: node.driver.migration_info(instance))
        return lambda node: accept(node, instance, scene.system, info)

    def sent(incoming: Incoming) -> Callable[[Node], Awaitable[MigrationResult]]:
        return lambda node: send(node, instance, incoming)

    def finished(end: MigrationEnd) -> Act:
        return lambda node: node.driver.finish_migration(instance, end)

    was_killed = end == "accept" and target.killed(prepared(), kill)
    incoming = target.do(prepared())
    was_killed |= end == "send" and source.killed(sent(incoming), kill)
    result = source.do(sent(incoming))
    if result.status != "completed":
        target.do(finished(MigrationEnd.END_TARGET))
        source.do(finished(MigrationEnd.RESUME_SOURCE))
        assert (source.do(scene.state), target.do(scene.state)) == ("running", None)
        result = source.do(sent(target.do(prepared())))
        assert (result.status, result.error) == ("completed", "")
    for name, node, last_end in (
        ("arrive", target, MigrationEnd.RESUME_TARGET),
        ("take", source, MigrationEnd.END_SOURCE),
    ):
        last = finished(last_end)
        was_killed |= end == name and node.killed(last, kill)
        node.do(last)
    assert (source.do(scene.state), target.do(scene.state)) == (None, "running")
    return was_killed


STARTS, STOPS = each("cont"), each("quit")
PLUGS = [*each("netdev_add"), Kill("blockdev-add", True), *each("device_add")]
UNPLUGS = [*each("device_del"), Kill("blockdev-del", False), Kill("netdev_del", False)]
MOVES = [
    ("accept", Kill("migrate-incoming", False)),
    ("accept", Kill("migrate-incoming", True)),
    ("send", Kill("migrate", False)),
    ("send", Kill("migrate", True)),
    ("arrive", Kill("cont", False)),
    ("arrive", Kill("cont", True)),
    ("take", Kill("quit", False)),
]


def test_a_guest_whose_start_or_stop_was_killed_starts_and_stops(
    nodes: tuple[Daemons, Daemons], scene: Scene
) -> None:
    for start, stop in zip(STARTS, STOPS, strict=True):
        assert started(nodes[0], scene, start), start
        assert stopped(nodes[0], scene, stop), stop


def test_devices_of_a_daemon_that_was_killed_come_and_go(
    nodes: tuple[Daemons, Daemons], scene: Scene
) -> None:
    node = nodes[0]
    node.do(scene.boot)
    for number in range(max(len(PLUGS), len(UNPLUGS))):
        plug, unplug = PLUGS[number % len(PLUGS)], UNPLUGS[number % len(UNPLUGS)]
        assert plugged(node, scene, plug), plug
        assert unplugged(node, scene, unplug), unplug


def test_a_guest_whose_migration_was_killed_at_either_end_moves(
    nodes: tuple[Daemons, Daemons], scene: Scene
) -> None:
    source, target = nodes
    source.do(scene.boot)
    for end, kill in MOVES:
        assert moved(source, target, scene, end, kill), (end, kill)
        source, target = target, source


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_daemon_killed_at_any_question(nodes: tuple[Daemons, Daemons], scene: Scene) -> None:
    source, target = nodes
    for kill in numbered():
        was_killed = started(source, scene, kill)
        if not stopped(source, scene, kill) and not was_killed:
            break
    source.do(scene.boot)
    for kill in numbered():
        was_killed = plugged(source, scene, kill)
        if not unplugged(source, scene, kill) and not was_killed:
            break
    for end in ("accept", "send", "arrive", "take"):
        for kill in numbered():
            was_killed = moved(source, target, scene, end, kill)
            source, target = target, source
            if not was_killed:
                break
