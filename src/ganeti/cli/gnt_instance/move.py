"""gnt-instance migrate, failover, move and change-group."""

import argparse
from typing import Any

from ganeti.cli.confirmation import confirm
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.jobs import run_job
from ganeti.cli.many_jobs import wait_for_all
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import FORCE, INSTANCE, JOB_OPTIONS
from ganeti.clients.luxi import LuxiClient


def _moved(args: argparse.Namespace, question: str) -> Any:
    """Ask, with the full name of the instance, and run the opcode; its result."""
    with LuxiClient() as client:
        name = client.rows("Instances", [args.instance_name], ["name"])[0][0]
        confirm(question.format(name), is_sure=args.force)
        return run_job(client, args.op.opcode(args, instance_name=name), args)


@table.command("migrate", INSTANCE, FORCE, OpOptions("instance.OpInstanceMigrate"), *JOB_OPTIONS)
def migrate(args: argparse.Namespace) -> int:
    """Move a running instance to another node without stopping it."""
    what = "Clean up the broken migration of" if args.cleanup else "Migrate"
    _moved(args, what + " instance {}? Its service may stand still.")
    return 0


@table.command("failover", INSTANCE, FORCE, OpOptions("moving.OpInstanceFailover"), *JOB_OPTIONS)
def failover(args: argparse.Namespace) -> int:
    """Stop an instance and start it on another node that has its data.

    Its own node may be dead: make sure of it, and say so with 'gnt-node modify --offline yes'. A node
    that only does not answer might still run the instance, so nothing is done then.
    """
    what = "Clean up the broken migration of" if args.cleanup else "Stop and fail over"
    _moved(args, what + " instance {}?")
    return 0


@table.command("move", INSTANCE, FORCE, OpOptions("moving.OpInstanceMove"), *JOB_OPTIONS)
def move(args: argparse.Namespace) -> int:
    """Stop an instance, copy its disks to another node, and start it there.

    For disks that only one node has. The guest is down while they are copied; a live migration takes
    them along, too.
    """
    _moved(args, "Instance {} will be moved; it is shut down meanwhile. Continue?")
    return 0


@table.command(
    "change-group", INSTANCE, FORCE, OpOptions("group.OpInstanceChangeGroup"), *JOB_OPTIONS
)
def change_group(args: argparse.Namespace) -> int:
    """Move an instance to a node of another group, as an allocator says."""
    result = _moved(args, "Move instance {} to another group?")
    if args.dry_run or result is None:
        return 0
    with LuxiClient() as client:
        return wait_for_all(client, result["jobs"])
