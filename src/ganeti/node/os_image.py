"""The OS definition `image`: a disk that the administrator names, and a seed for cloud-init in it.

Its scripts are stubs that run this as a program, `ganeti-os-image ROOT create|rename|verify`, with
the environment of OS scripts (`docs/man/ganeti-os-image.md`). `ROOT` is that of the node's paths.
Messages go to standard error.
"""

import base64
import binascii
import contextlib
import hashlib
import ipaddress
import os
import shutil
import stat
import string
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from ganeti.base.errors import GanetiError, GuestOsError, InputError
from ganeti.base.identifiers import host_name, is_absolute_path, plain_name
from ganeti.base.paths import Paths
from ganeti.base.terminal import say
from ganeti.images.convert import MIB, convert_image, pieces, write_all
from ganeti.images.download import fetch
from ganeti.images.package import DiskImage, Member, open_beside
from ganeti.model.image_source import check_url
from ganeti.node.images import opened_image
from ganeti.protocols.cloud_seed import LABEL, renamed, seed_files
from ganeti.protocols.fat_image import SECTOR, fat_files, fat_image
from ganeti.protocols.image_headers import QCOW2, RAW, inspect_image

SCRIPTS = ("create", "rename", "verify")
DEFINITION = Path(__file__).resolve().parent.parent / "images" / "definition"
USER_DATA_LIMIT = 512 * 1024
_SEED_LIMIT = 4 * MIB
_SHA256 = 64
_ADDRESS = "https://"
_NONE = "none"


@dataclass(frozen=True)
class SeedParameters:
    """The checked parameters of the OS; '' for a missing one."""

    image: str
    stored_image: str
    format: str
    sha256: str
    seed_disk: str
    user_data: bytes
    user_data_file: str
    ssh_key: str
    dns: tuple[str, ...]

    @property
    def wants_seed(self) -> bool:
        return bool(self.user_data or self.user_data_file or self.ssh_key or self.dns)


def parameters_of(environment: Mapping[str, str]) -> SeedParameters:
    """Return the parameters in a script's environment; InputError names a wrong one."""
    given = {
        name: environment.get(f"OSP_{name.upper()}", "") for name in SeedParameters.__annotations__
    }
    if given["format"] not in ("", RAW, QCOW2):
        raise InputError(f"must be {RAW} or {QCOW2}", "format")
    sha256 = given["sha256"].lower()
    if sha256 and (len(sha256) != _SHA256 or set(sha256) - set(string.hexdigits)):
        raise InputError("must have 64 hexadecimal digits", "sha256")
    _check_stored(given)
    if given["image"].startswith(_ADDRESS):
        check_url(given["image"])
    for name in ("image", "user_data_file"):
        if (
            given[name]
            and not is_absolute_path(given[name])
            and not given[name].startswith(_ADDRESS)
        ):
            raise InputError(
                "must be an absolute path" + " or an https address" * (name == "image"), name
            )
    if given["seed_disk"] not in ("", _NONE) and not given["seed_disk"].isdecimal():
        raise InputError(f"must be a disk number or {_NONE}", "seed_disk")
    if given["user_data"] and given["user_data_file"]:
        raise InputError(
            "user_data and user_data_file exclude each other; pass only one", "user_data"
        )
    for one in given["dns"].split():
        _check_ip(one)
    return SeedParameters(
        **{
            **given,
            "sha256": sha256,
            "user_data": _decoded(given["user_data"]),
            "dns": tuple(given["dns"].split()),
        }  # type: ignore[arg-type]  # two of another type
    )


def _check_stored(given: Mapping[str, str]) -> None:
    """Refuse a stored image together with another one."""
    if not given["stored_image"]:
        return
    plain_name(given["stored_image"], "stored_image")
    for name in ("image", "format", "sha256"):
        if given[name]:
            raise InputError(f"excludes {name}; pass only one", "stored_image")


