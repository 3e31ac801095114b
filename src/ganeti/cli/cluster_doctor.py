"""gnt-cluster doctor: whether hosts can run the cluster's instances, and the commands that repair them."""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.paths import Paths
from ganeti.base.terminal import escaped, say
from ganeti.cli.command import EXIT_FAILURE, CommandTable, option
from ganeti.cli.jobs import run_given
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import JSON, NODES, QUERY_JOB_OPTIONS
from ganeti.cli.output import print_json
from ganeti.ssconf import current_position

LOCAL = option(
    "--local", action="store_true", help="examine only this host, without the master daemon"
)
CLUSTER_PORTS = (1811, 5080)
"""TCP ports of the node daemon and the REST server; all other daemons choose another port if theirs is used."""


def add_doctor_commands(table: CommandTable) -> None:
    """Add the command to the table."""
    table.command(
        "doctor", NODES, LOCAL, JSON, OpOptions("cluster.OpClusterDoctor"), *QUERY_JOB_OPTIONS
    )(doctor)


def doctor(args: argparse.Namespace) -> int:
    """Examine the hosts: system, network, time, storage and virtualisation.

    Each finding has a level (error, warning or ok), and the command that repairs it. Run the commands as root on the
    named host. Replace words in capitals.

    On a host that is in no cluster, the command examines this host before `gnt-cluster init` or `ganeti-node-join`.
    In a cluster, it examines all online nodes or the given ones by a job, and compares them with each other. It
    checks only what the cluster uses: its hypervisors, disk templates and networks. For the state of the cluster
    itself, run `gnt-cluster verify`.

    The exit code is 1 if there is an error.
    """
    is_member = current_position(Paths.from_environment()) >= 0
    if args.local or not is_member:
        found = _of_this_host(is_member=is_member)
    else:
        found = run_given(args, nodes=args.names)
    has_errors = any(one["level"] == "error" for one in found)
    if args.is_json:
        print_json(found)
    else:
        if not is_member:
            say("This host is not in a cluster.")
        say("\n".join(_lines(found)))
    return EXIT_FAILURE if has_errors else 0


def _of_this_host(*, is_member: bool) -> list[dict[str, Any]]:
    """Return the findings about this host, with the default parts of a cluster."""
    import asyncio

    import msgspec

    from ganeti.doctor.gather import host_facts, of_node
    from ganeti.doctor.judge import findings_of_host
    from ganeti.model.host_facts import HostQuestion

    ports = () if is_member else CLUSTER_PORTS
    question = of_node(HostQuestion(ports=ports), Paths.from_environment())
    facts = asyncio.run(host_facts(question))
    found: list[dict[str, Any]] = msgspec.to_builtins(findings_of_host(question, facts))
    return found


def _lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the findings by host, and their number by level."""
    width = max((len(one["area"]) for one in found), default=0)
    lines: list[str] = []
    host = None
    for one in found:
        if one["host"] != host:
            host = one["host"]
            lines += [*([""] if lines else []), escaped(host) or "Nodes compared with each other"]
        lines.append(f"  {one['level']:8}{one['area']:{width}}  {escaped(one['text'])}")
        if one["command"]:
            lines.append(f"  {'':8}{'':{width}}  run: {escaped(one['command'])}")
    levels = Counter(one["level"] for one in found)
    return [
        *lines,
        "",
        f"{_count(levels['error'], 'error')}, {_count(levels['warning'], 'warning')}",
    ]


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
