"""gnt-os: OS definitions."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.terminal import say
from ganeti.cli.command import EXIT_FAILURE, CommandTable, option
from ganeti.cli.jobs import run_job
from ganeti.cli.key_values import named_key_values, os_params
from ganeti.cli.objects import described, shown
from ganeti.cli.options import FORCE, JOB_OPTIONS, JSON, QUERY_JOB_OPTIONS, TABLE_OPTIONS
from ganeti.cli.output import print_json, print_objects, print_rows, tree_lines
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument

table = CommandTable(
    "gnt-os",
    "Show the OS definitions for the installation of instances, and set their defaults.",
)

OS = Argument("os_name", "OS definition, as NAME or NAME+VARIANT", completion="os")
NAMES = Argument("names", "OS definitions; default: all", nargs="*", completion="os")
YES_NO = ("yes", "no")
OS_INFO = (
    shown("valid", "valid"),
    shown("hidden", "hidden"),
    shown("blacklisted", "blacklisted"),
    shown("OS version", "os_version"),
    shown("API versions", "api_versions"),
    shown("variants", "variants"),
    shown(
        "parameters", "parameters", value=lambda given: [f"{name}: {text}" for name, text in given]
    ),
    shown("cluster's OS parameters", "osparams"),
    shown("cluster's hypervisor parameters", "os_hvp"),
)
INFO_FIELDS = ("name", *(name for line in OS_INFO for name in line.fields))


def _diagnosed(
    args: argparse.Namespace, fields: list[str], names: Sequence[str] = ()
) -> list[list[Any]]:
    from ganeti.model.opcodes.os import OpOsDiagnose

    with LuxiClient() as client:
        rows: list[list[Any]] = run_job(
            client, OpOsDiagnose(output_fields=fields, names=list(names)), args
        )
    missing = sorted(set(names) - {row[0] for row in rows})
    if missing:
        raise PrereqError(
            f"OS definition {', '.join(missing)} does not exist on any node; 'gnt-os list' shows the definitions",
            ErrorCode.UNKNOWN_ENTITY,
        )
    return rows


def usable_names(args: argparse.Namespace) -> list[str]:
    """Return the OS definitions that can be installed on all nodes, each variant as NAME+VARIANT."""
    return [
        name if variant is None else f"{name}+{variant}"
        for name, variants in _diagnosed(args, ["name", "variants"])
        for variant in (variants or [None])
    ]


@table.command("list", *TABLE_OPTIONS, *QUERY_JOB_OPTIONS)
def list_oses(args: argparse.Namespace) -> int:
    """List the OS definitions that can be used on all nodes.

    Each variant is listed on a separate line as NAME+VARIANT. A definition that is invalid on a node is not
    listed; 'gnt-os diagnose' shows the reason. Hidden and blacklisted definitions (see modify) are not listed.
    """
    names = usable_names(args)
    if args.is_json:
        return print_json(names)
    print_rows(["Name"], [[name] for name in names], args)
    return 0


@table.command("diagnose", NAMES, JSON, *QUERY_JOB_OPTIONS)
def diagnose(args: argparse.Namespace) -> int:
    """Show the status of each OS definition on each node, with the reason if it is not usable."""
    all_valid = True
    fields = ["name", "valid", "os_version", "problems", "node_status", "hidden", "blacklisted"]
    rows = _diagnosed(args, fields, args.names)
    if args.is_json:
        print_objects(fields, rows)
        return 0 if all(row[1] for row in rows) else EXIT_FAILURE
    for name, is_valid, version, problems, status, is_hidden, is_blacklisted in rows:
        all_valid = all_valid and is_valid
        marks = " [hidden]" * is_hidden + " [blacklisted]" * is_blacklisted
        shown_version = f" [version: {version}]" if version else ""
        say(
            f"OS: {name} [global status: {'valid' if is_valid else 'invalid'}]{shown_version}{marks}"
        )
        for problem in problems:
            say(f"  Problem: {problem}")
        for node, found in sorted(status.items()):
            for line in _node_lines(node, found):
                say(f"  {line}")
        say()
    return 0 if all_valid else 1


def _node_lines(node: str, found: list[list[Any]]) -> list[str]:
    """Return the entries of one node. The node uses the first entry, which hides the later ones."""
    lines = []
    for position, (path, is_usable, problem, variants, _, versions, _) in enumerate(found):
        state = "valid" if is_usable else "invalid"
        hidden = " (hidden by the one above)" if position else ""
        words = f"Node: {node}, status: {state}{hidden}, path: {path}"
        if is_usable:
            shown = ", ".join(map(str, versions))
            words += f" [API versions: {shown}] [variants: {', '.join(variants) or 'none'}]"
        lines.append(words + (f" ({problem})" if problem else ""))
    return lines or [f"Node: {node}, status: missing"]


@table.command("info", NAMES, JSON, *QUERY_JOB_OPTIONS, aliases=("show",))
def info(args: argparse.Namespace) -> int:
    """Show the variants, parameters and versions of OS definitions, and the settings of 'gnt-os modify'."""
    rows = _diagnosed(args, list(INFO_FIELDS), args.names)
    if args.is_json:
        return print_objects(INFO_FIELDS, rows)
    for row in rows:
        found = dict(zip(INFO_FIELDS, row, strict=True))
        say(f"{found['name']}:")
        for label, value in described(OS_INFO, found):
            if value != "":
                first, *rest = tree_lines([(label, value)], 1)
                for line in (f"  - {first.strip()}", *rest):
                    say(line)
        say()
    return 0


@table.command(
    "modify",
    OS,
    option("-O", "--os-parameters", dest="osparams", action="append", metavar="k=v,...",
           help="OS parameters of all instances of this OS; -k removes one"),
    option("-H", "--hypervisor-parameters", dest="hvparams", action="append",
           metavar="HYPERVISOR:k=v,...",
           help="hypervisor parameters of all instances of this OS; -k removes one; yes or no is a deprecated form of --hidden"),
    option("--hidden", choices=YES_NO,
           help="hide the OS in lists; it can still be used"),
    option("--blacklisted", choices=YES_NO, help="refuse the OS for new instances"),
    FORCE,
    *JOB_OPTIONS,
)  # fmt: skip
def modify(args: argparse.Namespace) -> int:
    """Set parameters of an OS for the whole cluster, hide it, or blacklist it.

    The OS need not exist yet. If it exists, its verify script checks the parameters; --force stores
    parameters that this script rejects. Parameters can be set for one variant. Hiding and blacklisting
    always apply to all variants. Existing instances keep a blacklisted OS and can be reinstalled with it.
    """
    from ganeti.model.opcodes.cluster import OpClusterSetParams

    name = args.os_name
    given: dict[str, Any] = {}
    if args.osparams:
        given["osparams"] = {name: os_params(args.osparams, "osparams")}
    hvparams = [text for text in args.hvparams or () if text not in YES_NO]
    if hvparams:
        given["os_hvp"] = {name: named_key_values(hvparams, "hvparams")}
    # Ganeti 2.2 had -H for --hidden.
    old_hidden = next((text for text in args.hvparams or () if text in YES_NO), None)
    for option_name, wanted in (
        ("hidden", args.hidden or old_hidden),
        ("blacklisted", args.blacklisted),
    ):
        if wanted is not None:
            given[f"{option_name}_os"] = [("add" if wanted == "yes" else "remove", name)]
    if not given:
        raise InputError(
            "nothing to change: pass at least one option; --help lists them", "options"
        )
    with LuxiClient() as client:
        run_job(client, OpClusterSetParams(**given, force=args.force), args)
    return 0


def main() -> NoReturn:
    """Run the program."""
    table.main()
