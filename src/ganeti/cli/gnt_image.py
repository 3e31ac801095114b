"""gnt-image: images of disks for new instances."""

import argparse
from pathlib import Path
from typing import NoReturn

from ganeti.base.errors import GanetiError
from ganeti.base.files import listed_lines
from ganeti.base.paths import Paths
from ganeti.base.sizes import format_mib
from ganeti.base.terminal import say
from ganeti.cli.declared import program
from ganeti.cli.errors import JobSubmitted
from ganeti.cli.jobs import run_given
from ganeti.cli.objects import ObjectKind, add_info, add_list, shown
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import JOB_OPTIONS
from ganeti.clients.luxi import ConnectionBrokenError, MasterDownError
from ganeti.model.image_source import IMAGE_DIRECTORY, UPLOAD, is_url, upload_of
from ganeti.model.operation import IMAGE, Argument

table = program(
    "gnt-image",
    "Import, copy, export and remove images of disks, from which instances are created.",
)

SOURCE = Argument("source", "file of this host or of the node, or https URL", completion="file")


@table.command("import", IMAGE, SOURCE, OpOptions("image.OpImageImport"), *JOB_OPTIONS)
def import_image(args: argparse.Namespace) -> int:
    """Store an image of one or several disks: from a file, or from an https URL.

    With --node the file is one of that node. It must be below a directory that /etc/ganeti/image-paths on the node
    lists, one a line; without that file, the directory is /srv/ganeti/images. Without --node, the file is one of this
    host, the master's, and may be anywhere: outside those directories the command first copies it to
    /srv/ganeti/image-uploads. The master's node downloads a URL itself, and accepts it only with the digest. REST
    clients upload files; see ganeti-rapi(8).

    An OVA or OVF file can have several disks, and sets the memory, the processors and the number of network
    interfaces of new instances.

    The image is converted to raw disks, whose SHA-256 the cluster records. The node keeps them below
    /srv/ganeti/image-store. Other nodes get a copy when an instance with the image is created there, or by
    'gnt-image copy'. An import leaves a whole image, or nothing.
    """
    paths, local = Paths.from_environment(), _local_file(args)
    if local is None or _is_readable_by_node(paths, local):
        run_given(args, source=args.source if local is None else paths.named(local))
        return 0
    from ganeti.images.uploads import copy_in, forget

    say(f"copying {local} to {paths.image_uploads}")
    ident = copy_in(paths.image_uploads, local)
    try:
        run_given(args, source=UPLOAD + ident)
    except (JobSubmitted, ConnectionBrokenError, MasterDownError):
        raise  # the job may still read the copy; ganeti-cleaner removes it a day later
    except GanetiError:
        forget(paths.image_uploads, ident)
        raise
    forget(paths.image_uploads, ident)
    return 0


def _local_file(args: argparse.Namespace) -> Path | None:
    """Return the file of this host that the command line names, or None."""
    if args.node is not None or is_url(args.source) or upload_of(args.source):
        return None
    path = Path(args.source).absolute()
    return path if path.is_file() else None


def _is_readable_by_node(paths: Paths, path: Path) -> bool:
    """Return whether a file is below a directory that this node allows for images; the node checks it again."""
    return any(
        path.is_relative_to(paths.below(line))
        for line in listed_lines(paths.image_paths, IMAGE_DIRECTORY)
        if line.startswith("/")
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
