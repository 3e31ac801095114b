"""The commands of gnt-cluster that back the state up and restore it."""

import argparse
from pathlib import Path

from ganeti.base.errors import PrereqError
from ganeti.base.paths import Paths
from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable, option
from ganeti.cli.errors import NeedsConfirmation
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument

BACKUP_LIMIT_S = 1800.0
MASTER_LIMIT_S = 60.0


def add_backup_commands(table: CommandTable) -> None:
    """Add `backup` and `restore` to the table."""
    table.command("backup", Argument("file", "path of the backup", completion="file"))(backup)
    table.command(
        "restore",
        Argument("file", "backup that 'gnt-cluster backup' has written", completion="file"),
        option("--yes-do-it", dest="is_sure", action="store_true",
               help="confirm the loss of a newer state, here or on other candidates"),
        option("--no-start", action="store_true",
               help="do not start the daemons; without a majority of the nodes, start them with 'ganeti-masterd --no-voting --yes-do-it'"),
    )(restore)  # fmt: skip


def backup(args: argparse.Namespace) -> int:
    """Write the state of the running cluster to a file on this node, the master.

    The file is a consistent snapshot of the configuration and of all jobs that are not archived. It has a
    checksum. Only root can read it, because it contains private OS parameters and the keys of
    encrypted backups. A complete backup replaces an
    older file of the same name.

    The backup does not contain the archive of jobs (archive.db), which every candidate has, the keys of the
    cluster, rapi_users, rapi_openid.yaml, and the disks of instances. Copy them separately if you need them.
    Protect the key of the cluster's authority (ca.key): it gives root access to all nodes.
    """
    path = Path(args.file).absolute()
    with LuxiClient(timeout_s=BACKUP_LIMIT_S) as client:
        position = client.call("BackupState", str(path))
    say(f"Wrote the state at position {position} to {path}.")
    return 0


def restore(args: argparse.Namespace) -> int:
    """Restore a backup of the cluster's state on this master candidate, and start the master here.

    The master daemon of this node must be stopped. Try 'gnt-cluster master-failover' on another
    candidate first: it loses no changes. A restore loses all changes after the backup. The command lists
    them as far as it knows them. It preserves the old state in /var/lib/ganeti.

    The epoch and the job ids of the restored state continue far above all known values, so no id is used
    twice, and other nodes accept the restored state. Jobs that were unfinished at the time of the backup end
    with an error and do not run again.

    If this node has a newer state, or other candidates held the last state, the command refuses with exit
    code 13 unless --yes-do-it is given. It always refuses while a node is in contact with another master.
    """
    import asyncio
    from functools import partial

    from ganeti.base.clock import SystemClock
    from ganeti.base.errors import ErrorCode
    from ganeti.bootstrap.daemons import MASTERD, NODED, Daemons
    from ganeti.bootstrap.heard import last_seen_masters
    from ganeti.bootstrap.init import answers
    from ganeti.bootstrap.restore import restore as restore_state

    paths = Paths.from_environment()
    daemons = Daemons(paths)
    status = daemons.status(MASTERD)
    if status.is_alive:
        raise PrereqError(
            "ganeti-masterd runs on this node; stop it before you restore a backup",
            ErrorCode.WRONG_STATE,
        )
    try:
        done = asyncio.run(
            restore_state(
                paths,
                Path(args.file),
                clock=SystemClock(),
                ask_nodes=partial(last_seen_masters, paths),
                is_sure=args.is_sure,
            )
        )
    except PrereqError as err:
        if err.code == ErrorCode.EXISTS:
            raise NeedsConfirmation(err.message) from err
        raise
    for line in done.lines:
        say(line)
    if args.no_start:
        return 0

    async def start() -> None:
        await daemons.start(NODED)
        await daemons.start(MASTERD)
        await answers(paths, MASTER_LIMIT_S)

    asyncio.run(start())
    say("This node is the master.")
    return 0
