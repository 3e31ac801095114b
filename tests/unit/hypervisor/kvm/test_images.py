"""Images of CDs and floppies: only from the directories for them, only read."""

from pathlib import Path

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.images import image_directory_problem, image_problem, image_words
from ganeti.model.hypervisor_params import hypervisor_defaults
from ganeti.model.params import Params
from tests.unit.hypervisor.kvm.test_command_line import parsed, values


def params(**others: object) -> Params:
    return hypervisor_defaults("kvm") | others


@pytest.mark.requirement("A45")
def test_only_files_in_the_directories_for_images_are_shown_to_guests(disk_path: Path) -> None:
    home, other = disk_path / "images", disk_path / "images-not"
    for directory in (home, other):
        directory.mkdir()
        (directory / "a.iso").write_bytes(b"x")
    (home / "link.iso").symlink_to(other / "a.iso")
    (home / "inner").mkdir()

    def problem(path: object) -> str | None:
        given = params(cdrom_image_path=str(path), image_directories=f"/nosuch:{home}")
        return image_problem("cdrom_image_path", given)

    assert problem("") is None
    assert problem(home / "a.iso") is None
    for wrong in (other / "a.iso", home / "link.iso", "/etc/shadow", "/proc/self/environ"):
        assert "is not in a directory for images" in (problem(wrong) or "")
    assert "is not a file" in (problem(home / "inner") or "")
    assert "cannot be found" in (problem(home / "none.iso") or "")
    assert "cannot be found" in (problem("http://169.254.169.254/latest") or "")


@pytest.mark.requirement("A45")
def test_a_directory_for_images_is_one_and_does_not_lead_to_the_host(disk_path: Path) -> None:
    (disk_path / "file").write_bytes(b"x")
    (disk_path / "fine").mkdir()
    (disk_path / "link").symlink_to("/etc")
    (disk_path / "proc").symlink_to("/proc/self")
    assert image_directory_problem(str(disk_path / "fine")) is None
    assert image_directory_problem(str(disk_path / "none-yet")) is None
    assert "not a directory" in (image_directory_problem(str(disk_path / "file")) or "")
    assert "more than images" in (image_directory_problem(str(disk_path / "link")) or "")
    assert "belongs to the host" in (image_directory_problem(str(disk_path / "proc")) or "")
    given = params(cdrom_image_path="/etc/hostname", image_directories=str(disk_path / "link"))
    assert "is not in a directory for images" in (image_problem("cdrom_image_path", given) or "")


def test_images_are_read_only_and_raw_by_name() -> None:
    words = image_words("pc", params(cdrom_image_path="/i/a,b.iso"), 0)
    lower, upper = (parsed(one) for one in values(words, "-blockdev"))
    assert lower[2:] == ["filename=/i/a,b.iso", "read-only=on"]
    assert upper[0] == "driver=raw"
    assert upper[-1] == "read-only=on"


@pytest.mark.parametrize(
    ("machine", "taken", "place"),
    [
        ("pc", 0, ["bus=ide.0", "unit=0"]),
        ("pc", 3, ["bus=ide.1", "unit=1"]),
        ("pc-q35-7.2", 5, ["bus=ide.5", "unit=0"]),
    ],
)
def test_a_drive_takes_the_place_after_the_disks(
    machine: str, taken: int, place: list[str]
) -> None:
    words = image_words(machine, params(cdrom_image_path="/a"), taken)
    assert parsed(values(words, "-device")[0])[-2:] == place


@pytest.mark.parametrize(("machine", "taken"), [("pc", 4), ("q35", 6)])
def test_a_drive_without_a_place_is_refused(machine: str, taken: int) -> None:
    with pytest.raises(HypervisorError, match="cdrom_disk_type=scsi"):
        image_words(machine, params(cdrom_image_path="/a"), taken)


def test_the_guest_starts_from_the_device_of_the_boot_order() -> None:
    cd = image_words("pc", params(cdrom_image_path="/a", boot_order="cdrom"), 0)
    assert "bootindex=1" in parsed(values(cd, "-device")[0])
    floppy = params(floppy_image_path="/f", boot_order="floppy")
    assert values(image_words("pc", floppy, 0), "-global") == ["isa-fdc.bootindexA=1"]
    assert "bootindexA=1" in parsed(values(image_words("q35", floppy, 0), "-device")[0])
    direct = params(cdrom_image_path="/a", boot_order="cdrom", kernel_path="/k")
    assert "bootindex=1" not in parsed(values(image_words("pc", direct, 0), "-device")[0])
