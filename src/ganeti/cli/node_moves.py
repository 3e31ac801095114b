"""gnt-node migrate, failover and evacuate: a node is emptied by one job for each instance."""

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
    """Give gnt-node the commands that empty a node."""
    table.command("migrate", NODE, FORCE, OpOptions("moving.OpNodeMigrate"), *JOB_OPTIONS)(migrate)
    of_each = OpOptions("moving.OpInstanceFailover", without=("cleanup", "shutdown_timeout"))
    table.command("failover", NODE, FORCE, of_each, *JOB_OPTIONS)(failover)
    table.command(
        "evacuate",
        NODE,
        FORCE,
        OpOptions("moving.OpNodeEvacuate"),
        option("-p", "--primary-only", dest="mode", action="store_const", const=PRIMARY_ONLY,
               help="only instances that run there"),
        option("-s", "--secondary-only", dest="mode", action="store_const", const=SECONDARY_ONLY,
               help="only copies of disks"),
        option("-a", "--all", dest="mode", action="store_const", const=ALL_ROLES,
               help="all instances of the node (the default)"),
        *JOB_OPTIONS,
    )(evacuate)  # fmt: skip


def _submitted(client: LuxiClient, op: Any, args: argparse.Namespace) -> int:
    """Run an opcode that submits jobs, and wait for these; a dry run says which they would be."""
    result = run_job(client, op, args)
    if args.dry_run:
        say(*(", ".join(job) for job in result or ()), sep="\n")
        return 0
    return wait_for_all(client, result["jobs"])


def migrate(args: argparse.Namespace) -> int:
    """Migrate all instances that run on a node; those that are down are only placed elsewhere."""
    with LuxiClient() as client:
        name, instances = _instances_of(client, args.node_name)
        if not instances:
            say(f"No primary instances on node {name}, nothing to do.")
            return 0
        confirm(f"Migrate {len(instances)} instances ({', '.join(instances)})?", is_sure=args.force)
        return _submitted(client, args.op.opcode(args, node_name=name), args)


def failover(args: argparse.Namespace) -> int:
    """Stop all instances of a node and start them elsewhere; the node may be dead, if it is marked offline."""
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
    """Take all instances off a node, and the copies of disks that others have there."""
    if args.remote_node and args.iallocator:
        raise InputError("give either a node or an allocator, not both", "iallocator")
    with LuxiClient() as client:
        name = client.rows("Nodes", [args.node_name], ["name"])[0][0]
        confirm(f"Evacuate node {name}?", is_sure=args.force)
        op = args.op.opcode(args, node_name=name, mode=args.mode or ALL_ROLES)
        return _submitted(client, op, args)


def _instances_of(client: LuxiClient, node: str) -> tuple[str, list[str]]:
    """Full name of a node, and the names of its primary instances."""
    name, instances = client.rows("Nodes", [node], ["name", "pinst_list"])[0]
    return name, sorted(instances)
