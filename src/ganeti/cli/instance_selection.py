"""Selection of instances by name, node or tag, or of all; and a job for each selected instance."""

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.cli.command import EXIT_FAILURE, option
from ganeti.cli.confirmation import confirm
from ganeti.cli.jobs import run_jobs
from ganeti.cli.option import Option
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument


class _Way(NamedTuple):
    """One way to select instances; the arguments name nodes or tags, or are empty."""

    flags: tuple[str, ...]
    named: str
    """Kind of the arguments: instances, nodes, node tags, tags, or none."""
    primary: bool = False
    secondary: bool = False
    help: str = ""


_WAYS = {
    "instance": _Way(("--instance",), "instances", help="arguments are instances; the default"),
    "all": _Way(("--all",), "", help="all instances"),
    "node": _Way(("-n", "--node"), "nodes", True, True,
                 help="arguments are nodes: instances that have one of them as primary or secondary"),
    "primary": _Way(("--primary",), "nodes", primary=True,
                    help="arguments are nodes: instances that have one of them as primary"),
    "secondary": _Way(("--secondary",), "nodes", secondary=True,
                      help="arguments are nodes: instances that have one of them as secondary"),
    "tags": _Way(("--tags",), "tags", help="arguments are tags: instances that have one of them"),
    "node-tags": _Way(("--node-tags",), "node tags", True, True,
                      help="arguments are tags of nodes: instances that have such a node"),
    "pri-node-tags": _Way(("--pri-node-tags",), "node tags", primary=True,
                          help="arguments are tags of nodes: instances with such a primary"),
    "sec-node-tags": _Way(("--sec-node-tags",), "node tags", secondary=True,
                          help="arguments are tags of nodes: instances with such a secondary"),
}  # fmt: skip

SUBJECTS = Argument(
    "names",
    "names of instances, or the nodes or tags that the options select by",
    nargs="*",
    completion="instance",
)
FORCE_MULTI = option(
    "--force-multiple",
    dest="force_multi",
    action="store_true",
    help="skip the confirmation prompt for several instances",
)
MANY: tuple[Option | Argument, ...] = (
    SUBJECTS,
    *(
        option(*way.flags, dest="ways", action="append_const", const=name, help=way.help)
        for name, way in _WAYS.items()
    ),
    FORCE_MULTI,
)


def chosen_names(client: LuxiClient, args: argparse.Namespace) -> list[str]:
    """Return the full names of the selected instances; PrereqError if the selection is empty."""
    way = _way(args)
    if way.named == "instances":
        rows = client.rows("Instances", args.names, ["name"])
        return list(dict.fromkeys(row[0] for row in rows))
    rows = client.rows("Instances", [], ["name", "pnode", "snodes", "tags"])
    if way.named == "tags":
        names = [row[0] for row in rows if set(row[3]) & set(args.names)]
    elif way.named:
        nodes = _nodes(client, way, args.names)
        names = [
            name
            for name, primary, secondaries, _tags in rows
            if (way.primary and primary in nodes)
            or (way.secondary and not nodes.isdisjoint(secondaries))
        ]
    else:
        names = [row[0] for row in rows]
    if not names:
        raise PrereqError("no instance matches the selection", ErrorCode.WRONG_INPUT)
    return sorted(names)


def _way(args: argparse.Namespace) -> _Way:
    ways = set(args.ways or ())
    if len(ways) > 1:
        raise InputError(f"use only one selection, not {' and '.join(sorted(ways))}", "instances")
    name = ways.pop() if ways else "instance"
    way = _WAYS[name]
    if bool(args.names) is not bool(way.named):
        if way.named == "instances":
            raise InputError(
                "no instances are selected; pass names, or select by --all, --node, --tags or another option of --help",
                "names",
            )
        what = f"pass names of {way.named}" if way.named else "accepts no names"
        raise InputError(what, f"--{name}")
    return way


def _nodes(client: LuxiClient, way: _Way, given: Sequence[str]) -> set[str]:
    if way.named == "nodes":
        return {row[0] for row in client.rows("Nodes", given, ["name"])}
    rows = client.rows("Nodes", [], ["name", "tags"])
    return {name for name, tags in rows if set(tags) & set(given)}


def confirm_many(args: argparse.Namespace, names: Sequence[str]) -> None:
    """Ask for confirmation before a command changes several instances that were not named."""
    if len(names) > 1 and _way(args).named != "instances":
        is_sure = args.force_multi or getattr(args, "force", False)
        confirm(
            f"{args.command.capitalize()} {len(names)} instances ({', '.join(names)})?",
            is_sure=is_sure,
            how="--force-multiple",
        )


def on_each(args: argparse.Namespace, **more: Any) -> int:
    """Run a job for each selected instance, all at once; several instances need one confirmation."""
    with LuxiClient() as client:
        names = chosen_names(client, args)
        jobs = [(name, args.op.opcode(args, instance_name=name, **more)) for name in names]
        if not any(op.loss for _name, op in jobs):
            confirm_many(args, names)
        done = run_jobs(client, jobs, args)
    return 0 if done else EXIT_FAILURE
