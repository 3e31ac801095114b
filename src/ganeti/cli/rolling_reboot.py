"""gnt-cluster rolling-reboot: restart nodes one after the other, while their instances run elsewhere."""

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from ganeti.base.errors import ErrorCode, GanetiError, InputError, PrereqError
from ganeti.base.terminal import say
from ganeti.cli.command import DEBUG, REASON, CommandTable, option
from ganeti.cli.confirmation import confirm
from ganeti.cli.errors import JobFailed
from ganeti.cli.jobs import run_job, run_jobs, submit, with_job_options
from ganeti.cli.node_maintenance import begin, end
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import DRY_RUN, FORCE, PRIORITY, VERBOSE
from ganeti.clients.luxi import LuxiClient

BEGIN = OpOptions("maintenance.OpNodeMaintenanceBegin")
END = OpOptions("maintenance.OpNodeMaintenanceEnd", without=("failback",))
POWERCYCLE, OUT_OF_BAND = "powercycle", "out-of-band"
NODE_WORD = "{node}"
BOOT_LIMIT_S = 1800
ASK_EVERY_S = 2.0
NO_DATA = 2
"""The status of an out-of-band command that failed."""


class _Target(NamedTuple):
    """A node to restart."""

    name: str
    group: str
    instances: list[str]


def add_reboot_commands(table: CommandTable) -> None:
    """Add the command to the table."""
    table.command(
        "rolling-reboot",
        option("--groups", metavar="GROUP,...", help="the nodes of these groups", completion="group"),
        option("--nodes", metavar="NODE,...", help="these nodes, in this order", completion="node"),
        option("--by", choices=(POWERCYCLE, OUT_OF_BAND),
               help="restart by the node daemon, at once and without a shutdown, or by the out-of-band program"),
        option("--command", dest="words", metavar="COMMAND",
               help="restart by this command, which runs on the master; {node} stands for the node's name"),
        option("--boot-timeout", type=int, default=BOOT_LIMIT_S, metavar="SECONDS",
               help=f"time for a node to restart, in seconds ({BOOT_LIMIT_S})"),
        BEGIN, END, FORCE, DRY_RUN, PRIORITY, REASON, VERBOSE, DEBUG,
    )(rolling_reboot)  # fmt: skip


def rolling_reboot(args: argparse.Namespace) -> int:
    """Restart nodes one after the other, each empty and in maintenance meanwhile.

    For each node: put it into maintenance (see gnt-node maintenance), restart it, wait until it answers with another
    boot id, reopen the copies of disks on it, check that verify finds no new error of the node, and end the
    maintenance with the return of its instances. The command shows its plan first and stops at the first problem. It then prints the command that
    continues with this node and those that are left; so does an interruption by Control-C.

    Default: all online nodes except the master. To restart the master's node, first let another node become the
    master (gnt-cluster master-failover).
    """
    if bool(args.words) == bool(args.by):
        raise InputError(f"pass --command, --by={OUT_OF_BAND} or --by={POWERCYCLE}", "by")
    with LuxiClient() as client:
        targets = _targets(client, args)
    _show_plan(targets, args)
    if args.dry_run:
        return 0
    confirm(f"Restart {len(targets)} nodes?", is_sure=args.force)
    args.force = True  # the steps do not ask again
    began = time.monotonic()
    for done, target in enumerate(targets):
        left = ""
        if done:
            left_s = (time.monotonic() - began) / done * (len(targets) - done)
            left = f", about {left_s / 60:.0f} minutes left"
        say(f"Node {done + 1} of {len(targets)}: {target.name}{left}", flush=True)
        try:
            with LuxiClient() as client:
                _restart(client, target, args)
        except (GanetiError, KeyboardInterrupt):
            names = ",".join(one.name for one in targets[done:])
            say(
                f"\nStopped at {target.name}. To continue, repeat the command with --nodes={names}"
                " in place of --nodes and --groups.",
                file=sys.stderr,
            )
            raise
    say(f"All {len(targets)} nodes have been restarted.")
    return 0


def _targets(client: LuxiClient, args: argparse.Namespace) -> list[_Target]:
    """Return the nodes in order; PrereqError if the master was named."""
    names = args.nodes.split(",") if args.nodes else []
    fields = ["name", "group", "master", "offline", "pinst_list"]
    rows = client.rows("Nodes", names, fields)
    groups = set(args.groups.split(",")) if args.groups else {row[1] for row in rows}
    if unknown := groups - {row[0] for row in client.rows("Groups", [], ["name"])}:
        raise PrereqError(f"group {min(unknown)} does not exist", ErrorCode.UNKNOWN_ENTITY)
    found = []
    for name, group, is_master, is_offline, instances in rows:
        if group not in groups:
            continue
        why = f"{name} is the master" if is_master else f"{name} is marked offline"
        if not (is_master or is_offline):
            found.append(_Target(name, group, sorted(instances)))
        elif names:
            how = "first run gnt-cluster master-failover on another master candidate"
            raise PrereqError(f"{why}{f'; {how}' if is_master else ''}", ErrorCode.WRONG_STATE)
        else:
            say(f"{why} and is left out.")
    if not found:
        raise PrereqError("no node of this selection can be restarted", ErrorCode.WRONG_STATE)
    return found


