"""gnt-node maintenance: planned work on nodes."""

import argparse
import time
from collections.abc import Sequence
from typing import Any

from ganeti.base.errors import GanetiError, InputError
from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable
from ganeti.cli.confirmation import confirm
from ganeti.cli.errors import JobFailed
from ganeti.cli.jobs import run_job, wait_for_result
from ganeti.cli.many_jobs import works_of
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import FORCE, JOB_OPTIONS, NODES
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument

BEGIN = OpOptions("maintenance.OpNodeMaintenanceBegin")
END = OpOptions("maintenance.OpNodeMaintenanceEnd")
ON, OFF = "on", "off"


def add_maintenance_commands(table: CommandTable) -> None:
    """Add the command to the table."""
    table.command(
        "maintenance", Argument("action", "on or off"), NODES, FORCE, BEGIN, END, *JOB_OPTIONS
    )(maintenance)


def maintenance(args: argparse.Namespace) -> int:
    """Move everything off nodes for planned work, and bring it back afterwards.

    'on' drains each node and moves its instances off, one after the other: running ones live. The node stays in
    maintenance through reboots, and automatic recovery ignores it until 'off'. A secondary disk stays, and is
    synchronised when the node is back. 'off' waits until the node answers, ends what 'on' did, and starts what
    --shutdown has shut down; with --failback it also migrates the instances back. Both stop at the first problem.
    Repeat the command after the repair: it continues with what is left. 'gnt-node list -o +maintenance,moved_away'
    shows the state.

    The master's node cannot be in maintenance: first let another node become the master (gnt-cluster
    master-failover, there).
    """
    if args.action not in (ON, OFF):
        raise InputError("must be on or off", "action")
    if not args.names:
        raise InputError("pass the names of nodes", "names")
    others = END if args.action == ON else BEGIN
    if wrong := others.given(args).keys():
        raise InputError(f"does not belong to 'maintenance {args.action}'", min(wrong))
    with LuxiClient() as client:
        names = [row[0] for row in client.rows("Nodes", args.names, ["name"])]
        if args.action == OFF:
            for name in names:
                end(client, END.opcode(args, node_name=name), args)
            return 0
        _confirm_stops(names, args)
        for name in names:
            begin(client, BEGIN.opcode(args, node_name=name), args)
    return 0


def begin(client: LuxiClient, op: Any, args: argparse.Namespace) -> None:
    """Put a node into maintenance, and return when its instances have left; JobFailed says what to do."""
    name, jobs = op.node_name, _submitted(client, op, args)
    try:
        follow_in_turn(client, jobs)
    except GanetiError as err:
        raise JobFailed(
            f"{err.message}\n{name} is in maintenance, but not empty: repair this and run 'gnt-node maintenance on"
            f" {name}' again, or return with 'gnt-node maintenance off --failback {name}'"
        ) from err
    if not args.dry_run:
        say(f"{name} is in maintenance: {len(jobs)} instances have left it or are shut down.")


def end(client: LuxiClient, op: Any, args: argparse.Namespace) -> None:
    """End a node's maintenance, and return when its instances are back; JobFailed says what to do."""
    name, jobs = op.node_name, _submitted(client, op, args)
    try:
        follow_in_turn(client, jobs)
    except GanetiError as err:
        raise JobFailed(
            f"{err.message}\n{name} is in service, but not everything is back: repair this, and run 'gnt-node"
            f" maintenance off --failback {name}' again"
        ) from err
    if not args.dry_run:
        say(f"{name} is in service{', and its instances are back' if jobs else ''}.")


def _confirm_stops(names: Sequence[str], args: argparse.Namespace) -> None:
    given = [
        text
        for is_given, text in (
            (args.allow_failover, "stop and fail over instances that cannot migrate live"),
            (args.shutdown, "shut down instances whose disks no other node has"),
        )
        if is_given
    ]
    if given:
        question = f"Put {', '.join(names)} into maintenance, and {' and '.join(given)}?"
        confirm(question, is_sure=args.force)


def _submitted(client: LuxiClient, op: Any, args: argparse.Namespace) -> list[int]:
    """Run an opcode; return the jobs that it submitted. A dry run lists them instead."""
    result = run_job(client, op, args)
    if args.dry_run:
        say(*(", ".join(job) for job in result or ()), sep="\n")
        return []
    refused = [str(what) for is_accepted, what in result["jobs"] if not is_accepted]
    if refused:
        raise JobFailed(f"a job was refused: {refused[0]}")
    return [int(job_id) for _is_accepted, job_id in result["jobs"]]


def follow_in_turn(client: LuxiClient, ids: Sequence[int]) -> None:
    """Follow jobs of which each begins after the one before it; raise the first error."""
    works = works_of(client, ids)
    began = time.monotonic()
    for done, job_id in enumerate(ids):
        left = ""
        if done:
            left_s = (time.monotonic() - began) / done * (len(ids) - done)
            left = f", about {left_s:.0f} s left"
        say(f"{done + 1} of {len(ids)}: job {job_id}, {works[job_id]}{left}", flush=True)
        try:
            wait_for_result(client, job_id)
        except GanetiError as err:
            raise JobFailed(f"job {job_id}, {works[job_id]}: {err.message}") from err
