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
    """Give gnt-cluster `backup` and `restore`."""
    table.command("backup", Argument("file", "where to write it", completion="file"))(backup)
    table.command(
        "restore",
        Argument("file", "a file that 'gnt-cluster backup' has written", completion="file"),
        option("--yes-do-it", dest="is_sure", action="store_true",
               help="confirm the loss of a newer state, here or on other candidates"),
        option("--no-start", action="store_true",
               help="do not start the daemons; without a majority of the nodes, start them with 'ganeti-masterd --no-voting --yes-do-it'"),
    )(restore)  # fmt: skip


def backup(args: argparse.Namespace) -> int:
    """Write the cluster's state to a file on this node, the master, while it runs.

    The file holds one moment's configuration and all jobs that are not archived. It is readable by root
    only (private OS parameters are in it), replaces an older file once it is complete, and has a checksum.

    Not in it, so copy them yourself where they matter: the archive of jobs (archive.db), which every
    candidate has; the key of the cluster's authority (ca.key) and other keys, since whoever has that key
    is root on all nodes; rapi_users; disks of instances.
    """
    path = Path(args.file).absolute()
    with LuxiClient(timeout_s=BACKUP_LIMIT_S) as client:
        position = client.call("BackupState", str(path))
    say(f"The state at position {position} is in {path}.")
    return 0


def restore(args: argparse.Namespace) -> int:
    """Put a backup in the place of the cluster's state, on this master candidate, and start its master.

    The master daemon of this node must be stopped. Try 'gnt-cluster master-failover' on another
    candidate first: it loses nothing. What was changed after the backup is lost, and the command says
    what that is as far as it is known. The old state is kept aside in /var/lib/ganeti.

    The restored state goes on far beyond all epochs and job ids that are known, so no id is used twice
    and other nodes follow. Jobs that had not ended when the backup was made become errors: they are
    not run again. A newer state on this node, or other candidates that held the last state, make the
    command refuse unless --yes-do-it is given (exit code 13). It always refuses while any node hears
    another master.
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
            "ganeti-masterd runs on this node; stop it before a backup is restored",
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
