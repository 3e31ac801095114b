"""gnt-backup: exports of instances."""

import argparse
import os
import sys
from typing import Any, NoReturn

from ganeti.base.errors import InputError
from ganeti.base.sizes import parse_mib
from ganeti.base.terminal import say
from ganeti.cli.backup_keys import KEY_FILE, add_keys
from ganeti.cli.backup_schedules import add_schedule
from ganeti.cli.command import option
from ganeti.cli.declared import program
from ganeti.cli.jobs import run_job, run_opcode
from ganeti.cli.key_values import name_and_values
from ganeti.cli.objects import ObjectKind, add_list_fields, print_list
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import FORCE, JOB_OPTIONS, LIST_OPTIONS
from ganeti.cli.output import wanted_filter
from ganeti.clients.luxi import LuxiClient
from ganeti.model.compression import COMPRESSIONS, NONE
from ganeti.model.image_source import SOURCE_FORMATS
from ganeti.model.operation import INSTANCE, Argument
from ganeti.protocols.query_language import both

table = program(
    "gnt-backup",
    "Export instances with their disks to a directory on a node, and create instances from exports.",
)

BACKUP_KIND = ObjectKind(
    query="backup",
    listed=(
        "node",
        "target",
        "instance",
        "backup",
        "ctime",
        "consistency",
        "disk_size",
        "stored",
        "proof",
        "problem",
    ),
)
EXPORT_KIND = ObjectKind(query="export", listed=("node", "export"))
NODE = option(
    "-n", "--node", dest="target_node", metavar="NODE", required=True, completion="node",
    help="node that stores the export",
)  # fmt: skip


@table.command("export", INSTANCE, NODE, OpOptions("backup.OpBackupExport"), FORCE, *JOB_OPTIONS)
def export(args: argparse.Namespace) -> int:
    """Export an instance's disks and description to /srv/ganeti/export on a node.

    If the storage supports snapshots, the guest is down only while they are taken. Otherwise it is down
    until the export is complete. A complete export replaces an earlier export of the instance.
    The export script of the OS produces the data; an OS without this script has its disks copied as they
    are. Ganeti 2 and 3 can import an export that was written with --compress=none.
    With --ova the export's directory also holds NAME.ova, which other hypervisors can import. It contains the
    disks as VMDK, the memory, the processors and the number of network interfaces. Removing the export
    removes NAME.ova too.
    """
    with LuxiClient() as client:
        name = client.rows("Instances", [args.instance_name], ["name"])[0][0]
        op = args.op.opcode(args, instance_name=name, target_node=args.target_node)
        run_job(client, op, args)
    return 0


@table.command(
    "import",
    INSTANCE,
    OpOptions(
        "instance.OpInstanceCreate", without=("start", "no_install", "explain", "image")
    ),
    option("-n", "--node", metavar="NODE[:SECONDARY]", completion="node",
           help="primary node, and the secondary node of mirrored disks"),
    option("-s", "--os-size", dest="os_size", metavar="SIZE", help="size of the only disk"),
    option("-H", "--hypervisor-parameters", "--hypervisor", dest="hypervisor",
           metavar="HYPERVISOR[:k=v,...]", help="hypervisor and its parameters"),
    option("--src-node", dest="src_node", metavar="NODE", completion="node",
           help="node that has the export; default: search all nodes"),
    option("--src-dir", dest="src_path", metavar="NAME",
           help="name of the export, or /srv/ganeti/export/NAME; default: the instance's name"),
    option("--backup", dest="src_backup", metavar="BACKUP",
           help="create the instance from this backup of it, or of the instance that --src-dir names"),
    option("--allow-unencrypted", dest="src_unencrypted", action="store_true",
           help="read a backup that is not encrypted, although the cluster encrypts its backups"),
    option("--image", dest="image", metavar="FILE", completion="file",
           help="import a machine image from --src-node; it must be below a directory listed in image-paths"),
    option("--format", dest="src_format", choices=SOURCE_FORMATS,
           help="format of the image; default: detected from its header"),
    option("--identify-defaults", dest="identify_defaults", action="store_true",
           help="use the cluster's defaults where the export has the same values"),
    option("--no-nics", "--no-nic", dest="no_nics", action="store_true",
           help="create no network interfaces, even if the export has some"),
    option("--compress", dest="compress", choices=tuple(COMPRESSIONS), default=NONE,
           help="compress the data of an uncompressed export during the transfer"),
    *JOB_OPTIONS,
)  # fmt: skip
def import_(args: argparse.Namespace) -> int:
    """Create an instance from an export, and leave it down.

    Options override the exported disks, network interfaces, OS, parameters and tags. MAC addresses are
    kept only if the instance keeps the exported name. The digest of each disk must match the digest in the
    export. The rename script of the OS changes the name in the installed system.

    With --backup the instance is created from an incremental backup (gnt-backup points). Private OS parameters
    are not in a backup; pass them again.

    With --image the instance is created from a machine image: an OVA or OVF file with its disk images, or a
    single disk image in raw, qcow2 or VMDK format. An OVA or OVF file also sets the memory, the processors, the
    disks and the number of network interfaces. The image must be on --src-node (default: the master), below a
    directory that /etc/ganeti/image-paths on that node lists, one a line. If this file does not exist,
    the directory is /srv/ganeti/images. The format is read from the header or set by --format. The confined
    conversion tool never guesses it. Images with backing files or external data are refused. The node
    converts a whole disk before it copies the disk, so --src-node needs free space for the converted disk.
    """
    from ganeti.model.opcodes.base import DiskRequest

    primary, _, secondary = (args.node or "").partition(":")
    if args.src_format and not args.image:
        raise InputError("only with --image", "--format")
    given: dict[str, Any] = {
        "mode": "import",
        "start": False,
        "pnode": primary or None,
        "snode": secondary or None,
    }
    hypervisor = name_and_values(args.hypervisor, "hypervisor") if args.hypervisor else (None, {})
    given["hypervisor"], given["hvparams"] = hypervisor
    if args.os_size:
        given["disks"] = [DiskRequest(size=parse_mib(args.os_size, "os_size"))]
    given["src_backup"], given["src_unencrypted"] = args.src_backup, args.src_unencrypted
    if args.image:
        if args.src_path:
            raise InputError("names an export, so it cannot be used with --image", "--src-dir")
        given["src_path"], given["src_format"] = args.image, args.src_format or "auto"
        given["src_node"] = args.src_node or _master()
    result = run_opcode(args.op.opcode(args, **given), args)
    if args.dry_run:
        say(f"The instance would be on: {', '.join(result)}")
    return 0


