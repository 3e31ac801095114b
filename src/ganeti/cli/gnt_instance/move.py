"""gnt-instance migrate."""

import argparse

from ganeti.cli.command import option
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.jobs import confirm, run_job
from ganeti.cli.options import FORCE, IALLOCATOR, IGNORE_IPOLICY, INSTANCE, JOB_OPTIONS
from ganeti.clients.luxi import LuxiClient


@table.command(
    "migrate",
    INSTANCE,
    FORCE,
    option("-n", "--target-node", dest="target_node", metavar="NODE", completion="node",
           help="node that is to run it; needs a shared disk template"),
    IALLOCATOR,
    option("--non-live", dest="live", action="store_false", default=None,
           help="stop the guest while it is moved"),
    option("--migration-mode", dest="mode", choices=("live", "non-live"),
           help="the same, in words"),
    option("--cleanup", action="store_true", help="settle what a broken migration left"),
    option("--allow-failover", dest="allow_failover", action="store_true",
           help="if it does not run, move it all the same"),
    option("--no-runtime-changes", dest="allow_runtime_changes", action="store_false",
           help="do not change its memory to make it fit"),
    option("--ignore-hvversions", dest="ignore_hvversions", action="store_true",
           help="migrate between different versions of the hypervisor"),
    IGNORE_IPOLICY,
    *JOB_OPTIONS,
)  # fmt: skip
def migrate(args: argparse.Namespace) -> int:
    """Move a running instance to another node without stopping it."""
    from ganeti.model.opcodes.instance import OpInstanceMigrate

    with LuxiClient() as client:
        name = client.rows("Instances", [args.instance_name], ["name"])[0][0]
        what = "Settle the broken migration of" if args.cleanup else "Migrate"
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
