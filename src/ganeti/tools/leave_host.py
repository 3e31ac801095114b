"""Removal of the programs' data on this host, before the programs are removed: `python -m ganeti.tools.leave_host`."""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.node_files import Lifetime, existing, node_files
from ganeti.base.paths import Paths
from ganeti.base.terminal import Parser, say
from ganeti.tools.program import ended

PROG = "leave_host"


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0, or 1 after an error message."""
    args = parser().parse_args(argv)
    return ended(PROG, lambda: _leave(Paths(args.root), only_check=args.check))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = Parser(
        prog=PROG,
        description="Remove logs, sockets and caches of this host; it must be in no cluster.",
    )
    made.add_argument(
        "--check", action="store_true", help="only check that the host is in no cluster"
    )
    made.add_argument(
        "root", nargs="?", type=Path, default=Path("/"), help="the host's root directory"
    )
    return made


def _leave(paths: Paths, *, only_check: bool) -> int:
    if held := existing(paths, Lifetime.CLUSTER):
        raise PrereqError(
            f"this host has files of a cluster, such as {next(iter(held))}: run 'gnt-cluster destroy' on the last node of a"
            " cluster, or 'gnt-node remove' for this one, or 'node-cleanup --yes-do-it' here",
            ErrorCode.WRONG_STATE,
        )
    if guests := sorted(paths.kvm.glob("*.json")):
        raise PrereqError(
            f"{len(guests)} guests of KVM run on this host (see {guests[0]}): stop them first",
            ErrorCode.WRONG_STATE,
        )
    if only_check:
        return 0
    directories = [paths.etc, paths.data]
    for path in existing(paths, Lifetime.HOST):
        if path not in directories:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for directory in directories:
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()
    left = [path for lifetime in _LASTING for path in existing(paths, lifetime)]
    for path in left:
        say(f"left: {path}")
    return 0


_LASTING = (Lifetime.GUESTS, Lifetime.COPIES, Lifetime.ADMINISTRATOR)


def host_paths(paths: Paths) -> list[Path]:
    """Return the data that belongs to the programs; for the scripts of the package, which cannot call them any more."""
    found = {one.path for one in node_files(paths) if one.lifetime is Lifetime.HOST}
    found -= {paths.etc, paths.data}
    return sorted(path for path in found if not found.intersection(path.parents))


if __name__ == "__main__":
    sys.exit(main())
