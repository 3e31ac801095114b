"""The decisions of a mirror, with a scripted QEMU and virtual time."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm import mirror
from ganeti.hypervisor.kvm.migration_tls import Link
from ganeti.hypervisor.kvm.mirror import Receiver
from ganeti.hypervisor.kvm.monitor import CommandRefused
from ganeti.model.instance_spec import DiskSpec

pytestmark = pytest.mark.virtual_time

DISKS = tuple(
    DiskSpec(uuid=f"{index}{'0' * 35}", index=index, size=64, template="file", logical_id=())
    for index in range(2)
)
TO = Receiver("10.0.0.2", 40000, Link("node2.example.com"), 32)


def name(kind: str, index: int) -> str:
    return f"{kind}-{index}{'0' * 19}"


class Qemu:
    """Jobs by name; each look at them takes the next of their scripted states, the last one for ever."""

    def __init__(self, *script: Mapping[str, Any]) -> None:
        self.script = list(script)
        self.jobs: set[str] = set()
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.refuses: set[str] = set()
        self.busy = 0
        self.needs_yank = False
        self.exports: list[dict[str, str]] = []

    def commands(self) -> list[str]:
        return [command for command, _ in self.asked if not command.startswith("query-")]

    async def __call__(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float = 20.0
    ) -> Any:
        given = arguments or {}
        self.asked.append((command, given))
        if command == "nbd-server-start" and self.busy:
            self.busy -= 1
            raise CommandRefused("Address already in use")
        if command in self.refuses:
            raise CommandRefused(f"QEMU refused {command}")
        if command == "blockdev-mirror":
            self.jobs.add(str(given["job-id"]))
        if command == "job-dismiss":
            self.jobs.remove(str(given["id"]))
        if command == "yank" or (command == "block-job-cancel" and not self.needs_yank):
            self.script = [{"status": "concluded"}]
        if command == "query-block-exports":
            return self.exports
        if command == "query-jobs":
            state = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            return [{"id": one, "current-progress": 0, **state} for one in sorted(self.jobs)]
        return {}


async def test_all_disks_are_mirrored_over_the_encrypted_link() -> None:
    qemu = Qemu({"status": "running"}, {"status": "ready"})
    await mirror.bring_in_step(qemu, DISKS, TO)
    assert qemu.commands() == ["blockdev-add", "blockdev-mirror"] * 2
    node, job = dict(qemu.asked)["blockdev-add"], dict(qemu.asked)["blockdev-mirror"]
    assert node["tls-creds"] == "migration-credentials"
    assert node["tls-hostname"] == "node2.example.com"
    assert (job["sync"], job["speed"]) == ("full", 32 << 20)
    assert all(len(str(one)) <= 31 for one in (node["node-name"], job["job-id"], job["device"]))


async def test_the_call_shows_how_much_of_all_disks_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = list[tuple[Any, ...]]()
    monkeypatch.setattr(mirror, "report", lambda *words: seen.append(words))
    running = {"status": "running", "current-progress": 70, "total-progress": 100}
    await mirror.bring_in_step(Qemu(running, {"status": "ready"}), DISKS, TO)
    assert seen == [(140, 200, "disks")]


async def test_the_rest_is_sent_while_the_guest_stands_still() -> None:
    qemu = Qemu({"status": "ready"})
    await mirror.bring_in_step(qemu, DISKS, TO)
    await mirror.finish(qemu, DISKS)
    cancelled = [args for command, args in qemu.asked if command == "block-job-cancel"]
    assert [args["force"] for args in cancelled] == [False, False]
    await mirror.clear(qemu, DISKS)
    assert qemu.jobs == set()


async def test_mirrors_that_have_ended_well_are_ended_again_without_a_fault() -> None:
    """The transfer is joined by a second call after the first one was lost."""
    qemu = Qemu({"status": "ready"})
    await mirror.bring_in_step(qemu, DISKS, TO)
    await mirror.finish(qemu, DISKS)
    qemu.refuses = {"block-job-cancel"}
    await mirror.finish(qemu, DISKS)
    qemu.script = [{"status": "concluded", "error": "No space left"}]
    with pytest.raises(HypervisorError, match=r"disk 0 .*No space left"):
        await mirror.finish(qemu, DISKS)


@pytest.mark.requirement("G5")
async def test_a_disk_that_did_not_arrive_is_an_error_at_the_switchover() -> None:
    qemu = Qemu({"status": "ready"})
    await mirror.bring_in_step(qemu, DISKS, TO)

    class Failing(Qemu):
        async def __call__(self, command: str, arguments: Any = None, **rest: Any) -> Any:
            if command == "query-jobs":
                return [
                    {"id": name("mirror", 0), "status": "concluded", "current-progress": 1},
                    {"id": name("mirror", 1), "status": "concluded", "error": "No space left"},
                ]
            return {}

    with pytest.raises(HypervisorError, match=r"disk 1 .*No space left"):
        await mirror.finish(Failing(), DISKS)
    with pytest.raises(HypervisorError, match=r"disk 0 .*does not exist"):
        await mirror.finish(Qemu({"status": "ready"}), DISKS)


async def test_a_mirror_without_progress_is_abandoned() -> None:
    qemu = Qemu({"status": "running"})
    with pytest.raises(HypervisorError, match="no data of the disks was sent for 32 s"):
        await mirror.bring_in_step(qemu, DISKS, TO)
    qemu.script = [{"status": "ready"}]

    class Stuck(Qemu):
        async def __call__(self, command: str, arguments: Any = None, **rest: Any) -> Any:
            if command == "block-job-cancel":
                return {}
            return await super().__call__(command, arguments, **rest)

    stuck = Stuck({"status": "ready"})
    stuck.jobs = {name("mirror", 0), name("mirror", 1)}
    with pytest.raises(HypervisorError, match="within 20 s"):
        await mirror.finish(stuck, DISKS)


async def test_a_mirror_that_hangs_on_a_dead_link_is_torn_off() -> None:
    qemu = Qemu({"status": "running"})
    qemu.jobs = {name("mirror", 1)}
    qemu.needs_yank = True
    await mirror.clear(qemu, DISKS)
    assert qemu.commands()[:3] == ["block-job-cancel", "yank", "job-dismiss"]
    assert qemu.jobs == set()


async def test_a_mirror_that_never_ends_is_an_error() -> None:
    class Deaf(Qemu):
        async def __call__(self, command: str, arguments: Any = None, **rest: Any) -> Any:
            if command in ("block-job-cancel", "yank"):
                raise CommandRefused("no")
            return await super().__call__(command, arguments, **rest)

    qemu = Deaf({"status": "running"})
    qemu.jobs = {name("mirror", 0)}
    with pytest.raises(HypervisorError, match="did not stop"):
        await mirror.clear(qemu, DISKS)


async def test_where_there_is_nothing_to_clear_nothing_is_an_error() -> None:
    qemu = Qemu({"status": "running"})
    qemu.refuses = {"blockdev-del"}
    await mirror.clear(qemu, DISKS)
    assert qemu.commands() == ["blockdev-del"] * 2


@pytest.mark.requirement("A62")
async def test_disks_are_offered_at_one_address_to_one_peer() -> None:
    qemu = Qemu({})
    qemu.busy = 2
    port = await mirror.offer(qemu, "127.0.0.1", DISKS)
    server = dict(qemu.asked)["nbd-server-start"]
    assert server["addr"]["data"] == {"host": "127.0.0.1", "port": str(port)}
    assert server["tls-creds"] == "migration-credentials"
    exports = [args for command, args in qemu.asked if command == "block-export-add"]
    assert [args["name"] for args in exports] == [disk.uuid for disk in DISKS]


async def test_offers_are_withdrawn_before_the_guest_continues() -> None:
    qemu = Qemu({})
    qemu.refuses = {"block-export-del", "nbd-server-stop"}
    await mirror.withdraw(qemu, DISKS)  # nothing was offered
    qemu.exports = [{"id": "export-x"}]
    with pytest.raises(HypervisorError, match="export-x"):
        await mirror.withdraw(qemu, DISKS)


def test_an_address_of_another_host_is_reported() -> None:
    with pytest.raises(HypervisorError, match=r"192\.0\.2\.1"):
        mirror.free_port("192.0.2.1")


def test_a_disk_that_is_only_read_cannot_go_along() -> None:
    mirror.check_can_copy(DISKS)
    with pytest.raises(HypervisorError, match="read-only"):
        mirror.check_can_copy([msgspec.structs.replace(DISKS[0], mode="ro")])
