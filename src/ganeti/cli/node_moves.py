"""gnt-node migrate, failover and evacuate: empty a node by one job for each instance."""

import argparse
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.terminal import say
from ganeti.cli.command import EXIT_FAILURE, CommandTable, option
from ganeti.cli.confirmation import confirm
from ganeti.cli.jobs import run_job, run_jobs
from ganeti.cli.many_jobs import wait_for_all
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import FORCE, JOB_OPTIONS
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import NODE

PRIMARY_ONLY, SECONDARY_ONLY, ALL_ROLES = "primary-only", "secondary-only", "all"


def add_move_commands(table: CommandTable) -> None:
    """Add the commands that empty a node to the table."""
    table.command("migrate", NODE, FORCE, OpOptions("moving.OpNodeMigrate"), *JOB_OPTIONS)(migrate)
    of_each = OpOptions("moving.OpInstanceFailover", without=("cleanup", "shutdown_timeout"))
    table.command("failover", NODE, FORCE, of_each, *JOB_OPTIONS)(failover)
    table.command(
        "evacuate",
        NODE,
        FORCE,
        OpOptions("moving.OpNodeEvacuate"),
        option("-p", "--primary-only", dest="mode", action="store_const", const=PRIMARY_ONLY,
               help="move only instances that have the node as their primary node"),
        option("-s", "--secondary-only", dest="mode", action="store_const", const=SECONDARY_ONLY,
               help="move only disks that have the node as their secondary node"),
        option("-a", "--all", dest="mode", action="store_const", const=ALL_ROLES,
               help="move primary instances and secondary disks (the default)"),
        *JOB_OPTIONS,
    )(evacuate)  # fmt: skip


def _submitted(client: LuxiClient, op: Any, args: argparse.Namespace) -> int:
    """Run an opcode that submits jobs, and wait for the jobs; a dry run lists them instead."""
    result = run_job(client, op, args)
    if args.dry_run:
        say(*(", ".join(job) for job in result or ()), sep="\n")
        return 0
    return wait_for_all(client, result["jobs"])


def migrate(args: argparse.Namespace) -> int:
    """Migrate all primary instances of a node; instances that are down only change their primary node."""
    with LuxiClient() as client:
        name, instances = _instances_of(client, args.node_name)
        if not instances:
            say(f"No primary instances on node {name}, nothing to do.")
            return 0
        confirm(f"Migrate {len(instances)} instances ({', '.join(instances)})?", is_sure=args.force)
        return _submitted(client, args.op.opcode(args, node_name=name), args)


def failover(args: argparse.Namespace) -> int:
    """Stop all instances of a node and start them on other nodes; a dead node must be marked offline."""
    with LuxiClient() as client:
        name, instances = _instances_of(client, args.node_name)
        if not instances:
            say(f"No primary instances on node {name}, nothing to do.")
            return 0
        confirm(
            f"Fail over {len(instances)} instances ({', '.join(instances)})?", is_sure=args.force
        )
        jobs = [(name, args.op.opcode(args, instance_name=name)) for name in instances]
        return 0 if run_jobs(client, jobs, args) else EXIT_FAILURE


def evacuate(args: argparse.Namespace) -> int:
    """Move all primary instances and secondary disks from a node to other nodes."""
    if args.remote_node and args.iallocator:
        raise InputError("pass a node or an allocator, not both", "iallocator")
    with LuxiClient() as client:
        name = client.rows("Nodes", [args.node_name], ["name"])[0][0]
        confirm(f"Evacuate node {name}?", is_sure=args.force)
        op = args.op.opcode(args, node_name=name, mode=args.mode or ALL_ROLES)
        return _submitted(client, op, args)


def _instances_of(client: LuxiClient, node: str) -> tuple[str, list[str]]:
    """Return the full name of a node and the names of its primary instances."""
    name, instances = client.rows("Nodes", [node], ["name", "pinst_list"])[0]
    return name, sorted(instances)