def _check_ip(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError as err:
        raise InputError(f"{text!r:.60} is not an address", "dns") from err


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as err:
        raise InputError("must be in base64 (base64 -w0 FILE)", "user_data") from err


def create(paths: Paths, environment: Mapping[str, str]) -> None:
    """Write the image onto the first disk, and the seed onto its disk.

    The cluster has written a stored image before this script runs.
    """
    parameters = parameters_of(environment)
    for name in ("image", "format"):
        if not getattr(parameters, name) and not parameters.stored_image:
            raise InputError(f"pass it with -O {name}=..., or use --image", name)
    if parameters.image.startswith(_ADDRESS) and not parameters.sha256:
        raise InputError("is required for an image from a URL", "sha256")
    count = int(environment.get("DISK_COUNT", "0"))
    if not count:
        raise GuestOsError("the instance has no disk; the image needs a first disk")
    seed_disk = _seed_disk(parameters, count)
    content = _seed(paths, parameters, environment, seed_disk)
    for number in (0, seed_disk):
        if number is not None and environment.get(f"DISK_{number}_ACCESS") == "ro":
            raise GuestOsError(f"disk {number} is read-only")
    if not parameters.stored_image:
        with (
            _work_directory(paths, environment) as work,
            _source(paths, parameters, work) as source,
        ):
            _write_image(source, parameters, environment["DISK_0_PATH"], work)
    if seed_disk is not None:
        _write_seed(environment[f"DISK_{seed_disk}_PATH"], content)
        say(f"disk {seed_disk} has the settings for cloud-init", file=sys.stderr)


def _seed_disk(parameters: SeedParameters, count: int) -> int | None:
    """Return the number of the disk that gets the seed, if one does."""
    if parameters.seed_disk == _NONE or (not parameters.seed_disk and count == 1):
        if parameters.wants_seed:
            raise GuestOsError(
                "no disk for the cloud-init settings exists; add a disk of a few MiB"
            )
        return None
    number = int(parameters.seed_disk) if parameters.seed_disk else count - 1
    if not 0 < number < count:
        raise InputError(
            f"{number} must be from 1 to {count - 1}: the image itself is on disk 0", "seed_disk"
        )
    return number


def _seed(
    paths: Paths, parameters: SeedParameters, environment: Mapping[str, str], seed_disk: int | None
) -> dict[str, bytes]:
    if seed_disk is None:
        return {}
    user_data = parameters.user_data
    if parameters.user_data_file:
        with opened_image(paths, parameters.user_data_file) as beside:
            descriptor = beside(Path(parameters.user_data_file).name)
            with os.fdopen(descriptor, "rb") as file:
                user_data = file.read(USER_DATA_LIMIT + 1)
    if len(user_data) > USER_DATA_LIMIT:
        raise InputError(f"has more than {USER_DATA_LIMIT} bytes", "user_data_file")
    return seed_files(
        environment, user_data=user_data, ssh_key=parameters.ssh_key, dns=parameters.dns
    )


@contextlib.contextmanager
def _work_directory(paths: Paths, environment: Mapping[str, str]) -> Iterator[Path]:
    """Provide a directory for downloads and conversions, without rests of interrupted ones."""
    work = paths.image_work / host_name(environment["INSTANCE_NAME"], "INSTANCE_NAME")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(mode=0o700, parents=True)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def _source(paths: Paths, parameters: SeedParameters, work: Path) -> Iterator[Member]:
    """Open the image file; return it with its required digest."""
    if parameters.image.startswith(_ADDRESS):
        say(f"fetching {parameters.image}", file=sys.stderr)
        free = shutil.disk_usage(work).free
        with (work / "fetched").open("xb") as file:
            fetch(parameters.image, file, free)
        directory = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
        descriptor = open_beside(directory, "fetched")
        os.close(directory)
    else:
        with opened_image(paths, parameters.image) as beside:
            descriptor = beside(Path(parameters.image).name)
    try:
        found = Member(Path(parameters.image).name, descriptor, 0, os.fstat(descriptor).st_size)
        if parameters.sha256:
            _check_digest(found, parameters.sha256)
        yield found
    finally:
        os.close(descriptor)


def _check_digest(source: Member, sha256: str) -> None:
    digest = hashlib.sha256()
    for _, data in pieces(source, with_holes=True):
        digest.update(data)
    if digest.hexdigest() != sha256:
        raise GuestOsError(
            f"the digest of {source.name} is {digest.hexdigest()}, not the value of sha256: the "
            "file differs or is damaged"
        )


def _write_image(source: Member, parameters: SeedParameters, disk: str, work: Path) -> None:
    facts = inspect_image(source.read, source.length, parameters.format)
    with open(disk, "r+b", buffering=0) as target:  # noqa: PTH123 - a device or a file
        room = target.seek(0, os.SEEK_END)
        if facts.size > room:
            raise GuestOsError(
                f"the image is a disk of {-(-facts.size // MIB)} MiB, but the instance's first "
                f"disk has {room // MIB} MiB: enlarge the first disk"
            )
        if facts.format == RAW:
            _copy(source, target.fileno(), room)
        else:
            convert_image(DiskImage(source, facts), work / "disk")
            with (work / "disk").open("rb") as converted:
                disk_of = replace(source, descriptor=converted.fileno(), length=facts.size)
                _copy(disk_of, target.fileno(), room)
        os.fsync(target.fileno())
    say(f"{source.name}: {facts.size // MIB} MiB written to {disk}", file=sys.stderr)


def _copy(source: Member, target: int, room: int) -> None:
    """Copy the whole disk; on a device, old data remains only beyond the image's end."""
    is_file = stat.S_ISREG(os.fstat(target).st_mode)
    if is_file:
        os.ftruncate(target, 0)
        os.ftruncate(target, room)
    for offset, data in pieces(source, with_holes=not is_file):
        write_all(target, data, offset)


def _write_seed(disk: str, files: Mapping[str, bytes]) -> None:
    with open(disk, "r+b", buffering=0) as target:  # noqa: PTH123 - a device or a file
        room = min(target.seek(0, os.SEEK_END), _SEED_LIMIT)
        write_all(target.fileno(), fat_image(LABEL, files, room // SECTOR), 0)
        os.fsync(target.fileno())


def rename(environment: Mapping[str, str]) -> None:
    """Write the new name into the seed.

    Cloud-init applies it at the next boot. Without a seed nothing is done.
    """
    for number in range(1, int(environment.get("DISK_COUNT", "0"))):
        disk = environment[f"DISK_{number}_PATH"]
        with open(disk, "rb") as file:  # noqa: PTH123 - a device or a file
            content = file.read(_SEED_LIMIT)
        with contextlib.suppress(InputError):
            files = renamed(fat_files(content), environment, environment.get("OSP_DNS", "").split())
            _write_seed(disk, files)
            say(f"the settings on disk {number} have the new name", file=sys.stderr)
            return
    say("no disk has settings for cloud-init: the system keeps its name", file=sys.stderr)


def install(directory: Path, program: str, root: Path = Path("/")) -> None:
    """Write the OS definition; its scripts run `program`."""
    directory.mkdir(parents=True, exist_ok=True)
    for source in DEFINITION.iterdir():
        text = source.read_text().replace("@PROGRAM@", program).replace("@ROOT@", str(root))
        (directory / source.name).write_text(text)
        (directory / source.name).chmod(0o755 if source.name in SCRIPTS else 0o644)


def run(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run one script; return the exit status, and print errors to standard error."""
    root, script = argv
    try:
        if script == "create":
            create(Paths(Path(root)), environment)
        elif script == "rename":
            rename(environment)
        else:
            parameters_of(environment)
    except (GanetiError, OSError, KeyError) as err:
        say(f"image: {err}", file=sys.stderr)
        return 1
    return 0


def main() -> NoReturn:
    """The program."""
    if len(sys.argv) in (3, 4) and sys.argv[1] == "--install":
        # Scripts run in another directory, so a relative path of this program must be made
        # absolute.
        install(Path(sys.argv[2]), str(Path(sys.argv[0]).absolute()), Path(*sys.argv[3:] or ["/"]))
        sys.exit(0)
    if len(sys.argv) != 3 or sys.argv[2] not in SCRIPTS:  # noqa: PLR2004 - the root and a script
        say(
            f"usage: {sys.argv[0]} ROOT {'|'.join(SCRIPTS)}, or --install DIRECTORY [ROOT]",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.exit(run(sys.argv[1:], os.environ))


if __name__ == "__main__":
    main()
