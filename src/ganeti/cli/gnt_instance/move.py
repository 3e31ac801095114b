"""gnt-instance migrate, failover, move and change-group."""

import argparse

from ganeti.cli.command import option
from ganeti.cli.confirmation import confirm
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.jobs import run_job
from ganeti.cli.many_jobs import wait_for_all
from ganeti.cli.options import (
    FORCE,
    IALLOCATOR,
    IGNORE_IPOLICY,
    INSTANCE,
    JOB_OPTIONS,
    SHUTDOWN_TIMEOUT,
    TARGET_GROUPS,
)
from ganeti.clients.luxi import LuxiClient


@table.command(
    "migrate",
    INSTANCE,
    FORCE,
    option("-n", "--target-node", dest="target_node", metavar="NODE", completion="node",
           help="node that is to run it; disks that only its present node has go along"),
    IALLOCATOR,
    option("--non-live", dest="live", action="store_false", default=None,
           help="let the guest stand still while it is moved"),
    option("--migration-mode", dest="mode", choices=("live", "non-live"),
           help="the same, in words"),
    option("--cleanup", action="store_true", help="clean up what a broken migration left"),
    option("--allow-failover", dest="allow_failover", action="store_true",
           help="if it does not run, move it all the same"),
    option("--no-runtime-changes", dest="allow_runtime_changes", action="store_false",
           help="do not change its memory to make it fit"),
    option("--ignore-hvversions", dest="ignore_hvversions", action="store_true",
           help="accepted, without effect: versions are not compared, QEMU refuses what does not fit"),
    IGNORE_IPOLICY,
    *JOB_OPTIONS,
)  # fmt: skip
def migrate(args: argparse.Namespace) -> int:
    """Move a running instance to another node without stopping it."""
    from ganeti.model.opcodes.instance import OpInstanceMigrate

    with LuxiClient() as client:
        name = client.rows("Instances", [args.instance_name], ["name"])[0][0]
        what = "Clean up the broken migration of" if args.cleanup else "Migrate"
        confirm(f"{what} instance {name}? Its service may stand still.", is_sure=args.force)
        op = OpInstanceMigrate(
            instance_name=name,
            mode=args.mode,
            live=args.live,
            target_node=args.target_node,
            iallocator=args.iallocator,
            cleanup=args.cleanup,
            allow_failover=args.allow_failover,
            allow_runtime_changes=args.allow_runtime_changes,
            ignore_ipolicy=args.ignore_ipolicy,
            ignore_hvversions=args.ignore_hvversions,
        )
        run_job(client, op, args)
    return 0


@table.command(
    "failover",
    INSTANCE,
    FORCE,
    option("-n", "--target-node", dest="target_node", metavar="NODE", completion="node",
           help="node that is to run it"),
    IALLOCATOR,
    option("--ignore-consistency", dest="ignore_consistency", action="store_true",
           help="accepted, without effect: disks have one copy only"),
    option("--cleanup", action="store_true", help="clean up what a broken migration left"),
    SHUTDOWN_TIMEOUT,
    IGNORE_IPOLICY,
    *JOB_OPTIONS,
)  # fmt: skip
def failover(args: argparse.Namespace) -> int:
    """Stop an instance and start it on another node that has its data.

    Its own node may be dead: make sure of it, and say so with 'gnt-node modify --offline yes'. A node
    that only does not answer might still run the instance, so nothing is done then.
    """
    from ganeti.model.opcodes.moving import OpInstanceFailover

    with LuxiClient() as client:
        name = client.rows("Instances", [args.instance_name], ["name"])[0][0]
        what = "Clean up the broken migration of" if args.cleanup else "Stop and fail over"
        confirm(f"{what} instance {name}?", is_sure=args.force)
        op = OpInstanceFailover(
            instance_name=name,
            target_node=args.target_node,
            iallocator=args.iallocator,
            ignore_consistency=args.ignore_consistency,
            ignore_ipolicy=args.ignore_ipolicy,
            cleanup=args.cleanup,
            shutdown_timeout=args.shutdown_timeout,
        )
        run_job(client, op, args)
    return 0


@table.command(
    "move",
    INSTANCE,
    FORCE,
    option("-n", "--target-node", dest="target_node", metavar="NODE", completion="node",
           required=True, help="node that is to have it"),
    option("--compress", choices=("none", "gzip", "gzip-fast", "gzip-slow"), default="none",
           help="compress the data on its way"),
    option("--ignore-consistency", dest="ignore_consistency", action="store_true",
           help="accepted, without effect: disks have one copy only"),
    SHUTDOWN_TIMEOUT,
    IGNORE_IPOLICY,
    *JOB_OPTIONS,
)  # fmt: skip
def move(args: argparse.Namespace) -> int:
    """Stop an instance, copy its disks to another node, and start it there.

    For disks that only one node has. The guest is down while they are copied; a live migration takes
    them along, too.
    """
    from ganeti.model.opcodes.moving import OpInstanceMove

    with LuxiClient() as client:
        name = client.rows("Instances", [args.instance_name], ["name"])[0][0]
        confirm(
            f"Instance {name} will be moved; it is shut down meanwhile. Continue?",
            is_sure=args.force,
        )
        op = OpInstanceMove(
            instance_name=name,
            target_node=args.target_node,
            compress=args.compress,
            ignore_consistency=args.ignore_consistency,
            ignore_ipolicy=args.ignore_ipolicy,
            shutdown_timeout=args.shutdown_timeout,
        )
        run_job(client, op, args)
    return 0


@table.command(
    "change-group",
    INSTANCE,
    FORCE,
    IALLOCATOR,
    TARGET_GROUPS,
    option("-e", "--early-release", dest="early_release", action="store_true",
           help="accepted, without effect: no disk has a copy that could be freed early"),
    *JOB_OPTIONS,
)  # fmt: skip
def change_group(args: argparse.Namespace) -> int:
    """Move an instance to a node of another group, as an allocator says."""
    from ganeti.model.opcodes.group import OpInstanceChangeGroup

    with LuxiClient() as client:
        name = client.rows("Instances", [args.instance_name], ["name"])[0][0]
        confirm(f"Move instance {name} to another group?", is_sure=args.force)
        op = OpInstanceChangeGroup(
            instance_name=name,
            iallocator=args.iallocator,
            target_groups=args.target_groups,
            early_release=args.early_release,
        )
        result = run_job(client, op, args)
        if args.dry_run or result is None:
            return 0
        return wait_for_all(client, result["jobs"])
