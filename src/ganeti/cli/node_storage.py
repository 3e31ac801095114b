"""gnt-node list-storage, modify-storage and volumes."""

import argparse
from collections.abc import Sequence
from typing import Any

from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable, option
from ganeti.cli.jobs import run_given
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import JOB_OPTIONS, NODES, QUERY_JOB_OPTIONS, TABLE_OPTIONS
from ganeti.cli.output import format_table, format_value, print_objects, wanted_fields
from ganeti.model.operation import NODE, Argument

_UNITS = option(
    "--units",
    choices=("h", "m", "g", "t"),
    help="unit of sizes: m (MiB), g (GiB), t (TiB) or h (for people; the default without --separator)",
)
_OUTPUT = option(
    "-o",
    "--output",
    metavar="FIELDS",
    help="fields to show, separated by commas; '+a,b' adds to the default",
)
_KIND = Argument("storage_type", "kind of storage: lvm-vg, lvm-pv, lvm-thin, file, sharedfile")
_NAME = Argument("name", "volume group, device or directory")
_STORAGE_FIELDS = ("node", "type", "name", "size", "used", "free", "allocatable")
_VOLUME_FIELDS = ("node", "phys", "vg", "name", "size", "instance")
_TITLES = {"phys": "PhysDev", "vg": "VG"}
_SIZES = ("size", "used", "free")


def add_storage_commands(table: CommandTable) -> None:
    """Add the commands about storage units to the table."""
    table.command(
        "list-storage",
        NODES,
        _OUTPUT,
        _UNITS,
        OpOptions("storage.OpNodeQueryStorage", without=("output_fields",)),
        *TABLE_OPTIONS,
        *QUERY_JOB_OPTIONS,
    )(list_storage)
    table.command(
        "modify-storage",
        NODE,
        _KIND,
        _NAME,
        option(
            "--allocatable",
            choices=("yes", "no"),
            help="whether a physical volume accepts new volumes",
        ),
        option(
            "--create",
            dest="present",
            action="store_true",
            default=None,
            help="create the directory",
        ),
        option(
            "--delete",
            dest="present",
            action="store_false",
            default=None,
            help="delete the directory, which must be empty",
        ),
        OpOptions("storage.OpNodeModifyStorage"),
        *JOB_OPTIONS,
    )(modify_storage)
    table.command(
        "volumes",
        NODES,
        _OUTPUT,
        _UNITS,
        OpOptions("storage.OpNodeQueryvols", without=("output_fields",)),
        *TABLE_OPTIONS,
        *QUERY_JOB_OPTIONS,
    )(volumes)


def list_storage(args: argparse.Namespace) -> int:
    """List the storage units of nodes: volume groups, physical volumes, directories of disks.

    Fields: node, type, name, size, used, free, allocatable, problem.
    """
    fields = wanted_fields(args.output, _STORAGE_FIELDS)
    _print(args, fields, run_given(args, output_fields=fields, nodes=args.names))
    return 0


def modify_storage(args: argparse.Namespace) -> int:
    """Allow or refuse new volumes on a physical volume; create or delete a directory of disks.

    A directory of disks must be below a directory that the node's /etc/ganeti/file-storage-paths lists.
    """
    changes: dict[str, bool] = {}
    if args.allocatable is not None:
        changes["allocatable"] = args.allocatable == "yes"
    if args.present is not None:
        changes["present"] = args.present
    if not changes:
        say("No changes to perform, exiting.")
        return 0
    run_given(args, changes=changes)
    return 0


def volumes(args: argparse.Namespace) -> int:
    """List the logical volumes of nodes and the instances that own them."""
    fields = wanted_fields(args.output, _VOLUME_FIELDS)
    _print(args, fields, run_given(args, output_fields=fields, nodes=args.names))
    return 0


def _print(args: argparse.Namespace, fields: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    if args.is_json:
        print_objects(fields, rows)
        return
    units = args.units or ("h" if args.separator is None else "m")
    kinds = ["unit" if name in _SIZES else "bool" for name in fields]
    shown = [
        [format_value(cell, kind, units) for cell, kind in zip(row, kinds, strict=True)]
        for row in rows
    ]
    titles = [_TITLES.get(name, name.capitalize()) for name in fields]
    for line in format_table(
        None if args.no_headers else titles,
        shown,
        right=[kind == "unit" for kind in kinds],
        separator=args.separator,
    ):
        say(line, keep=args.separator or "")
