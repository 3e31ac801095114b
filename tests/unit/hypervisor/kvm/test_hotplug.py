"""Devices that come and go, with a pretended QEMU: every question failing in turn, guests that keep what they have."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import Completed
from ganeti.base.process_table import ProcessId
from ganeti.hypervisor.hotplug import with_disk, with_nic
from ganeti.hypervisor.kvm import hotplug as hotplug_module
from ganeti.hypervisor.kvm.devices import ASK_AGAIN_S, LET_GO_S
from ganeti.hypervisor.kvm.guests import Guest, Guests
from ganeti.hypervisor.kvm.hotplug import KvmHotplug
from ganeti.hypervisor.kvm.memory import BALLOON_S, MIB, PLUG_S, split, why_not_live
from ganeti.hypervisor.kvm.monitor import CommandRefused, MonitorGone, MonitorSilent, Talk
from ganeti.hypervisor.kvm.pci_slots import device_id
from ganeti.hypervisor.kvm.positions import added_name
from ganeti.hypervisor.kvm.runtime import GuestFiles, Record, boot_id
from ganeti.hypervisor.kvm.shares import Shares
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from tests.support.single_questions import SingleQuestions

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("S229", "F23")]

UUID = "8dea39da-5dea-4e7c-9a63-1c2b3d4e5f60"
OTHER_DISK = DiskSpec(
    uuid="d1" + UUID[2:], index=0, size=64, template="file", logical_id=("loop", "/0")
)
DISK = DiskSpec(uuid="d2" + UUID[2:], index=1, size=64, template="file", logical_id=("loop", "/1"))
NIC = NicSpec(uuid="n1" + UUID[2:], index=0, mac="aa:00:00:00:00:01", mode="bridged", link="br0")
INSTANCE = InstanceSpec(
    name="web1.example.com",
    uuid=UUID,
    hypervisor="kvm",
    os="tiny",
    memory=96,
    vcpus=1,
    hvparams={"max_vcpus": 3},
    disks=(OTHER_DISK,),
)
LIMIT = 20
"""More questions than any operation asks."""
POSITIONS = [
    {"type": "qemu64-x86_64-cpu", "props": {"core-id": core, "socket-id": 0}} for core in (2, 1, 0)
]
HOW = ("refused", "silent", "silent, but done", "gone")


class Qemu(SingleQuestions):
    """Answers as QEMU would, about what is plugged into it; one answer may go wrong."""

    def __init__(self) -> None:
        self.devices = {device_id("disk", OTHER_DISK.uuid), "serial0"}
        self.nodes: set[str] = set()
        self.netdevs: set[str] = set()
        self.files: dict[str, str] = {}
        """Descriptors that were handed over: name or set -> what they lead to."""
        self.status = "running"
        self.lets_go = True
        self.is_alive = True
        self.memory = 96
        self.keeps_memory = False
        self.requested, self.reserve, self.takes_memory = 0, 0, True
        """MiB of virtio-mem, requested and added."""
        self.polling, self.stats = 0, dict[str, Any]()
        """What the balloon driver reports."""
        self.holds = 0
        """So often a disk is still in use, although its device is gone."""
        self.asked: list[str] = []
        self.added: list[Mapping[str, Any]] = []
        self._fault: tuple[int, str] | None = None

    def fail(self, nth: int, how: str) -> None:
        self._fault = len(self.asked) + nth, how

    def repair(self) -> None:
        self._fault = None

    async def __call__(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float = 20.0
    ) -> Any:
        if not self.is_alive:
            raise MonitorGone("nobody listens")
        self.asked.append(command)
        how = self._fault[1] if self._fault and self._fault[0] == len(self.asked) else ""
        if how == "refused":
            raise CommandRefused(f"refused {command}")
        if how == "silent":
            raise MonitorSilent("no answer")
        if how == "gone":
            self.is_alive = False
            raise MonitorGone("it ended")
        answer = (
            self._properties(**(arguments or {}))
            if command in ("qom-get", "qom-set")
            else self._answer(command, arguments or {})
        )
        if how:
            raise MonitorSilent("no answer")
        return answer

    async def with_files(
        self, files: Sequence[int], commands: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> None:
        for number, (command, arguments) in enumerate(commands):
            if number < len(files):
                key = arguments.get("fdname") or f"/dev/fdset/{arguments['fdset-id']}"
                self.files[str(key)] = str(Path(f"/proc/self/fd/{files[number]}").readlink())
            await self(command, arguments)

    def _answer(self, command: str, arguments: Mapping[str, Any]) -> Any:
        match command:
            case "query-hotpluggable-cpus":
                return POSITIONS
            case "query-status":
                return {"status": self.status}
            case "qom-list":
                return [{"name": name} for name in sorted(self.devices)]
            case "query-balloon":
                return {"actual": self.memory * MIB}
            case "balloon" if not self.keeps_memory:
                self.memory = arguments["value"] // MIB
            case "device_del" if not self.lets_go:
                pass
            case "query-named-block-nodes":
                return [{"node-name": name} for name in sorted(self.nodes)]
            case "blockdev-del" if self.holds:
                self.holds -= 1
                raise CommandRefused("the node is in use")
            case _ if command in (table := self._changes()):
                change, things, key = table[command]
                assert arguments.get("filename", "/dev/fdset/").startswith("/dev/fdset/")
                change(things, arguments[key])
                self.added += [arguments] if change == self._add else []
        return {}

    def _properties(self, path: str, property: str, value: int | None = None) -> Any:  # noqa: A002
        if path == "/machine/peripheral/added-memory":
            return self._reserve(property, value)
        assert path == "/machine/peripheral/balloon"
        if property == "guest-stats":
            return self.stats if self.polling else {"stats": {}, "last-update": 0}
        if value is not None:
            self.polling = value
        return self.polling

    def _reserve(self, name: str, value: int | None) -> int:
        if value is not None:
            self.requested = value // MIB
            if self.requested < self.reserve or self.takes_memory:
                self.reserve = self.requested
        return {"size": self.reserve, "requested-size": self.requested}[name] * MIB

    def _changes(self) -> dict[str, tuple[Callable[[set[str], str], None], set[str], str]]:
        return {
            "blockdev-add": (self._add, self.nodes, "node-name"),
            "blockdev-del": (self._remove, self.nodes, "node-name"),
            "netdev_add": (self._add, self.netdevs, "id"),
            "netdev_del": (self._remove, self.netdevs, "id"),
            "device_add": (self._add, self.devices, "id"),
            "device_del": (self._remove, self.devices, "id"),
        }

    def _add(self, to: set[str], name: str) -> None:
        if name in to:
            raise CommandRefused(f"{name} is there already")
        to.add(name)

    def _remove(self, of: set[str], name: str) -> None:
        if name not in of:
            raise CommandRefused(f"there is no {name}")
        of.remove(name)


class Host:
    """A node with one guest; its disk is a real file."""

    def __init__(self, tmp_path: Path) -> None:
        self.paths = Paths(tmp_path)
        self.paths.kvm.mkdir(parents=True)
        self.disk = tmp_path / "disk"
        self.disk.write_bytes(bytes(MIB))
        self.qemu = Qemu()
        self.commands: list[list[str]] = []
        self.fails: str | None = None
        guests = Guests(self.paths, self.run, Processes(self.qemu), lambda _path: self.qemu)
        self.hotplug = KvmHotplug(self.paths, self.run, guests)
        self.shares = Shares(guests, self.hotplug.memory)
        self.guests = guests
        self.files = GuestFiles.of(self.paths, UUID)
        self.write(INSTANCE)

    def write(self, instance: InstanceSpec, **fields: Any) -> None:
        slots = {OTHER_DISK.uuid: 0, **fields.pop("slots", {})}
        record = Record(
            instance=instance, argv=("qemu",), accelerator="kvm", boot_id=boot_id(),
            machine="pc-i440fx-7.2", pid=1, start_ticks=1, slots=slots, **fields,
        )  # fmt: skip
        self.files.write(record)

    @property
    def record(self) -> Record:
        record = self.files.read()
        assert record is not None
        return record

    @property
    def guest(self) -> Guest:
        guest = self.guests.peek(self.files)
        assert guest is not None
        return guest

    async def run(
        self, argv: Sequence[str], *, timeout_s: float = 60.0, stdin: bytes | None = None,
        env: Mapping[str, str] | None = None, check: bool = True,
    ) -> Completed:  # fmt: skip
        self.commands.append(list(argv))
        if self.fails and self.fails in " ".join(argv) and check:
            raise HypervisorError(f"injected: {self.fails}")
        return Completed(tuple(argv), 0, b"", b"")

    def recorded(self) -> set[str]:
        """Names of the devices that the record has."""
        spec = self.record.instance
        return (
            {device_id("disk", one.uuid) for one in spec.disks}
            | {device_id("nic", one.uuid) for one in spec.nics}
            | {added_name(one) for one in self.record.added_cpus}
        )

    def check(self, *, is_known: bool = True) -> None:
        """The record never lacks a device; if QEMU could be asked, it has none too many either."""
        present = self.qemu.devices - {"serial0"}
        assert present <= self.recorded()
        if is_known:
            assert self.recorded() == present
        spec = self.record.instance
        uuids = {disk.uuid for disk in spec.disks} | {nic.uuid for nic in spec.nics}
        assert uuids == set(self.record.slots)


class Processes:
    """One process, alive as long as the pretended QEMU is."""

    def __init__(self, qemu: Qemu) -> None:
        self.qemu = qemu

    def is_alive(self, _process: ProcessId) -> bool:
        return self.qemu.is_alive

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"hotplug has no need of {name}")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    @contextlib.contextmanager
    def opened(*_tap: str, queues: int = 1, has_header: bool = True) -> Iterator[list[int]]:
        files = [os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC) for _ in range(queues)]
        try:
            yield files
        finally:
            for file in files:
                os.close(file)

    monkeypatch.setattr(hotplug_module, "open_tap", opened)
    monkeypatch.setattr(hotplug_module, "open_vhost", lambda count: opened(queues=count))
    return Host(tmp_path)


async def add_disk(host: Host) -> None:
    await host.hotplug.add_disk(INSTANCE, DISK, str(host.disk))


async def remove_disk(host: Host) -> None:
    await host.hotplug.remove_disk(INSTANCE, DISK)


async def test_a_disk_that_qemu_holds_for_a_moment_is_closed_later(
    host: Host,
) -> None:
    await add_disk(host)
    before = set(host.qemu.nodes)
    host.qemu.holds = 20
    await remove_disk(host)
    assert host.qemu.nodes < before
    assert len(host.record.instance.disks) == 1


async def test_a_disk_that_qemu_does_not_close_stays_in_the_record(host: Host) -> None:
    await add_disk(host)
    host.qemu.holds = 10_000
    with pytest.raises(
        HypervisorError, match=r"QEMU does not close disk 1 of .*: the node is in use"
    ):
        await remove_disk(host)
    assert len(host.record.instance.disks) == 2
    host.qemu.holds = 0
    await remove_disk(host)
    assert len(host.record.instance.disks) == 1


async def add_nic(host: Host) -> None:
    await host.hotplug.add_nic(INSTANCE, NIC)


async def remove_nic(host: Host) -> None:
    await host.hotplug.remove_nic(INSTANCE, NIC)


async def change_mac(host: Host) -> None:
    await host.hotplug.change_nic(INSTANCE, replace(NIC, mac="aa:00:00:00:00:02"))


async def add_cpus(host: Host) -> None:
    assert await host.hotplug.set_vcpus(INSTANCE, 3) == 3 * host.qemu.is_alive


async def remove_cpus(host: Host) -> None:
    assert await host.hotplug.set_vcpus(INSTANCE, 1) == 1 * host.qemu.is_alive


PREPARED = {
    add_cpus: (),
    remove_cpus: (add_cpus,),
    add_disk: (),
    remove_disk: (add_disk,),
    add_nic: (),
    remove_nic: (add_nic,),
    change_mac: (add_nic,),
}
A_DISK, A_NIC = device_id("disk", DISK.uuid), device_id("nic", NIC.uuid)
HAVE = {
    add_disk: (A_DISK, True), remove_disk: (A_DISK, False),
    add_nic: (A_NIC, True), remove_nic: (A_NIC, False), change_mac: (A_NIC, True),
    add_cpus: ("cpu_2", True), remove_cpus: ("cpu_1", False),
}  # fmt: skip
REVERSE = {
    add_cpus: remove_cpus, remove_cpus: remove_cpus, add_disk: remove_disk, remove_disk: remove_disk,
    add_nic: remove_nic, remove_nic: remove_nic, change_mac: remove_nic,
}  # fmt: skip
EACH = pytest.mark.parametrize("act", PREPARED, ids=lambda act: act.__name__)


def check_is_done(host: Host, act: Any) -> None:
    device, is_there = HAVE[act]
    assert (device in host.qemu.devices) is is_there
    host.check()
    if not is_there:  # nothing of it is left in QEMU either
        assert (host.qemu.nodes, host.qemu.netdevs) == (set(), set())
        assert host.record.taps == ()


@EACH
async def test_what_is_asked_for_is_done_and_may_be_repeated(host: Host, act: Any) -> None:
    for earlier in PREPARED[act]:
        await earlier(host)
    for _ in range(2):
        await act(host)
        check_is_done(host, act)


@pytest.mark.sampled(12)
@EACH
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("nth", range(1, LIMIT))
async def test_any_question_may_fail_and_the_record_never_lacks_a_device(
    host: Host, act: Any, nth: int, how: str
) -> None:
    for earlier in PREPARED[act]:
        await earlier(host)
    host.qemu.fail(nth, how)
    try:
        await act(host)
    except HypervisorError:
        if how == "gone":
            assert host.guests.peek(host.files) is None  # the next look clears it away
            await act(host)  # of a guest that does not run there is nothing to change
            return
        # What is taken out stays in the record until QEMU has said that it is gone.
        host.check(is_known=how == "refused" and act not in (remove_disk, remove_nic, remove_cpus))
    host.qemu.repair()
    # What was left in doubt is found out before the guest moves, and the change can be made again.
    await host.hotplug.reconciled(host.guest)
    host.check()
    await act(host)
    check_is_done(host, act)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("how", ["refused", "silent"])
@pytest.mark.parametrize("nth", range(1, LIMIT))
async def test_an_exchange_that_failed_leaves_the_guest_its_nic(
    host: Host, nth: int, how: str
) -> None:
    await add_nic(host)
    host.qemu.fail(nth, how)
    with contextlib.suppress(HypervisorError):
        await change_mac(host)
    assert device_id("nic", NIC.uuid) in host.qemu.devices
    assert len(host.qemu.netdevs) == 1
    host.check()


async def test_a_nic_that_cannot_be_put_back_is_reported_as_out(host: Host) -> None:
    await add_nic(host)
    host.fails = "kvm-ifup"
    with pytest.raises(
        HypervisorError, match=r"NIC 0 could not be restored .* until its next start"
    ):
        await change_mac(host)
    host.check()


async def test_no_operation_has_more_questions_than_are_failed(host: Host) -> None:
    for act, earlier in PREPARED.items():
        for one in earlier:
            await one(host)
        before = len(host.qemu.asked)
        await act(host)
        assert len(host.qemu.asked) - before < LIMIT
        await REVERSE[act](host)


WHAT = {remove_disk: "disk 1", remove_nic: "NIC 0", remove_cpus: "processor 2"}


@pytest.mark.parametrize("act", WHAT)
async def test_a_guest_that_never_lets_a_device_go_is_asked_again_until_the_deadline(
    host: Host, act: Any
) -> None:
    await PREPARED[act][0](host)
    host.qemu.lets_go = False
    host.qemu.asked.clear()
    loop = asyncio.get_running_loop()
    begin = loop.time()
    with pytest.raises(HypervisorError) as caught:
        await act(host)
    assert LET_GO_S <= loop.time() - begin < LET_GO_S + 2
    assert host.qemu.asked.count("device_del") == LET_GO_S / ASK_AGAIN_S
    assert f"web1.example.com did not release {WHAT[act]} within 60 s" in caught.value.message
    assert "shut the instance down first" in caught.value.message
    host.check()  # it still has it, and the record says so
    assert host.qemu.nodes or host.qemu.netdevs or host.guest.vcpus == 3
    # It lets go long after that was given up.
    host.qemu.devices &= {device_id("disk", OTHER_DISK.uuid), "serial0"}
    await host.hotplug.reconciled(host.guest)
    check_is_done(host, act)


async def test_a_guest_that_boots_meanwhile_lets_go_when_it_is_asked_again(host: Host) -> None:
    await add_disk(host)
    host.qemu.lets_go = False
    removing = asyncio.create_task(remove_disk(host))
    await asyncio.sleep(ASK_AGAIN_S + 1)
    host.qemu.lets_go = True
    await removing
    check_is_done(host, remove_disk)


@pytest.mark.parametrize("act", [add_disk, add_nic, add_cpus])
@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"hvparams": {"acpi": False}}, "acpi=false"),
        ({"status": "paused"}, "is paused"),
        ({"is_incoming": True}, "migration is not finished"),
    ],
)
async def test_what_stands_in_the_way_is_reported_and_nothing_is_touched(
    host: Host, act: Any, state: dict[str, Any], text: str
) -> None:
    host.qemu.status = state.get("status", "running")
    host.write(
        replace(INSTANCE, hvparams=state.get("hvparams", {})),
        is_incoming=state.get("is_incoming", False),
    )
    before = host.record
    with pytest.raises(HypervisorError, match=text):
        await act(host)
    assert host.record == before
    assert (host.qemu.added, host.commands) == ([], [])


async def test_qemu_gets_open_files_and_no_names_that_it_would_have_to_open(host: Host) -> None:
    host.write(replace(INSTANCE, hvparams={"virtio_net_queues": 2, "vhost_net": True}))
    await add_disk(host)
    await add_nic(host)
    assert str(host.disk) in host.qemu.files.values()
    netdev = next(one for one in host.qemu.added if "fds" in one)
    names = netdev["fds"].split(":") + netdev["vhostfds"].split(":")
    assert len(set(names)) == 4
    assert set(names) <= set(host.qemu.files)
    nic = next(one for one in host.qemu.added if one.get("mac"))
    assert (nic["mq"], nic["vectors"]) == (True, 6)
    assert any("multi_queue" in words for words in host.commands)


async def test_processors_come_in_order_and_the_last_one_goes_first(host: Host) -> None:
    assert host.guest.vcpus == 1
    await add_cpus(host)
    added = [one for one in host.qemu.added if one["driver"] == "qemu64-x86_64-cpu"]
    assert [(one["id"], one["core-id"]) for one in added] == [("cpu_1", 1), ("cpu_2", 2)]
    assert host.record.instance.vcpus == 1  # as at its start
    assert host.guest.vcpus == 3
    assert await host.hotplug.set_vcpus(INSTANCE, 2) == 2
    assert host.record.added_cpus == (1,)
    limits = await host.hotplug.limits(INSTANCE)
    assert (limits.least_vcpus, limits.most_vcpus) == (1, 3)


async def test_a_position_that_a_guest_released_late_is_filled_first(host: Host) -> None:
    await add_cpus(host)
    host.qemu.devices.remove("cpu_1")
    await host.hotplug.reconciled(host.guest)
    assert host.guest.vcpus == 2
    await add_cpus(host)
    assert host.record.added_cpus == (2, 1)


@pytest.mark.parametrize("count", [0, 4])
async def test_processors_beyond_the_room_of_the_start_are_refused(host: Host, count: int) -> None:
    with pytest.raises(HypervisorError, match=f"can have 1 to 3 processors .*, not {count}"):
        await host.hotplug.set_vcpus(INSTANCE, count)
    assert host.qemu.added == []


async def test_an_emulated_guest_keeps_its_processors(host: Host) -> None:
    host.files.write(replace(host.record, accelerator="tcg"))
    await add_cpus(host)
    with pytest.raises(HypervisorError, match=r"is emulated .*, so it keeps its 3 processors"):
        await remove_cpus(host)
    assert (host.qemu.asked.count("device_del"), host.guest.vcpus) == (0, 3)


async def test_a_guest_whose_processors_are_bound_one_by_one_gets_no_other_number(
    host: Host,
) -> None:
    host.write(replace(INSTANCE, vcpus=2, hvparams={"max_vcpus": 3, "cpu_mask": "0:0"}))
    with pytest.raises(HypervisorError, match="cpu_mask: 0:0 is for 2 CPUs, but the guest has 3"):
        await host.hotplug.set_vcpus(INSTANCE, 3)
    assert (host.qemu.added, host.record.added_cpus) == ([], ())


CEPH = replace(DISK, template="rbd", logical_id=("rbd", "img"), params={"access": "userspace"})


async def test_an_image_of_ceph_is_opened_by_qemu_without_a_descriptor(host: Host) -> None:
    await host.hotplug.add_disk(INSTANCE, CEPH, "rbd:fast/img")
    lower = next(one for one in host.qemu.added if one.get("driver") == "rbd")
    assert (lower["pool"], lower["image"], lower["cache"]["direct"]) == ("fast", "img", True)
    assert host.qemu.files == {}
    await host.hotplug.remove_disk(INSTANCE, CEPH)
    assert host.qemu.nodes == set()


@pytest.mark.requirement("S228")
@pytest.mark.parametrize(
    "hvparams", [{"use_chroot": True}, {"security_model": "user", "security_domain": "nobody"}]
)
async def test_a_confined_qemu_opens_no_image_of_ceph_after_its_start(
    host: Host, hvparams: dict[str, Any]
) -> None:
    instance = replace(INSTANCE, hvparams={**INSTANCE.hvparams, **hvparams})
    host.write(instance)
    with pytest.raises(HypervisorError, match="use access=kernelspace"):
        await host.hotplug.add_disk(instance, CEPH, "rbd:fast/img")
    assert host.qemu.nodes == set()


async def test_a_qemu_without_ceph_names_the_missing_package(host: Host) -> None:
    real = host.qemu._answer

    def answer(command: str, arguments: Mapping[str, Any]) -> Any:
        if arguments.get("driver") == "rbd":
            raise CommandRefused("QEMU refused blockdev-add: Unknown driver 'rbd'")
        return real(command, arguments)

    host.qemu._answer = answer  # type: ignore[method-assign]  # this QEMU lacks a driver
    with pytest.raises(HypervisorError, match="install qemu-block-extra"):
        await host.hotplug.add_disk(INSTANCE, CEPH, "rbd:fast/img")
    assert host.qemu.nodes == set()


async def test_a_disk_whose_file_cannot_be_opened_changes_nothing(host: Host) -> None:
    host.disk.unlink()
    with pytest.raises(HypervisorError, match="disk"):
        await add_disk(host)
    assert host.qemu.nodes == set()
    host.check()


async def test_a_network_that_cannot_be_joined_changes_nothing(host: Host) -> None:
    host.fails = "kvm-ifup"
    with pytest.raises(HypervisorError, match="injected"):
        await add_nic(host)
    assert host.record.taps == ()
    host.check()


async def test_a_seventeenth_disk_has_no_slot(host: Host) -> None:
    instance, slots = INSTANCE, {}
    for number in range(1, 16):
        disk = replace(DISK, uuid=f"{number:08d}" + UUID[8:], index=number)
        instance, slots[disk.uuid] = with_disk(instance, disk), number
        host.qemu.devices.add(device_id("disk", disk.uuid))
    host.write(instance, slots=slots)
    with pytest.raises(HypervisorError, match="no slot for more than 16 disks"):
        await add_disk(host)
    host.check()


async def test_a_nic_with_another_network_keeps_its_tap(host: Host) -> None:
    host.write(with_nic(INSTANCE, NIC), slots={NIC.uuid: 0})
    host.qemu.devices.add(device_id("nic", NIC.uuid))
    await host.hotplug.change_nic(INSTANCE, replace(NIC, link="br1"))
    assert host.record.instance.nics[0].link == "br1"
    assert not any("tuntap" in words for words in host.commands)
    assert host.commands[0][-1] == "nomaster"
    host.check()


@pytest.mark.parametrize(("keeps", "memory"), [(False, 80), (True, 96)])
async def test_memory_is_what_the_guest_really_uses_after_a_while(
    host: Host, keeps: bool, memory: int
) -> None:
    host.qemu.keeps_memory = keeps
    loop = asyncio.get_running_loop()
    begin = loop.time()
    assert await host.hotplug.set_memory(INSTANCE, 80) == memory
    assert host.record.memory == memory
    assert (loop.time() - begin >= BALLOON_S) is keeps


async def test_of_a_guest_that_is_down_there_is_nothing_to_change(host: Host) -> None:
    host.qemu.is_alive = False
    for act in PREPARED:
        await act(host)
    await host.hotplug.resize_disk(INSTANCE, OTHER_DISK)
    assert await host.hotplug.set_memory(INSTANCE, 80) == 0
    assert await host.hotplug.obstacles(INSTANCE) == []
    assert host.commands == []


async def test_a_grown_disk_is_recorded_when_qemu_knows_of_it(host: Host) -> None:
    host.qemu.fail(1, "refused")
    grown = replace(OTHER_DISK, size=128)
    with pytest.raises(CommandRefused):
        await host.hotplug.resize_disk(INSTANCE, grown)
    assert host.record.instance.disks[0].size == 64
    await host.hotplug.resize_disk(INSTANCE, grown)
    assert host.record.instance.disks[0].size == 128


def test_the_pretended_qemu_talks_as_a_real_one() -> None:
    talk: Talk = Qemu()
    assert callable(talk)


ROOMY = replace(INSTANCE, hvparams={"max_memory": 160})


@pytest.mark.parametrize(
    ("wanted", "parts"),
    [
        (80, (80, 0)),
        (96, (96, 0)),
        (100, (96, 4)),
        (101, (96, 4)),
        (160, (96, 64)),
        (999, (96, 64)),
    ],
)
def test_less_memory_is_in_the_balloon_and_more_is_added_in_blocks(
    wanted: int, parts: tuple[int, int]
) -> None:
    assert split(wanted, 96, 64) == parts


async def test_a_guest_gets_memory_beyond_its_start_and_gives_it_back(host: Host) -> None:
    host.write(ROOMY)
    assert (await host.hotplug.limits(ROOMY)).most_memory == 160
    for wanted, parts in ((128, (96, 32)), (160, (96, 64)), (80, (80, 0)), (100, (96, 4))):
        assert await host.hotplug.set_memory(ROOMY, wanted) == wanted
        assert (host.qemu.memory, host.qemu.reserve) == parts
        assert host.guest.memory == wanted
    assert host.record.instance.memory == 96  # as at its start


async def test_a_guest_that_takes_no_memory_keeps_what_it_had(host: Host) -> None:
    host.write(ROOMY)
    await host.hotplug.set_memory(ROOMY, 100)
    host.qemu.takes_memory = False
    loop = asyncio.get_running_loop()
    begin = loop.time()
    with pytest.raises(HypervisorError, match=r"used 4 of 32 MiB within 30 s; .* virtio-mem"):
        await host.hotplug.set_memory(ROOMY, 128)
    assert loop.time() - begin >= PLUG_S
    assert (host.qemu.requested, host.qemu.reserve, host.guest.memory) == (4, 4, 100)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("nth", range(1, 7))
async def test_the_record_has_the_real_memory_after_any_failure(
    host: Host, nth: int, how: str
) -> None:
    host.write(ROOMY)
    host.qemu.fail(nth, how)
    with contextlib.suppress(HypervisorError):
        await host.hotplug.set_memory(ROOMY, 128)
    if how == "gone":
        assert host.guests.peek(host.files) is None
        return
    host.qemu.repair()
    await host.hotplug.reconciled(host.guest)
    assert host.guest.memory == host.qemu.memory + host.qemu.reserve
    assert await host.hotplug.set_memory(ROOMY, 128) == 128
    assert await host.hotplug.set_memory(ROOMY, 96) == 96


async def test_an_emulated_guest_with_added_memory_moves_only_while_it_stands_still(
    host: Host,
) -> None:
    host.write(ROOMY)
    await host.hotplug.set_memory(ROOMY, 100)
    assert not why_not_live(host.guest)
    host.files.write(replace(host.record, accelerator="tcg"))
    assert "4 MiB of added memory, which cannot move while the guest runs" in why_not_live(
        host.guest
    )
    await host.hotplug.set_memory(ROOMY, 96)
    assert not why_not_live(host.guest)


async def test_a_node_takes_memory_and_the_record_says_since_when(host: Host) -> None:
    await host.shares.set_share(UUID, 80, 512)
    await host.shares.set_share(UUID, 70, 1024)
    lowered = host.record.lowered
    assert lowered is not None
    assert (host.guest.memory, lowered.before, lowered.goal) == (70, 96, 1024)
    [amount] = await host.shares.amounts(everyone=False)
    assert (amount.memory, amount.before, amount.used) == (70, 96, None)
    await host.shares.set_share(UUID, 90, 0)
    back = host.record.lowered
    assert back == lowered
    await host.shares.set_share(UUID, 96, 0)
    assert (host.guest.memory, host.record.lowered) == (96, None)
    assert await host.shares.amounts(everyone=False) == []


async def test_an_explicit_amount_is_not_changed_back_by_the_node(host: Host) -> None:
    await host.shares.set_share(UUID, 80, 512)
    await host.hotplug.set_memory(INSTANCE, 88)
    assert host.record.lowered is None
    [amount] = await host.shares.amounts(everyone=True)
    assert (amount.memory, amount.before) == (88, 88)


async def test_what_a_guest_uses_is_what_its_balloon_driver_reports(host: Host) -> None:
    stats = {"stat-total-memory": 90 * MIB, "stat-available-memory": 30 * MIB}
    for found, used in (
        ({"last-update": 0, "stats": stats}, None),
        ({"last-update": 5, "stats": stats}, 60),
        ({"last-update": 5, "stats": {**stats, "stat-available-memory": 2**64 - 1}}, None),
        ({"last-update": 5, "stats": {}}, None),
    ):
        host.qemu.stats = found
        [amount] = await host.shares.amounts(everyone=True)
        assert amount.used == used
    assert host.qemu.polling


async def test_no_memory_is_taken_from_guests_that_cannot_give_it_now(host: Host) -> None:
    host.qemu.status = "paused"
    assert await host.shares.amounts(everyone=True) == []
    host.qemu.status = "running"
    for fields in ({"is_incoming": True}, {"is_adopted": True}, {"stopped_to_move": True}):
        host.write(INSTANCE, **fields)
        assert await host.shares.amounts(everyone=True) == []
        await host.shares.set_share(UUID, 80, 512)
        assert (host.qemu.memory, host.record.lowered) == (96, None)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("nth", [1, 2])
async def test_memory_that_was_taken_is_given_back_after_any_failure(
    host: Host, nth: int, how: str
) -> None:
    host.qemu.fail(nth, how)
    with contextlib.suppress(HypervisorError):
        await host.shares.set_share(UUID, 80, 512)
    lowered = host.record.lowered
    assert lowered is not None, "it is recorded before QEMU is asked"
    assert lowered.before == 96
    if how == "gone":
        assert await host.shares.amounts(everyone=True) == []
        return
    host.qemu.repair()
    found = await host.shares.amounts(everyone=False)
    assert [one.memory for one in found] == ([80] if host.qemu.memory == 80 else [96])
    assert host.guest.memory == host.qemu.memory
    await host.shares.set_share(UUID, 96, 0)
    assert (host.qemu.memory, host.record.lowered) == (96, None)