def _show_plan(targets: Sequence[_Target], args: argparse.Namespace) -> None:
    say(f"{len(targets)} nodes are restarted, one after the other, by {args.words or args.by}:")
    for number, target in enumerate(targets, 1):
        say(f"  {number}. {target.name}: {len(target.instances)} instances leave and return")


def _restart(client: LuxiClient, target: _Target, args: argparse.Namespace) -> None:
    """Take one node through its restart; GanetiError at the first problem."""
    known = _errors(client, target, args)
    begin(client, BEGIN.opcode(args, node_name=target.name), args)
    before = _boot_id(client, target.name)
    if not before:
        raise JobFailed(f"node {target.name} does not answer; start its host first")
    _reboot(client, target.name, args)
    _wait_for_boot(client, target.name, before, args.boot_timeout)
    _reopen_copies(client, target.name, args)
    _check(client, target, known, args)
    end(client, END.opcode(args, node_name=target.name, failback=True), args)


def _reboot(client: LuxiClient, name: str, args: argparse.Namespace) -> None:
    if args.words:
        words = [word.replace(NODE_WORD, name) for word in shlex.split(args.words)]
        say(f"Running {shlex.join(words)}", flush=True)
        try:
            done = subprocess.run(words, check=False, stdin=subprocess.DEVNULL)
        except OSError as err:
            raise InputError(f"cannot run {words[0]}: {err.strerror}", "command") from err
        if done.returncode:  # A connection to a host that restarts often ends like that.
            say(f"The command ended with status {done.returncode}; waiting for the restart.")
    elif args.by == OUT_OF_BAND:
        from ganeti.model.opcodes.commands import OpOobCommand

        op = OpOobCommand(command="power-cycle", node_names=[name])
        [[_, (status, _data)]] = run_job(client, op, args)
        if status == NO_DATA:
            raise JobFailed(f"the out-of-band program did not restart {name}")
    else:
        from ganeti.model.opcodes.node import OpNodePowercycle

        run_job(client, OpNodePowercycle(node_name=name), args)


def _boot_id(client: LuxiClient, name: str) -> str:
    """Return the identifier of the present boot; '' if the node does not answer."""
    [[found]] = client.rows("Nodes", [name], ["bootid"])
    return str(found or "")


def _wait_for_boot(client: LuxiClient, name: str, before: str, limit_s: float) -> None:
    say(f"Waiting until {name} has restarted, at most {limit_s:g} seconds", flush=True)
    ends_at = time.monotonic() + limit_s
    while _boot_id(client, name) in ("", before):
        if time.monotonic() >= ends_at:
            raise JobFailed(
                f"{name} has not restarted within {limit_s:g} seconds; look at its console"
            )
        time.sleep(ASK_EVERY_S)


def _reopen_copies(client: LuxiClient, name: str, args: argparse.Namespace) -> None:
    """Let the copies of disks on a restarted node be written again; the watcher may take minutes to do that.

    The check afterwards finds a copy that stays closed.
    """
    from ganeti.model.opcodes.instance_changes import OpInstanceActivateDisks

    [[instances]] = client.rows("Nodes", [name], ["sinst_list"])
    jobs = [
        (one, OpInstanceActivateDisks(instance_name=one, if_wanted=True))
        for one in sorted(instances)
    ]
    if jobs:
        say(f"Reopening the copies of the disks of {len(jobs)} instances on {name}", flush=True)
        run_jobs(client, jobs, args)


def _errors(client: LuxiClient, target: _Target, args: argparse.Namespace) -> set[str]:
    """Return the errors of the node that verify finds, without N+1: the other nodes hold more meanwhile."""
    from ganeti.model.opcodes.cluster import OpClusterVerifyGroup
    from ganeti.model.verify_lines import parsed_finding

    op = OpClusterVerifyGroup(group_name=target.group, skip_checks=["nplusone_mem"])
    found = set()
    for change in client.wait_for_job(submit(client, [with_job_options(op, args)])):
        for _serial, _time, _kind, content in change.entries:
            one = parsed_finding(str(content))
            if one and (one["severity"], one["kind"], one["name"]) == (
                "error",
                "node",
                target.name,
            ):
                found.add(str(one["text"]))
    return found


def _check(client: LuxiClient, target: _Target, known: set[str], args: argparse.Namespace) -> None:
    """Return when verify finds no error that it did not find before; daemons and disks need a while to start."""
    from ganeti.model.opcodes.maintenance import DEFAULT_WAIT_S

    ends_at = time.monotonic() + (DEFAULT_WAIT_S if args.wait is None else args.wait)
    while new := _errors(client, target, args) - known:
        if time.monotonic() >= ends_at:
            raise JobFailed(f"{target.name} has restarted, but verify finds: {min(new)}")
        time.sleep(ASK_EVERY_S)
    say(f"{target.name} has restarted, and verify finds no new error of it.")
