"""gnt-group: node groups, their parameters and policies."""

import argparse
from typing import Any, NoReturn

from ganeti.cli.declared import program
from ganeti.cli.ispecs_commands import add_group_command
from ganeti.cli.options import FIELD_NAMES, JSON, LIST_OPTIONS, TABLE_OPTIONS
from ganeti.cli.output import (
    Tree,
    or_default,
    print_fields,
    print_list,
    print_objects,
    print_tree,
    wanted_filter,
)
from ganeti.cli.policy_options import policy_tree
from ganeti.cli.tags import GROUP_KIND, add_tag_commands
from ganeti.clients import fields
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument

table = program(
    "gnt-group", "Makes, changes and removes node groups: nodes that share policies and parameters."
)

DEFAULT_FIELDS = ("name", "node_cnt", "pinst_cnt", "alloc_policy", "ndparams")
GROUPS = Argument("names", "names of groups", nargs="*", completion="group")


@table.command("list", GROUPS, *LIST_OPTIONS)
def list_groups(args: argparse.Namespace) -> int:
    """List node groups with their nodes and instances.

    GNT_GROUP_LIST in the environment replaces the default fields.
    """
    filter_ = wanted_filter("name", args.names, args.filter)
    return print_list(args, "group", DEFAULT_FIELDS, variable="GNT_GROUP_LIST", filter_=filter_)


@table.command("list-fields", FIELD_NAMES, *TABLE_OPTIONS)
def list_fields(args: argparse.Namespace) -> int:
    """List the fields that list can show."""
    return print_fields(args, "group")


_INFO_FIELDS = (
    *("name", "uuid", "alloc_policy", "node_list", "pinst_list", "ndparams", "custom_ndparams"),
    *("diskparams", "custom_diskparams", "ipolicy", "custom_ipolicy", "tags"),
)


@table.command("info", GROUPS, JSON, aliases=("show",))
def info(args: argparse.Namespace) -> int:
    """Show groups with their nodes, parameters and policy; all without names."""
    with LuxiClient() as client:
        rows = client.rows("Groups", args.names, fields.GROUP if args.is_json else _INFO_FIELDS)
    if args.is_json:
        return print_objects(fields.GROUP, rows)
    print_tree([_described(dict(zip(_INFO_FIELDS, row, strict=True))) for row in rows])
    return 0


def _described(group: dict[str, Any]) -> list[tuple[str, Any]]:
    own, actual = group["custom_diskparams"], group["diskparams"]
    return [
        ("Node group", group["name"]),
        ("UUID", group["uuid"]),
        ("alloc_policy", group["alloc_policy"]),
        ("nodes", group["node_list"]),
        ("primary instances", group["pinst_list"]),
        ("tags", group["tags"]),
        ("Node parameters", or_default(group["custom_ndparams"], group["ndparams"])),
        (
            "Disk parameters",
            {name: or_default(own.get(name, {}), actual[name]) for name in sorted(actual)},
        ),
        ("Instance policy", _policy(group)),
    ]


def _policy(group: dict[str, Any]) -> Tree:
    own = group["custom_ipolicy"]
    shown = policy_tree(group["ipolicy"], own)
    return [one for one in shown if one[0] != "std" or "std" in own]


add_group_command(table)
add_tag_commands(table, GROUP_KIND)


def main() -> NoReturn:
    """The program."""
    table.main()
