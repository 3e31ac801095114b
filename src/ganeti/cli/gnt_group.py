"""gnt-group: node groups, their parameters and policies."""

import argparse
from collections.abc import Iterator
from typing import Any, NoReturn

from ganeti.base.errors import InputError
from ganeti.base.terminal import say
from ganeti.cli.command import Argument, CommandTable
from ganeti.cli.confirmation import confirm
from ganeti.cli.ispecs_commands import add_group_command
from ganeti.cli.jobs import run_given, run_job
from ganeti.cli.many_jobs import wait_for_all
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import (
    FIELD_NAMES,
    FORCE,
    GROUP,
    JOB_OPTIONS,
    JSON,
    LIST_OPTIONS,
    TABLE_OPTIONS,
)
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

table = CommandTable(
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


@table.command("add", GROUP, OpOptions("group.OpGroupAdd"), *JOB_OPTIONS)
def add(args: argparse.Namespace) -> int:
    """Make a node group, without nodes; assign-nodes puts some into it."""
    run_given(args)
    return 0


@table.command("modify", GROUP, OpOptions("group.OpGroupSetParams"), *JOB_OPTIONS)
def modify(args: argparse.Namespace) -> int:
    """Change a group's allocation policy, parameters and instance policy.

    Only what is given changes; 'default' as a part of the policy takes the cluster's again.
    """
    if not args.op.given(args):
        raise InputError(
            "nothing to change: pass at least one option; --help lists them", "options"
        )
    changes = run_given(args)
    if changes:
        say(f"Modified group {args.group_name}")
        for name, value in changes:
            for key, one in _changes(name, value):
                say(f" - {key:<5} -> {one}")
    return 0


def _changes(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What has changed, nested parameters as `ndparams/spindle_count`."""
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _changes(f"{name}/{key}", one)
    else:
        yield name, "default" if value is None else value


@table.command("remove", GROUP, OpOptions("group.OpGroupRemove"), *JOB_OPTIONS)
def remove(args: argparse.Namespace) -> int:
    """Remove a group that has no nodes."""
    run_given(args)
    return 0


@table.command(
    "rename",
    GROUP,
    Argument("new_name", "the new name"),
    OpOptions("group.OpGroupRename"),
    *JOB_OPTIONS,
)
def rename(args: argparse.Namespace) -> int:
    """Give a group another name."""
    run_given(args)
    return 0


@table.command(
    "assign-nodes",
    GROUP,
    Argument("nodes", "nodes that come into the group", nargs="+", completion="node"),
    FORCE,
    OpOptions("group.OpGroupAssignNodes"),
    *JOB_OPTIONS,
)
def assign_nodes(args: argparse.Namespace) -> int:
    """Put nodes into a group, out of the one that they are in.

    With --force also where a mirrored instance would have its nodes in two groups.
    """
    run_given(args)
    return 0


@table.command("evacuate", GROUP, FORCE, OpOptions("group.OpGroupEvacuate"), *JOB_OPTIONS)
def evacuate(args: argparse.Namespace) -> int:
    """Move all instances of a group to other groups, as an allocator says."""
    confirm(f"Evacuate all instances of group {args.group_name}?", is_sure=args.force)
    with LuxiClient() as client:
        result = run_job(client, args.op.opcode(args), args)
        if args.dry_run or result is None:
            return 0
        return wait_for_all(client, result["jobs"])


add_group_command(table)
add_tag_commands(table, GROUP_KIND)


def main() -> NoReturn:
    """The program."""
    table.main()
