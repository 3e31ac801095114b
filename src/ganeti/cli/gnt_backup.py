"""gnt-backup: exports of instances."""

import argparse
from typing import Any, NoReturn

from ganeti.base.errors import InputError
from ganeti.base.sizes import parse_mib
from ganeti.base.terminal import say
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
from ganeti.model.operation import INSTANCE
from ganeti.protocols.query_language import both

table = program(
    "gnt-backup",
    "Exports instances with their disks to a directory on a node, and makes instances from exports.",
)

EXPORT_KIND = ObjectKind(query="export", listed=("node", "export"))
NODE = option(
    "-n", "--node", dest="target_node", metavar="NODE", required=True, completion="node",
    help="node that gets the export",
)  # fmt: skip
IMAGE_FORMATS = ("auto", "raw", "qcow2", "vmdk", "ova", "ovf")


@table.command("export", INSTANCE, NODE, OpOptions("backup.OpBackupExport"), FORCE, *JOB_OPTIONS)
def export(args: argparse.Namespace) -> int:
    """Write an instance's disks and its description to a node, below /srv/ganeti/export.

    Where the storage has snapshots, the guest is down only while they are taken; else until all is
    written. An earlier export of the instance is replaced once the new one is whole. The export script
    of its OS makes the data; without one, disks are copied as they are. With --compress=none, Ganeti
    2 and 3 can import it. With --ova other hypervisors can: NAME.ova is in the export's directory, has
    the disks as VMDK, memory, processors and the number of network interfaces, and goes with the export.
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
        "instance.OpInstanceCreate", without=("start", "no_install", "explain")
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
    option("--image", dest="image", metavar="FILE", completion="file",
           help="import an image of a machine, on --src-node below a directory of image-paths"),
    option("--format", dest="src_format", choices=IMAGE_FORMATS,
           help="format of the image; default: by its header"),
    option("--identify-defaults", dest="identify_defaults", action="store_true",
           help="use the cluster's defaults where the export has the same values"),
    option("--no-nics", "--no-nic", dest="no_nics", action="store_true",
           help="create no network interface, even if the export has some"),
    option("--compress", dest="compress", choices=tuple(COMPRESSIONS), default=NONE,
           help="compress the data of an uncompressed export during the transfer"),
    *JOB_OPTIONS,
)  # fmt: skip
def import_(args: argparse.Namespace) -> int:
    """Make an instance from an export, and leave it down.

    What is not said here is as it was exported: disks, network interfaces, OS, parameters, tags. MAC
    addresses are kept only under the exported name. The digest of each disk is compared with the one
    that the export has. The OS is told its name by its rename script.

    With --image the machine comes from elsewhere: an OVA or OVF with the images of its disks (memory, processors,
    number of network interfaces and disks are taken from it), or one image of a disk, raw, qcow2 or
    VMDK. It lies on --src-node (the master without) below a directory that this node's /etc/ganeti/image-paths lists
    one a line, or below /srv/ganeti/images if there is no such file. Its format is read in its header, or named
    by --format, and never guessed by the tool that converts it, which runs confined. Images with backing
    files or data elsewhere are refused. A whole disk is converted on --src-node first, so it needs room for it.
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
    if args.image:
        if args.src_path:
            raise InputError("is an export; --image is not", "--src-dir")
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
           help="only exports on this node; may be repeated"),
    *LIST_OPTIONS,
)  # fmt: skip
def list_exports(args: argparse.Namespace) -> int:
    """List the exports of all nodes; a node that did not answer has a line that says so."""
    if args.nodes:
        with LuxiClient() as client:
            client.rows("Nodes", args.nodes, ["name"])  # or a wrong name would have no exports
    filter_ = both(
        wanted_filter("node", args.nodes or [], None), wanted_filter("", [], args.filter)
    )
    return print_list(args, EXPORT_KIND, filter_)


add_list_fields(table, EXPORT_KIND)


def main() -> NoReturn:
    """The program."""
    table.main()
