"""`node-cleanup`: remove the data of a former cluster from this node."""

import argparse
import asyncio
import os
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from ganeti.base.node_files import Lifetime, existing
from ganeti.base.paths import Paths
from ganeti.base.terminal import Parser, say
from ganeti.tools.program import ended

PROG = "node-cleanup"


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0, or 1 after an error message."""
    args = parser().parse_args(argv)
    if not args.yes_do_it:
        say(
            f"{PROG}: this ends all daemons here, and removes this node's keys, state and archive of jobs;"
            " pass --yes-do-it to confirm",
            file=sys.stderr,
        )
        return 1
    return ended(PROG, lambda: asyncio.run(_clean(Paths.from_environment(), backup=args.backup)))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options, with Ganeti's names."""
    made = Parser(
        prog=PROG,
        description="End the daemons of this node, and remove the data of its cluster. Guests, their disks"
        " and logs are kept.",
    )
    made.add_argument(
        "-d", "--debug", action="store_true", help="ignored; kept for compatibility with Ganeti 3"
    )
    made.add_argument(
        "-v", "--verbose", action="store_true", help="ignored; kept for compatibility with Ganeti 3"
    )
    made.add_argument("--yes-do-it", "--ya-rly", action="store_true", help="confirm the removal")
    made.add_argument(
        "--no-backup",
        dest="backup",
        action="store_false",
        help="keep no copies of the removed files",
    )
    return made


async def _clean(paths: Paths, *, backup: bool) -> int:
    from ganeti.bootstrap.daemons import Daemons  # noqa: PLC0415 - heavy
    from ganeti.bootstrap.destroy import forget_cluster, stop_daemons  # noqa: PLC0415

    await stop_daemons(Daemons(paths))
    found = existing(paths, Lifetime.CLUSTER)
    if not found:
        say("This node has no data of a cluster.")
        return 0
    if backup:
        say(f"The removed files were copied to {_keep(paths, found)}, including keys.")
    forget_cluster(paths)
    say(f"This node has left its cluster: {len(found)} files and directories were removed.")
    return 0


def _keep(paths: Paths, found: Iterable[Path]) -> Path:
    """Copy them, for root only; return the path of the copy."""
    moment = time.strftime("%Y-%m-%dT%H_%M_%S", time.localtime())
    copies = paths.left_clusters
    place = copies.with_name(copies.name.replace("*", f"{moment}.{os.getpid()}"))
    place.mkdir(mode=0o700)
    for path in found:
        if path.is_symlink():
            (place / path.name).symlink_to(path.readlink())
        elif path.is_dir():
            shutil.copytree(path, place / path.name, symlinks=True)
        else:
            shutil.copy2(path, place / path.name)
    return place


if __name__ == "__main__":
    sys.exit(main())
