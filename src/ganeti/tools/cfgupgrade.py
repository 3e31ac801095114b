"""`cfgupgrade`: convert a `config.data` of Ganeti 2.7 to 2.17 to the form of 3.0.

This implementation does not need it: the daemon that opens the state upgrades it, and `gnt-cluster import` reads all
these forms. It is for archived files, and for scripts of upgrades that call it.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.paths import Paths, hostname
from ganeti.base.terminal import Parser, say
from ganeti.tools.program import ended, read

if TYPE_CHECKING:
    from ganeti.upstream.reading import Imported

PROG = "cfgupgrade"
FILE = "config.data"


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 (also if there is nothing to do), or 1 after an error message."""
    args = parser().parse_args(argv)
    return ended(PROG, lambda: _upgrade(args, Paths.from_environment()))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options, with Ganeti's names."""
    made = Parser(
        prog=PROG, description="Convert a config.data of Ganeti 2.7 to 2.17 to the form of 3.0."
    )
    made.add_argument("--dry-run", action="store_true", help="write nothing")
    made.add_argument("-f", "--force", action="store_true", help="skip the confirmation prompt")
    made.add_argument("-d", "--debug", action="store_true", help="as --verbose")
    made.add_argument("-v", "--verbose", action="store_true", help="report every change")
    made.add_argument(
        "--ignore-hostname",
        action="store_true",
        help="continue although this host is not the master",
    )
    made.add_argument(
        "--path", metavar="DIRECTORY", help="directory of config.data (default: /var/lib/ganeti)"
    )
    made.add_argument(
        "--confdir", metavar="DIRECTORY", help="ignored; kept for compatibility with Ganeti 3"
    )
    made.add_argument(
        "--no-verify",
        action="store_true",
        help="skip the check that the new form has the same content",
    )
    made.add_argument(
        "--downgrade", action="store_true", help="refused: older forms are not written"
    )
    return made


def _upgrade(args: argparse.Namespace, paths: Paths) -> int:
    path = (Path(args.path) if args.path else paths.data) / FILE
    if args.downgrade:
        raise PrereqError("older forms than that of 3.0 are not written", ErrorCode.WRONG_INPUT)
    if not args.path and not path.exists():
        if any(one.exists() for one in (paths.register, paths.state, paths.node_certificate)):
            say("The daemons of this cluster upgrade its state: nothing to do.")
            return 0
        raise PrereqError(f"{path} does not exist", ErrorCode.UNKNOWN_ENTITY)
    content = read(path)
    new, report = upgraded(content, verify=not args.no_verify)
    if new is None:
        say(f"{path} is in the form of 3.0 or a newer one: nothing to do.")
        return 0
    if args.verbose or args.debug:
        for line in report:
            say(line)
    _check_host(new, ignore=args.ignore_hostname)
    if args.dry_run:
        say(f"{path} would be written in the form of 3.0.")
        return 0
    if not args.force and not _agrees(path):
        return 1
    say(f"{path} is in the form of 3.0; the old one is {_replace(path, content, new)}")
    return 0


def upgraded(content: bytes, *, verify: bool = True) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the document in the form of 3.0, or None if it needs no conversion; and the changes.

    InputError if it is not a configuration, PrereqError if the new form would have another meaning.
    """
    from ganeti.upstream.forms import VERSION_3_0, parse, version_of  # noqa: PLC0415 - heavy
    from ganeti.upstream.reading import translate  # noqa: PLC0415

    if version_of(content) >= VERSION_3_0:
        return None, []
    new = parse(content)
    new["version"] = VERSION_3_0
    new["serial_no"] = int(new.get("serial_no") or 0) + 1
    imported = translate(parse(content))
    if verify:
        _verify(imported, translate(parse(json.dumps(new).encode())))
    return new, list(imported.report.lines())


def _verify(before: "Imported", after: "Imported") -> None:
    if before.objects != after.objects:
        raise PrereqError(
            "the new form would have another meaning than the old one; nothing was written",
            ErrorCode.INTERNAL,
        )


def _check_host(document: dict[str, Any], *, ignore: bool) -> None:
    master = document["nodes"].get(document["cluster"].get("master_node"), {}).get("name")
    if master != hostname() and not ignore:
        raise PrereqError(
            f"this host is {hostname()}, but the master is {master}: run it there, or with --ignore-hostname",
            ErrorCode.WRONG_STATE,
        )


def _agrees(path: Path) -> bool:
    if not sys.stdin.isatty():
        raise PrereqError(
            "pass --force: standard input is not a terminal, so there is no confirmation prompt",
            ErrorCode.WRONG_INPUT,
        )
    say(f"No daemon of Ganeti may run on any node. Rewrite {path}? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _replace(path: Path, old: bytes, new: dict[str, Any]) -> Path:
    """Write both files, readable by root only; return the old one's new path."""
    from ganeti.base.files import write_atomically  # noqa: PLC0415

    moment = time.strftime("%Y-%m-%dT%H_%M_%S", time.localtime())
    backup = path.with_name(f"{path.name}.backup-{moment}.{os.getpid()}")
    write_atomically(backup, old)
    write_atomically(path, json.dumps(new, sort_keys=True).encode())
    return backup


if __name__ == "__main__":
    sys.exit(main())