def _master() -> str:
    with LuxiClient() as client:
        return str(client.cluster_info()["master"])


@table.command(
    "list",
    option("-n", "-N", "--node", dest="nodes", action="append", metavar="NODE", completion="node",
           help="list only exports on this node; may be repeated"),
    *LIST_OPTIONS,
)  # fmt: skip
def list_exports(args: argparse.Namespace) -> int:
    """List the exports of all nodes, and the nodes that did not answer."""
    if args.nodes:
        with LuxiClient() as client:
            client.rows(
                "Nodes", args.nodes, ["name"]
            )  # Without this query a wrong name would look like a node without exports.
    filter_ = both(
        wanted_filter("node", args.nodes or [], None), wanted_filter("", [], args.filter)
    )
    return print_list(args, EXPORT_KIND, filter_)


@table.command(
    "points",
    Argument(
        "names",
        "instances whose backups are listed; default: all",
        nargs="*",
        completion="instance",
    ),
    *LIST_OPTIONS,
)
def list_points(args: argparse.Namespace) -> int:
    """List the incremental backups in all directories of all nodes, and the nodes that did not answer.

    The names of instances are complete ones; the instances need not exist any more. A backup whose manifest is damaged
    has a problem instead of a size.

    The proof of a backup is "good" after its drill (gnt-backup drill) or, if no drill was requested, after its check
    (gnt-backup check). It is "failed" if the last check or drill found a problem, and "unproven" before. The fields
    checked, drilled and failure have the times, and the first problem. A removal of older backups rewrites the images
    of the oldest remaining one: its check no longer counts, its drill does.
    """
    filter_ = both(wanted_filter("instance", args.names, None), wanted_filter("", [], args.filter))
    return print_list(args, BACKUP_KIND, filter_)


@table.command(
    "mount",
    Argument("instance", "name of the instance, which need not exist any more", completion="instance"),
    option("--point", metavar="BACKUP", help="the backup; default: the last one"),
    option("--target", metavar="DIRECTORY", completion="file", help="directory for backups on this node; default: the one that has backups of the instance"),
    KEY_FILE,
)  # fmt: skip
def mount(args: argparse.Namespace) -> int:
    """Serve the disks of an incremental backup on this node, read-only, until Ctrl-C.

    The command runs as root on the node that has the backup; 'gnt-backup points' on the master shows which one that is. It needs
    no master. The disks can be read by NBD at a socket that only root can reach. The command prints how to mount their
    file systems, for single files, and how to copy a whole disk.

    Each piece of an image is compared with its SHA-256 before a byte of it is shown; a damaged piece is an error of
    the read, and the command names it. The images are read by a process of its own without privileges. A file system
    of a guest can attack the kernel that mounts it: guestmount reads it in a virtual machine. A backup that is removed
    meanwhile can still be read.

    An encrypted backup needs --key-file, because nodes have no keys: 'gnt-backup key export | ssh NODE gnt-backup mount
    --key-file=- INSTANCE' on the master.
    """
    words = [sys.executable, "-P", "-m", "ganeti.node.backups.mount"]
    words += [
        f"--{name}={value}"
        for name in ("point", "target", "key-file")
        if (value := getattr(args, name.replace("-", "_")))
    ]
    os.execv(words[0], [*words, "--", args.instance])  # noqa: S606 - a program of this project


add_schedule(table)
add_keys(table)
add_list_fields(table, EXPORT_KIND)


def main() -> NoReturn:
    """Run the program."""
    table.main()
