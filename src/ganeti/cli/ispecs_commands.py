"""show-ispecs-cmd: print the command that sets the present instance policy."""

import argparse
import shlex
from collections.abc import Mapping
from typing import Any

from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable, option
from ganeti.cli.options import JSON
from ganeti.cli.output import print_json, print_objects
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument

_GROUPS = Argument("names", "names of groups", nargs="*", completion="group")


def policy_options(policy: Mapping[str, Any]) -> list[str]:
    """Return the options that set the sizes of a policy, in the form of `--ipolicy-…-specs`."""
    words = []
    if "std" in policy:
        words += ["--ipolicy-std-specs", _spec(policy["std"])]
    if "minmax" in policy:
        pairs = (f"min:{_spec(one['min'])}/max:{_spec(one['max'])}" for one in policy["minmax"])
        words += ["--ipolicy-bounds-specs", "//".join(pairs)]
    return words


def _spec(spec: Mapping[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(spec.items()))


def add_cluster_command(table: CommandTable) -> None:
    """Add show-ispecs-cmd to gnt-cluster."""

    @table.command("show-ispecs-cmd", JSON)
    def show_ispecs_cmd(args: argparse.Namespace) -> int:
        """Show the command that creates a cluster with this cluster's instance sizes."""
        with LuxiClient() as client:
            found = client.cluster_info()
        if args.is_json:
            return print_json({"name": found["name"], "ipolicy": found["ipolicy"]})
        say(shlex.join(["gnt-cluster", "init", *policy_options(found["ipolicy"]), found["name"]]))
        return 0


def add_group_command(table: CommandTable) -> None:
    """Add show-ispecs-cmd to gnt-group."""

    @table.command(
        "show-ispecs-cmd",
        _GROUPS,
        option("--include-defaults", action="store_true",
               help="include values that groups inherit from the cluster"),
        JSON,
    )  # fmt: skip
    def show_ispecs_cmd(args: argparse.Namespace) -> int:
        """Show the commands that create groups with the instance sizes of these groups; default: all groups."""
        with LuxiClient() as client:
            policy = "ipolicy" if args.include_defaults else "custom_ipolicy"
            rows = client.rows("Groups", args.names, ("name", policy))
        if args.is_json:
            return print_objects(("name", policy), rows)
        for name, found in rows:
            say(shlex.join(["gnt-group", "add", *policy_options(found), name]))
        return 0
