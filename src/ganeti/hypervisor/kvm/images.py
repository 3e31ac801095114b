"""Images of CDs and floppies: the allowed files, and their options of QEMU.

They are opened read-only and as raw. Only files below the cluster's `image_directories` are allowed, so that no
parameter can show a guest the node's own files (A45).
"""

from pathlib import Path

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.machine import is_q35
from ganeti.hypervisor.kvm.options import option
from ganeti.model.hypervisor_param import CD_DRIVES, EMPTY_DRIVE, unfit_for_images
from ganeti.model.params import Params

IDE_UNITS, SATA_PORTS = 4, 6
CDS = CD_DRIVES
_FLOPPY = "floppy_image_path"
IMAGES = (*CDS, _FLOPPY)
EMPTY = EMPTY_DRIVE


def boots_from(hvparams: Params, kind: str) -> bool:
    """Return whether the guest starts from a device of this kind: disk, cdrom, network or floppy."""
    return hvparams["boot_order"] == kind and not hvparams["kernel_path"]


def image_problem(name: str, hvparams: Params) -> str | None:
    """Return why the image that a parameter names cannot be used on this node; links are followed."""
    path = str(hvparams[name])
    if path in ("", EMPTY):
        return None
    try:
        real = Path(path).resolve(strict=True)
    except OSError as err:
        return f"{name}: {path} cannot be found on this node: {err.strerror}"
    if problem := outside_problem(name, real, hvparams):
        return problem
    if not real.is_file():
        return f"{name}: {path} is not a file"
    return None


def outside_problem(name: str, real: Path, hvparams: Params) -> str | None:
    """Return why an image with this real path cannot be used: it is in no directory for images."""
    directories = [word for word in str(hvparams["image_directories"]).split(":") if word]
    homes = [Path(one).resolve() for one in directories if not image_directory_problem(one)]
    if not any(real.is_relative_to(home) for home in homes):
        known = ", ".join(directories) or "none"
        return (
            f"{name}: {hvparams[name]} is not in a directory for images ({known}); move it there, or add"
            " its directory: gnt-cluster modify -H kvm:image_directories=…"
        )
    return None


def image_directory_problem(directory: str) -> str | None:
    """Return why a directory of this node may hold no image: links are followed. None if it may."""
    try:
        real = Path(directory).resolve()
        if real.exists() and not real.is_dir():
            return f"image_directories: {directory} is not a directory"
    except OSError as err:
        return f"image_directories: {directory} cannot be examined: {err.strerror}"
    if wrong := unfit_for_images(str(real)):
        return f"image_directories: {directory}: {wrong}"
    return None


def ide_address(number: int, machine: str) -> dict[str, str | int | bool]:
    """Return bus and unit of the disk or drive with this number."""
    if is_q35(machine):
        return {"bus": f"ide.{number}", "unit": 0}
    return {"bus": f"ide.{number // 2}", "unit": number % 2}


def image_words(machine: str, hvparams: Params, disks: int) -> list[str]:
    """Return the drives that have an image; `disks` is the number of IDE positions in use."""
    words: list[str] = []
    number = 0
    for index, name in enumerate(CDS):
        if hvparams[name]:
            words += _drive(f"cdrom{index}", str(hvparams[name]))
            words += ["-device", _cd(index, machine, hvparams, disks + number)]
            number += 1
    if hvparams[_FLOPPY]:
        words += _floppy(machine, hvparams)
    return words


def _drive(name: str, path: str) -> list[str]:
    if path == EMPTY:
        return []
    file = f"{name}-file"
    return [
        *("-blockdev", option(driver="file", node_name=file, filename=path, read_only=True)),
        *("-blockdev", option(driver="raw", node_name=f"{name}-raw", file=file, read_only=True)),
    ]


def _cd(index: int, machine: str, hvparams: Params, place: int) -> str:
    pairs: dict[str, str | int | bool] = {"id": f"cdrom{index}"}
    if hvparams[CDS[index]] != EMPTY:
        pairs["drive"] = f"cdrom{index}-raw"
    kind = str(hvparams["cdrom_disk_type"]) or "ide"
    if boots_from(hvparams, "cdrom"):
        pairs["bootindex"] = index + 1
    if kind == "paravirtual" and "drive" not in pairs:
        raise HypervisorError(
            f"{CDS[index]}: a paravirtual drive cannot be empty; set cdrom_disk_type=ide or scsi"
        )
    if kind == "paravirtual":
        return option("virtio-blk-pci", **pairs)
    if kind == "scsi":
        return option("scsi-cd", **pairs, bus="scsi-cd.0", scsi_id=index)
    places = SATA_PORTS if is_q35(machine) else IDE_UNITS
    if place >= places:
        raise HypervisorError(
            f"only {places} disks and drives of type ide are possible; set"
            " cdrom_disk_type=scsi or disk_type=paravirtual"
        )
    return option("ide-cd", **pairs, **ide_address(place, machine))


def _floppy(machine: str, hvparams: Params) -> list[str]:
    """Return the floppy in the board's drive; q35 has none, and gets a controller."""
    words = _drive("floppy0", str(hvparams[_FLOPPY]))
    first = {"bootindexA": 1} if boots_from(hvparams, "floppy") else {}
    if is_q35(machine):
        words += ["-device", option("isa-fdc", id="floppies", **first)]
        place = {"bus": "floppies.0"}
    else:
        words += ["-global", "isa-fdc.bootindexA=1"] if first else []
        place = {}
    return [*words, "-device", option("floppy", drive="floppy0-raw", unit=0, **place)]
