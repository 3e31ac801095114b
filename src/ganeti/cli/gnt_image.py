"""gnt-image: images of disks for new instances."""

from typing import NoReturn

from ganeti.base.sizes import format_mib
from ganeti.cli.declared import program
from ganeti.cli.objects import ObjectKind, add_info, add_list, shown
from ganeti.model.operation import Argument

table = program(
    "gnt-image",
    "Import, copy, export and remove images of disks, from which instances are created.",
)


def _mib(size: int) -> str:
    return format_mib(size, "h")


IMAGE_KIND = ObjectKind(
    query="image",
    rows="Images",
    names=Argument("names", "names of images", nargs="*", completion="image"),
    listed=("name", "size", "stored", "node_list", "description"),
    list_help="List images with their sizes and the nodes that have them.",
    info_help="Show images with their digests, hints and copies; default: all images.",
    info=(
        shown("Image name", "name"),
        shown("UUID", "uuid"),
        shown("Serial number", "serial_no"),
        shown("  Description", "description"),
        shown("  Size of its disks", "size", value=_mib),
        shown("  Space on a node", "stored", value=_mib),
        shown("  SHA-256", "disk.sha256", value=", ".join),
        shown("  First disk of new instances", "disk_size", value=_mib),
        shown("  Firmware", "firmware"),
        shown("  Settings for cloud-init", "cloud_init"),
        shown("  Nodes", "node_list", value=", ".join),
    ),
)
add_list(table, IMAGE_KIND)
add_info(table, IMAGE_KIND)


def main() -> NoReturn:
    """Run the program."""
    table.main()
