"""UEFI firmware: the code on this host, and the location of each guest's variables.

The variables (for example boot entries) are a file. If the disks are files that every node sees, it is beside the first
disk; otherwise on the node. A live migration transfers its content, because the flash is part of the guest's
state, and the target writes it into a file of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import HypervisorError
from ganeti.base.files import write_atomically
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm.machine import Firmware
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.instance_spec import InstanceSpec

DIRECTORY = Path("/usr/share/OVMF")
SUFFIX = ".uefi-variables"
SIZE_LIMIT = 4 * 1024 * 1024


@dataclass(frozen=True)
class Kind:
    """One build of the firmware: its code, and the initial variables of a new guest."""

    code: Path
    blank: Path

    @property
    def is_here(self) -> bool:
        return self.code.is_file() and self.blank.is_file()


def kinds(directory: Path = DIRECTORY) -> list[Kind]:
    """Return the existing builds of Debian's `ovmf`, the preferred one first."""
    found = [
        Kind(directory / f"OVMF_CODE{size}.fd", directory / f"OVMF_VARS{size}.fd")
        for size in ("_4M", "")
    ]
    return [kind for kind in found if kind.is_here]


def variables_path(paths: Paths, instance: InstanceSpec, disk_paths: Sequence[str]) -> Path:
    """Return the path of a guest's variables."""
    template = DISK_TEMPLATES.get(instance.disk_template)
    if template is not None and template.shared and template.in_files and disk_paths:
        return Path(disk_paths[0] + SUFFIX)
    return paths.uefi_variables / f"{instance.uuid}{SUFFIX}"


def lies_beside_disks(paths: Paths, instance: InstanceSpec, disk_paths: Sequence[str]) -> bool:
    """Return whether the variables are a file that all nodes see."""
    return variables_path(paths, instance, disk_paths).parent != paths.uefi_variables


def prepare(
    paths: Paths,
    instance: InstanceSpec,
    disk_paths: Sequence[str],
    directory: Path = DIRECTORY,
) -> Firmware:
    """Return the flash chips of a guest; new variables if it has none. Blocks. HypervisorError."""
    variables = variables_path(paths, instance, disk_paths)
    found = kinds(directory)
    if not found:
        raise HypervisorError(missing(directory))
    try:
        if not variables.exists():
            if variables.parent == paths.uefi_variables:
                paths.uefi_variables.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(variables, found[0].blank.read_bytes())
        size = variables.stat().st_size
        for kind in found:
            # A guest keeps its first build: the two have variables of different sizes.
            if kind.blank.stat().st_size == size:
                return Firmware(kind.code, variables)
    except OSError as err:
        raise HypervisorError(
            f"the UEFI variables of {instance.name} ({variables}) cannot be used: {err.strerror}"
        ) from err
    raise HypervisorError(
        f"the UEFI variables of {instance.name} ({variables}) have {size} bytes, which fits no firmware in"
        f" {directory}; install the version that made them, or remove the file for new variables"
    )


def missing(directory: Path = DIRECTORY) -> str:
    """Return the sentence for a node without firmware."""
    return f"firmware: {directory} on this node has no UEFI firmware; install ovmf"


def read(paths: Paths, instance: InstanceSpec, disk_paths: Sequence[str]) -> bytes | None:
    """Return the variables of a guest, or None if it has none here. Blocks."""
    path = variables_path(paths, instance, disk_paths)
    try:
        with path.open("rb") as file:
            content = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise HypervisorError(f"{path} cannot be read: {err.strerror}") from err
    if len(content) > SIZE_LIMIT:
        raise HypervisorError(
            f"{path} has more than {SIZE_LIMIT} bytes and is not a file of UEFI variables"
        )
    return content


def write(paths: Paths, instance: InstanceSpec, disk_paths: Sequence[str], content: bytes) -> None:
    """Store the variables of a guest here. Blocks."""
    if not 0 < len(content) <= SIZE_LIMIT:
        raise HypervisorError(f"{len(content)} bytes are not UEFI variables")
    path = variables_path(paths, instance, disk_paths)
    try:
        if path.parent == paths.uefi_variables:
            paths.uefi_variables.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as err:
        raise HypervisorError(f"{path} cannot be written: {err.strerror}") from err


def forget(paths: Paths, instance: InstanceSpec, disk_paths: Sequence[str]) -> None:
    """Remove the variables of a guest; no-op if there are none. Blocks."""
    path = variables_path(paths, instance, disk_paths)
    try:
        path.unlink(missing_ok=True)
    except OSError as err:
        raise HypervisorError(f"{path} cannot be removed: {err.strerror}") from err
