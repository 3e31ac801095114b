"""gnt-instance disk-status and repair-disks, gnt-cluster verify-disks, gnt-node list-drbd."""

import argparse
from typing import Any

from ganeti.base.terminal import say
from ganeti.cli.command import EXIT_FAILURE, CommandTable
from ganeti.cli.jobs import run_given, run_job, run_jobs, wait_for_result
from ganeti.cli.many_jobs import wait_for_all
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import FORCE, JOB_OPTIONS, JSON, QUERY_JOB_OPTIONS, TABLE_OPTIONS
from ganeti.cli.output import format_table, print_json, print_objects, print_rows
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import INSTANCE, NODE

_STATUS_FIELDS = ("disk", "node", "status", "progress", "state")
_DRBD_FIELDS = ("node", "minor", "instance", "disk", "role", "peer_node", "state")
_DRBD_TITLES = ("Node", "Minor", "Instance", "Disk", "Role", "PeerNode", "State")


def add_instance_commands(table: CommandTable) -> None:
    """Add the commands about an instance's disks to the table of gnt-instance."""
    table.command(
        "disk-status",
        INSTANCE,
        JSON,
        OpOptions("mirrors.OpInstanceDiskStatus"),
        *QUERY_JOB_OPTIONS,
    )(disk_status)
    table.command(
        "repair-disks", INSTANCE, OpOptions("mirrors.OpInstanceRepair"), FORCE, *JOB_OPTIONS
    )(repair_disks)


def add_cluster_commands(table: CommandTable) -> None:
    """Add verify-disks to the table of gnt-cluster."""
    table.command("verify-disks", OpOptions("mirrors.OpClusterVerifyDisks"), *JOB_OPTIONS)(
        verify_disks
    )


def add_node_commands(table: CommandTable) -> None:
    """Add list-drbd to the table of gnt-node."""
    table.command(
        "list-drbd", NODE, OpOptions("mirrors.OpNodeListDrbd"), *TABLE_OPTIONS, *QUERY_JOB_OPTIONS
    )(list_drbd)


def disk_status(args: argparse.Namespace) -> int:
    """Show the state of an instance's disks on each of its nodes; exit with 1 if a disk needs attention.

    States: ok, closed (exists but is not open), syncing, unknown, connecting, dropped (one node has ended the
    connection), stale, incomplete, broken, missing, split-brain. The job shows the command that repairs a disk.
    """
    rows = run_given(args)
    if rows is None:
        return 0
    if args.is_json:
        print_json(rows)
    else:
        titles = [name.capitalize() for name in _STATUS_FIELDS]
        cells = [
            [str(row["disk"]), row["node"], row["status"], _progress(row), _words(row)]
            for row in rows
        ]
        say("\n".join(format_table(titles, cells)))
    from ganeti.model.mirror_states import WELL

    return 0 if all(row["status"] in WELL for row in rows) else EXIT_FAILURE


def _progress(row: dict[str, Any]) -> str:
    if row["percent"] is None:
        return "-"
    left = "" if row["seconds_left"] is None else f" {row['seconds_left']:.0f}s"
    return f"{row['percent']:.1f}%{left}"


def _words(row: dict[str, Any]) -> str:
    return row["problem"] or row["state"] or "-"


def repair_disks(args: argparse.Namespace) -> int:
    """Recreate broken disks of an instance on its primary node, or select a copy after a split brain.

    Without --keep, the command recreates broken disks on the primary node from the copies on the secondary node. It
    does not repair the secondary node; use gnt-instance replace-disks for that.
    With --keep NODE, the copy of NODE replaces the other copy. Writes that only the other copy has are lost. The
    guest may run on NODE during the repair. To keep the copy of the secondary node, the guest must be down.
    """
    with LuxiClient() as client:
        result = run_job(client, args.op.opcode(args), args)
        if args.dry_run or args.keep or result is None:
            return 0
        return wait_for_all(client, result["jobs"])


def verify_disks(args: argparse.Namespace) -> int:
    """Verify the disks of all instances whose desired state is up, and activate disks that are closed or disconnected.

    The command only reports other states, each with the command that repairs it.
    """
    from ganeti.model.opcodes.instance_changes import OpInstanceActivateDisks

    with LuxiClient() as client:
        result = run_job(client, args.op.opcode(args), args)
        if args.dry_run or result is None:
            return 0
        is_well = True
        closed: list[str] = []
        for is_accepted, what in result["jobs"]:
            if not is_accepted:
                say(f"Not checked: {what}")
                is_well = False
                continue
            silent, some, missing = wait_for_result(client, int(what))[0]
            closed += some
            is_well = _report_gaps(silent, missing) and is_well
        if not closed:
            say("No disks need to be activated.")
            return 0 if is_well else EXIT_FAILURE
        jobs = [(name, OpInstanceActivateDisks(instance_name=name)) for name in closed]
        say(f"Activating the disks of {', '.join(closed)}")
        return 0 if run_jobs(client, jobs, args) and is_well else EXIT_FAILURE


def _report_gaps(silent: dict[str, str], missing: dict[str, list[list[str]]]) -> bool:
    """Print the problems that activation does not solve; return True if there are none."""
    for node, why in sorted(silent.items()):
        say(f"{node} does not answer: {why}")
    return not silent and not missing


def list_drbd(args: argparse.Namespace) -> int:
    """List the DRBD devices of a node, including devices that belong to no instance."""
    rows = run_given(args)
    if args.is_json:
        return print_objects(_DRBD_FIELDS, rows)
    if rows is not None:
        print_rows(_DRBD_TITLES, [[str(cell) for cell in row] for row in rows], args)
    return 0
