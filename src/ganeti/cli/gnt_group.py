"""gnt-group: node groups, their parameters and policies."""

import argparse
from typing import Any, NoReturn

from ganeti.base.errors import InputError
from ganeti.base.terminal import say
from ganeti.cli.command import Argument, CommandTable, option
from ganeti.cli.confirmation import confirm
from ganeti.cli.ispecs_commands import add_group_command
from ganeti.cli.jobs import run_job
from ganeti.cli.key_values import merged_key_values, named_key_values
from ganeti.cli.many_jobs import wait_for_all
from ganeti.cli.options import (
    FIELD_NAMES,
    FORCE,
    GROUP,
    IALLOCATOR,
    JOB_OPTIONS,
    LIST_OPTIONS,
    TABLE_OPTIONS,
    TARGET_GROUPS,
)
from ganeti.cli.output import or_default, print_fields, print_list, print_tree, wanted_filter
from ganeti.cli.policy_options import POLICY_OPTIONS, policy_of
from ganeti.cli.tags import GROUP_KIND, add_tag_commands
from ganeti.clients.luxi import LuxiClient

table = CommandTable(
    "gnt-group", "Makes, changes and removes node groups: nodes that share policies and parameters."
)

DEFAULT_FIELDS = ("name", "node_cnt", "pinst_cnt", "alloc_policy", "ndparams")
GROUPS = Argument("names", "names of groups", nargs="*", completion="group")
PARAMETERS = (
    option("--alloc-policy", dest="alloc_policy", metavar="POLICY",
           choices=("preferred", "last_resort", "unallocable"),
           help="whether allocators use the group: preferred, last_resort or unallocable"),
    option("--node-parameters", dest="ndparams", action="append", metavar="k=v,...",
           help="node parameters; '-k' takes the cluster's again"),
    option("-D", "--disk-parameters", dest="diskparams", action="append",
           metavar="TEMPLATE:k=v,...",
           help="parameters of a disk template; '-k' takes the cluster's again"),
    *POLICY_OPTIONS,
)  # fmt: skip


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


@table.command("info", GROUPS, aliases=("show",))
def info(args: argparse.Namespace) -> int:
    """Show groups with their nodes, parameters and policy; all without names."""
    with LuxiClient() as client:
        rows = client.rows("Groups", args.names, _INFO_FIELDS)
    print_tree([_described(dict(zip(_INFO_FIELDS, row, strict=True))) for row in rows])
    return 0


def _described(group: dict[str, Any]) -> list[tuple[str, Any]]:
    own, actual = group["custom_diskparams"], group["diskparams"]
    return [
        ("Group name", group["name"]),
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
        ("Instance policy", or_default(group["custom_ipolicy"], group["ipolicy"])),
    ]


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """The opcode's fields that the options mean; None for what was not said."""
    return {
        "alloc_policy": args.alloc_policy,
        "ndparams": merged_key_values(args.ndparams, "ndparams") or None,
        "diskparams": named_key_values(args.diskparams, "diskparams") or None,
        "ipolicy": policy_of(args) or None,
    }


@table.command("add", GROUP, *PARAMETERS, *JOB_OPTIONS)
def add(args: argparse.Namespace) -> int:
    """Make a node group, without nodes; assign-nodes puts some into it."""
    from ganeti.model.opcodes.group import OpGroupAdd

    with LuxiClient() as client:
        run_job(client, OpGroupAdd(group_name=args.group_name, **_given(args)), args)
    return 0


@table.command("modify", GROUP, *PARAMETERS, *JOB_OPTIONS)
def modify(args: argparse.Namespace) -> int:
    """Change a group's allocation policy, parameters and instance policy.

    Only what is given changes; 'default' as a part of the policy takes the cluster's again.
    """
    from ganeti.model.opcodes.group import OpGroupSetParams

    given = _given(args)
    if all(value is None for value in given.values()):
        raise InputError("say what is to be changed; see --help", "options")
    with LuxiClient() as client:
        changes = run_job(client, OpGroupSetParams(group_name=args.group_name, **given), args)
    if changes:
        say(f"Modified group {args.group_name}")
        for name, value in changes:
            say(f" - {name:<5} -> {value}")
    return 0


@table.command("remove", GROUP, *JOB_OPTIONS)
def remove(args: argparse.Namespace) -> int:
    """Remove a group that has no nodes."""
    from ganeti.model.opcodes.group import OpGroupRemove

    with LuxiClient() as client:
        run_job(client, OpGroupRemove(group_name=args.group_name), args)
    return 0


@table.command("rename", GROUP, Argument("new_name", "the new name"), *JOB_OPTIONS)
def rename(args: argparse.Namespace) -> int:
    """Give a group another name."""
    from ganeti.model.opcodes.group import OpGroupRename

    with LuxiClient() as client:
        run_job(client, OpGroupRename(group_name=args.group_name, new_name=args.new_name), args)
    return 0


@table.command(
    "assign-nodes",
    GROUP,
    Argument("nodes", "nodes that come into the group", nargs="+", completion="node"),
    FORCE,
    *JOB_OPTIONS,
)
def assign_nodes(args: argparse.Namespace) -> int:
    """Put nodes into a group, out of the one that they are in.

    With --force also where a mirrored instance would have its nodes in two groups.
    """
    from ganeti.model.opcodes.group import OpGroupAssignNodes

    op = OpGroupAssignNodes(group_name=args.group_name, nodes=args.nodes, force=args.force)
    with LuxiClient() as client:
        run_job(client, op, args)
    return 0


@table.command(
    "evacuate",
    GROUP,
    FORCE,
    IALLOCATOR,
    TARGET_GROUPS,
    option("-e", "--early-release", dest="early_release", action="store_true",
           help="accepted, without effect: no disk has a copy that could be freed early"),
    option("--sequential", action="store_true", help="move one instance after the other"),
    option("--force-failover", dest="force_failover", action="store_true",
           help="stop and start instances in place of live migration"),
    *JOB_OPTIONS,
)  # fmt: skip
def evacuate(args: argparse.Namespace) -> int:
    """Move all instances of a group to other groups, as an allocator says."""
    from ganeti.model.opcodes.group import OpGroupEvacuate

    with LuxiClient() as client:
        confirm(f"Evacuate all instances of group {args.group_name}?", is_sure=args.force)
        op = OpGroupEvacuate(
            group_name=args.group_name,
            iallocator=args.iallocator,
            target_groups=args.target_groups,
            early_release=args.early_release,
            sequential=args.sequential,
            force_failover=args.force_failover,
        )
        result = run_job(client, op, args)
        if args.dry_run or result is None:
            return 0
        return wait_for_all(client, result["jobs"])


add_group_command(table)
add_tag_commands(table, GROUP_KIND)


def main() -> NoReturn:
    """The program."""
    table.main()
