"""Images, whose content new instances get."""

from collections.abc import Iterator

from ganeti.base.errors import ErrorCode, InputError
from ganeti.base.identifiers import plain_name
from ganeti.config.index import Claim
from ganeti.config.kinds.kind import Kind, Problem, name_problems
from ganeti.config.view import View
from ganeti.model.hypervisors.kvm import FIRMWARES
from ganeti.model.limits import MAX_DISK_MIB, MAX_DISKS, MAX_NICS
from ganeti.model.objects import Cluster, Image

DESCRIPTION_LIMIT = 1024


def _claims(_cluster: Cluster, image: Image) -> Iterator[Claim]:
    yield Claim("image name", image.name)


def _problems(view: View, image: Image) -> Iterator[Problem]:
    yield from name_problems(plain_name, image.name, "image name")
    try:
        check_image(image)
    except InputError as err:
        yield err.code, f"image {image.name}: {err}"
    for node in image.nodes:
        if node not in view.nodes:
            yield ErrorCode.UNKNOWN_ENTITY, f"image {image.name}: its node {node} does not exist"


def check_image(image: Image) -> None:
    """Refuse invalid descriptions, sizes and hints; InputError names the field."""
    if len(image.description) > DESCRIPTION_LIMIT or not image.description.isprintable():
        raise InputError(
            f"must be one line of at most {DESCRIPTION_LIMIT} printable characters", "description"
        )
    if image.firmware not in ("", *FIRMWARES):
        raise InputError(f"must be one of {', '.join(FIRMWARES)}, or none", "firmware")
    if not 1 <= len(image.disks) <= MAX_DISKS or image.nics > MAX_NICS:
        raise InputError(
            f"must have 1 to {MAX_DISKS} disks, and at most {MAX_NICS} interfaces", "disks"
        )
    if any(not 0 < disk.size <= MAX_DISK_MIB for disk in image.disks):
        raise InputError(f"each must have 1 to {MAX_DISK_MIB} MiB", "disks")
    if image.disk_size and not image.disks[0].size <= image.disk_size <= MAX_DISK_MIB:
        raise InputError(
            f"must be at least the {image.disks[0].size} MiB of the image, and at most"
            f" {MAX_DISK_MIB} MiB",
            "disk_size",
        )


IMAGE = Kind("image", Image, _claims, _problems)
