"""gnt-cluster overview and gnt-node impact: the cluster at a glance, and the effect of a node's loss."""

import argparse
from collections.abc import Iterator
from typing import Any

from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable
from ganeti.cli.options import JSON, TABLE_OPTIONS
from ganeti.cli.output import format_time, format_value, print_json, print_rows
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import NODE

_IMPACT = ("Instance", "Role", "Outcome", "Node", "Why")
_OUTCOMES = ("failover", "restart", "degraded", "unplaced", "lost")


def add_overview_command(table: CommandTable) -> None:
    """Add the command about the cluster."""
    table.command("overview", JSON)(overview)


def add_impact_command(table: CommandTable) -> None:
    """Add the command about a node."""
    table.command(
        "impact", NODE._replace(nargs="?", help="name of the node (default: all)"), *TABLE_OPTIONS
    )(impact)


def overview(args: argparse.Namespace) -> int:
    """Show the cluster at a glance: nodes, instances, room, N+1 violations, and how many more instances fit.

    An instance of the policy's standard size counts as fitting if the cluster still survives the loss of any node
    afterwards. Groups with N+1 violations accept none. The figures are at most 15 seconds old. The last lines are the
    findings of the last gnt-cluster verify, if its jobs are still in the queue.
    """
    with LuxiClient() as client:
        found = client.call("QueryOverview")
    if args.is_json:
        print_json(found)
        return 0
    say(*_lines(found), sep="\n")
    return 0


def _lines(found: dict[str, Any]) -> Iterator[str]:
    nodes, instances = found["nodes"], found["instances"]
    memory, disk, cpus = found["memory"], found["disk"], found["cpus"]
    yield f"Nodes: {nodes['total']}; {nodes['offline']} offline, {nodes['drained']} drained"
    yield f"Instances: {instances['total']}; {instances['running_wanted']} should run"
    yield (
        f"Memory: {_size(memory['available'])} available of {_size(memory['total'])};"
        f" {_size(memory['reserved'])} reserved for failovers"
    )
    yield f"Disk: {_size(disk['available'])} available of {_size(disk['total'])}"
    yield f"Processors: {cpus['used']:.0f} virtual ones in use of {cpus['virtual']:.0f} allowed"
    violated = [one for one in found["groups"] if one["n1_violations"]]
    for one in violated:
        yield f"N+1: group {one['name']} cannot lose {', '.join(one['n1_violations'])}"
    if not violated:
        yield "N+1: holds in every group"
    one = found["standard"]
    size = f"{_size(one['memory'])}, {one['vcpus']:.0f} processors, {_size(one['disk'])} {one['template']}"
    more = " or more" if one["is_limit"] else f"; the next one lacks: {one['limited_by']}"
    yield f"Room for {one['fits']} more instances ({size}){more}"
    verify = found["verify"]
    if verify is None:
        yield "Verified: never, as far as the queue shows; run gnt-cluster verify"
    else:
        ended = format_time(verify["ended"])
        yield f"Verified: {ended}; {verify['errors']} errors, {verify['warnings']} warnings"
        yield from (
            f"  {one['severity']}: {one['kind']} {one['name']}: {one['text']}"
            for one in verify["findings"]
        )


def _size(mib: float) -> str:
    return format_value(int(mib), "unit", "h")


def impact(args: argparse.Namespace) -> int:
    """Show what the loss of a node would mean for each instance that has a part on it.

    The outcome is `failover` (to the secondary node), `restart` (on another node, from shared storage), `degraded`
    (the instance keeps running without its second copy), `unplaced` (no node has room) or `lost` (its disks exist only
    on the node). Without a node, the command shows how many instances of each node have which outcome; `?` is a node
    with N+1 violations beyond the 100 most loaded ones. The exit code is 0 in any case; nothing is changed.
    """
    if args.node_name is None:
        return _impacts(args)
    with LuxiClient() as client:
        found = client.call("QueryImpact", args.node_name)
    if args.is_json:
        print_json(found)
        return 0
    rows = [
        [one["name"], one["role"], one["how"], one["to"] or "-", one["why"]]
        for one in found["instances"]
    ]
    print_rows(_IMPACT, rows, args)
    return 0


def _impacts(args: argparse.Namespace) -> int:
    with LuxiClient() as client:
        found = client.call("QueryImpact")
    if args.is_json:
        print_json(found)
        return 0
    rows = [
        [one["name"], *("?" if one[how] is None else str(one[how]) for how in _OUTCOMES)]
        for one in found["nodes"]
    ]
    print_rows(("Node", *(how.capitalize() for how in _OUTCOMES)), rows, args)
    return 0
