"""gnt-node migrate, failover and evacuate: a node is emptied by one job for each instance."""

import argparse
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.terminal import say
from ganeti.cli.command import EXIT_FAILURE, CommandTable, option
from ganeti.cli.confirmation import confirm
from ganeti.cli.jobs import run_job, run_jobs
from ganeti.cli.many_jobs import wait_for_all
from ganeti.cli.options import FORCE, IALLOCATOR, IGNORE_IPOLICY, JOB_OPTIONS, NODE
from ganeti.clients.luxi import LuxiClient

PRIMARY_ONLY, SECONDARY_ONLY, ALL_ROLES = "primary-only", "secondary-only", "all"


def add_move_commands(table: CommandTable) -> None:
    """Give gnt-node the commands that empty a node."""
    table.command(
        "migrate",
        NODE,
        FORCE,
        IALLOCATOR,
        option("-n", "--target-node", dest="target_node", metavar="NODE", completion="node",
               help="node that is to run them"),
        option("--non-live", dest="live", action="store_false", default=None,
               help="stop the guests while they are moved"),
        option("--migration-mode", dest="mode", choices=("live", "non-live"),
               help="the same, in words"),
        option("--no-runtime-changes", dest="allow_runtime_changes", action="store_false",
               help="do not change their memory to make them fit"),
        IGNORE_IPOLICY,
        *JOB_OPTIONS,
    )(migrate)  # fmt: skip
    table.command(
        "failover",
        NODE,
        FORCE,
        IALLOCATOR,
        option("-n", "--target-node", dest="target_node", metavar="NODE", completion="node",
               help="node that is to run them"),
        option("--ignore-consistency", dest="ignore_consistency", action="store_true",
               help="accepted, without effect: disks have one copy only"),
        IGNORE_IPOLICY,
        *JOB_OPTIONS,
    )(failover)  # fmt: skip
    table.command(
        "evacuate",
        NODE,
        FORCE,
        IALLOCATOR,
        option("-n", "--new-secondary", dest="remote_node", metavar="NODE", completion="node",
               help="node that takes them"),
        option("-p", "--primary-only", dest="mode", action="store_const", const=PRIMARY_ONLY,
               help="only instances that run there"),
        option("-s", "--secondary-only", dest="mode", action="store_const", const=SECONDARY_ONLY,
               help="only copies of disks"),
        option("-a", "--all", dest="mode", action="store_const", const=ALL_ROLES,
               help="both; the default"),
        option("-e", "--early-release", dest="early_release", action="store_true",
               help="accepted, without effect: no disk has a copy that could be freed early"),
        option("--ignore-soft-errors", dest="ignore_soft_errors", action="store_true",
               default=None, help="let the allocator pass over what is only unwise"),
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
    from ganeti.model.opcodes.moving import OpNodeMigrate

    with LuxiClient() as client:
        name, instances = _instances_of(client, args.node_name)
        if not instances:
            say(f"No primary instances on node {name}, nothing to do.")
            return 0
        confirm(f"Migrate {len(instances)} instances ({', '.join(instances)})?", is_sure=args.force)
        op = OpNodeMigrate(
            node_name=name,
            mode=args.mode,
            live=args.live,
            target_node=args.target_node,
            iallocator=args.iallocator,
            allow_runtime_changes=args.allow_runtime_changes,
            ignore_ipolicy=args.ignore_ipolicy,
        )
        return _submitted(client, op, args)


def failover(args: argparse.Namespace) -> int:
    """Stop all instances of a node and start them elsewhere; the node may be dead, if it is marked offline."""
    from ganeti.model.opcodes.moving import OpInstanceFailover

    with LuxiClient() as client:
        name, instances = _instances_of(client, args.node_name)
        if not instances:
            say(f"No primary instances on node {name}, nothing to do.")
            return 0
        confirm(
            f"Fail over {len(instances)} instances ({', '.join(instances)})?", is_sure=args.force
        )
        jobs = [
            (
                instance,
                OpInstanceFailover(
                    instance_name=instance,
                    target_node=args.target_node,
                    iallocator=args.iallocator,
                    ignore_consistency=args.ignore_consistency,
                    ignore_ipolicy=args.ignore_ipolicy,
                ),
            )
            for instance in instances
        ]
        return 0 if run_jobs(client, jobs, args) else EXIT_FAILURE


def evacuate(args: argparse.Namespace) -> int:
    """Take all instances off a node, and the copies of disks that others have there."""
    from ganeti.model.opcodes.moving import OpNodeEvacuate

    if args.remote_node and args.iallocator:
        raise InputError("give either a node or an allocator, not both", "iallocator")
    with LuxiClient() as client:
        name = client.rows("Nodes", [args.node_name], ["name"])[0][0]
        confirm(f"Evacuate node {name}?", is_sure=args.force)
        op = OpNodeEvacuate(
            node_name=name,
            mode=args.mode or ALL_ROLES,
            remote_node=args.remote_node,
            iallocator=args.iallocator,
            early_release=args.early_release,
            ignore_soft_errors=args.ignore_soft_errors,
        )
        return _submitted(client, op, args)


def _instances_of(client: LuxiClient, node: str) -> tuple[str, list[str]]:
    """Full name of a node, and the names of its primary instances."""
    name, instances = client.rows("Nodes", [node], ["name", "pinst_list"])[0]
    return name, sorted(instances)
