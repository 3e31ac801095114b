"""gnt-group: node groups, their parameters and policies."""

from typing import Any, NoReturn

from ganeti.cli.declared import program
from ganeti.cli.ispecs_commands import add_group_command
from ganeti.cli.objects import ObjectKind, add_info, add_list, shown
from ganeti.cli.output import Tree, or_default
from ganeti.cli.policy_options import policy_tree
from ganeti.cli.tags import add_tag_commands
from ganeti.model.operation import GROUP, Argument

table = program(
    "gnt-group", "Create, change and remove node groups: nodes that share policies and parameters."
)


def _disk_parameters(own: dict[str, Any], actual: dict[str, Any]) -> Tree:
    return {name: or_default(own.get(name, {}), actual[name]) for name in sorted(actual)}


def _policy(own: dict[str, Any], actual: dict[str, Any]) -> Tree:
    return [one for one in policy_tree(actual, own) if one[0] != "std" or "std" in own]


GROUP_KIND = ObjectKind(
    query="group",
    rows="Groups",
    names=Argument("names", "names of groups", nargs="*", completion="group"),
    listed=("name", "node_cnt", "pinst_cnt", "alloc_policy", "ndparams"),
    variable="GNT_GROUP_LIST",
    list_help="List node groups with their nodes and instances.",
    info_help="Show groups with their nodes, parameters and policy; default: all groups.",
    info=(
        shown("Node group", "name"),
        shown("UUID", "uuid"),
        shown("alloc_policy", "alloc_policy"),
        shown("nodes", "node_list"),
        shown("primary instances", "pinst_list"),
        shown("tags", "tags"),
        shown("Node parameters", "custom_ndparams", "ndparams", value=or_default),
        shown("Recovery parameters", "custom_beparams", "beparams", value=or_default),
        shown("Disk parameters", "custom_diskparams", "diskparams", value=_disk_parameters),
        shown("Instance policy", "custom_ipolicy", "ipolicy", value=_policy),
    ),
)
add_list(table, GROUP_KIND)
add_info(table, GROUP_KIND)


add_group_command(table)
add_tag_commands(table, "nodegroup", GROUP)


def main() -> NoReturn:
    """Run the program."""
    table.main()
