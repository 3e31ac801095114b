"""The CD of a running guest is changed, whatever the guest does with the tray between two questions."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.images import CDS, EMPTY
from ganeti.hypervisor.kvm.media import change_medium
from ganeti.hypervisor.kvm.monitor import CommandRefused
from ganeti.model.params import Params
from tests.support.single_questions import SingleQuestions

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("A45")]


class Qemu(SingleQuestions):
    """A monitor with one drive; after each question the guest may do something with the tray."""

    def __init__(self) -> None:
        self.nodes = {"cdrom0-raw", "cdrom0-file"}
        self.fdsets: set[int] = set()
        self.medium: dict[str, str] | None = {"node-name": "cdrom0-raw", "file": "/srv/a.iso"}
        self.is_open = self.is_locked = False
        self.asked: list[str] = []
        self.guest: Callable[[Qemu], None] = lambda _qemu: None
        self.guest_acts_after: set[int] | None = None
        self.opens = True
        """Whether QEMU can open the next image."""

    async def __call__(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float = 20.0
    ) -> Any:
        self.asked.append(command)
        try:
            return self._answer(command, arguments or {})
        finally:
            if self.guest_acts_after is None or len(self.asked) in self.guest_acts_after:
                self.guest(self)

    async def with_files(
        self, files: Sequence[int], commands: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> None:
        for command, arguments in commands:
            await self(command, arguments)

    def _answer(self, command: str, arguments: Mapping[str, Any]) -> Any:
        match command:
            case "query-block":
                inserted = {"inserted": self.medium} if self.medium else {}
                drive = {"qdev": "cdrom0", "removable": True, "tray_open": self.is_open, **inserted}
                return [{"qdev": "/machine/peripheral/disk-1"}, drive]
            case "query-fdsets":
                return [{"fdset-id": one, "fds": []} for one in sorted(self.fdsets)]
            case "add-fd":
                self.fdsets.add(arguments["fdset-id"])
            case "blockdev-change-medium":
                if not self.opens:
                    raise CommandRefused("Could not open")
                self._open_tray(arguments)
                path = str(arguments["filename"])
                self.medium, self.is_open = {"node-name": "#block1", "file": path}, False
            case "eject":
                self._open_tray(arguments)
                self.medium = None
            case "blockdev-close-tray":
                self.is_open = False
            case "blockdev-del":
                if arguments["node-name"] not in self.nodes:
                    raise CommandRefused("no such node")
                self.nodes.remove(arguments["node-name"])
            case _:
                raise AssertionError(command)
        return {}

    def _open_tray(self, arguments: Mapping[str, Any]) -> None:
        if self.is_locked and not arguments.get("force"):
            raise CommandRefused("Device 'cdrom0' is locked and force was not specified")
        self.is_open, self.is_locked = True, False


def closes(qemu: Qemu) -> None:
    """As a guest's kernel does with a drive that it looks at."""
    qemu.is_open, qemu.is_locked = False, True


def opens(qemu: Qemu) -> None:
    """As a guest's udev does when it is asked to let a medium go."""
    qemu.is_open, qemu.is_locked = True, False


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A directory of images."""
    for name in ("b.iso", "c.iso"):
        (tmp_path / name).write_bytes(bytes(2048))
    return tmp_path


def with_cd(images: Path, name: str) -> Params:
    image = name if name in ("", EMPTY) else str(images / name)
    return {CDS[0]: image, "image_directories": str(images)}


def holds(qemu: Qemu) -> str:
    assert not qemu.is_open
    return qemu.medium["file"] if qemu.medium else ""


@pytest.mark.parametrize("guest", [closes, opens])
@pytest.mark.parametrize("wanted", ["b.iso", "", EMPTY])
async def test_the_medium_is_changed_whenever_the_guest_moves_the_tray(
    images: Path, wanted: str, guest: Callable[[Qemu], None]
) -> None:
    for moment in range(1, 30):
        qemu = Qemu()
        qemu.guest, qemu.guest_acts_after = guest, {moment}
        assert await change_medium(qemu, CDS[0], with_cd(images, wanted))
        assert qemu.nodes == set()  # those of the medium that the guest began with
        assert bool(qemu.medium) == (wanted == "b.iso")
        last_look = len(qemu.asked) - qemu.asked[::-1].index("query-block")
        assert not qemu.is_open or moment >= last_look
        if moment > len(qemu.asked):
            break
    else:
        raise AssertionError("it asks for ever")


async def test_a_guest_that_always_closes_and_locks_the_tray_is_no_obstacle(images: Path) -> None:
    qemu = Qemu()
    qemu.guest = closes
    for wanted in ("b.iso", "", "c.iso", "b.iso", ""):
        assert await change_medium(qemu, CDS[0], with_cd(images, wanted))
        assert (holds(qemu) != "") == bool(wanted)


async def test_a_guest_that_always_opens_the_tray_keeps_it_open_with_the_new_medium(
    images: Path,
) -> None:
    qemu = Qemu()
    qemu.guest = opens
    assert await change_medium(qemu, CDS[0], with_cd(images, "b.iso"))
    assert qemu.is_open
    assert qemu.medium is not None
    assert qemu.medium["node-name"] == "#block1"
    assert len(qemu.asked) < 60


async def test_a_guest_that_lets_no_medium_stay_is_an_error(images: Path) -> None:
    def takes_out(qemu: Qemu) -> None:
        qemu.medium = None

    qemu = Qemu()
    qemu.guest = takes_out
    with pytest.raises(HypervisorError, match="the guest ejects the medium"):
        await change_medium(qemu, CDS[0], with_cd(images, "b.iso"))


async def test_an_image_that_qemu_cannot_open_changes_nothing(images: Path) -> None:
    qemu = Qemu()
    qemu.opens = False
    with pytest.raises(HypervisorError, match="Could not open"):
        await change_medium(qemu, CDS[0], with_cd(images, "b.iso"))
    assert holds(qemu) == "/srv/a.iso"
    assert qemu.nodes == {"cdrom0-raw", "cdrom0-file"}


async def test_each_image_has_a_set_of_descriptors_of_its_own(images: Path) -> None:
    """A set that is still open, because somebody holds another monitor, would give the old image."""
    qemu, seen = Qemu(), set()
    for wanted in ("b.iso", "c.iso", "b.iso"):
        assert await change_medium(qemu, CDS[0], with_cd(images, wanted))
        seen.add(holds(qemu))
    assert len(seen) == 3


async def test_a_guest_without_the_drive_is_reported(images: Path) -> None:
    assert not await change_medium(Qemu(), CDS[1], with_cd(images, "") | {CDS[1]: ""})
