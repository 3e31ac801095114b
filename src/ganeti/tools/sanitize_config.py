"""`sanitize-config`: a configuration without secrets and, as asked, without names, for reports of faults."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ganeti.base.errors import HostError
from ganeti.base.paths import Paths
from ganeti.base.terminal import Parser
from ganeti.tools.program import ended, read

PROG = "sanitize-config"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the file; 0, or 1 with the reason."""
    args = parser().parse_args(argv)
    return ended(PROG, lambda: _write(args))


def parser() -> argparse.ArgumentParser:
    """The options, with Ganeti's names."""
    made = Parser(
        prog=PROG,
        description="Write a configuration without its secrets, and without names and addresses.",
    )
    made.add_argument("output", help="where to write it")
    made.add_argument(
        "-v", "--verbose", action="store_true", help="ignored; kept for compatibility with Ganeti 3"
    )
    made.add_argument(
        "--path", metavar="FILE", help="a config.data (default: that of the running master here)"
    )
    for name, default, what in (
        ("names", "yes", "the cluster's name, and those of nodes and instances"),
        ("ips", "yes", "addresses of the cluster, of nodes, interfaces and networks"),
        ("lvs", "no", "the names of logical volumes"),
        ("os-names", "yes", "the names of OS definitions"),
    ):
        made.add_argument(
            f"--sanitize-{name}",
            choices=("yes", "no"),
            default=default,
            help=f"replace {what} (default: {default})",
        )
    made.add_argument("--no-randomization", action="store_true", help="remove only secrets")
    made.add_argument(
        "--base-domain", default="example.com", metavar="DOMAIN", help="of new names (%(default)s)"
    )
    return made


def _write(args: argparse.Namespace) -> int:
    from ganeti.base.files import write_atomically  # noqa: PLC0415 - heavy, as all of them
    from ganeti.tools.sanitizing import Replacements, sanitized  # noqa: PLC0415

    def replaced(given: str) -> bool:
        return given == "yes" and not args.no_randomization

    what = Replacements(
        names=replaced(args.sanitize_names),
        addresses=replaced(args.sanitize_ips),
        volumes=replaced(args.sanitize_lvs),
        systems=replaced(args.sanitize_os_names),
        domain=args.base_domain,
    )
    document = sanitized(_document(Path(args.path) if args.path else None), what)
    path = Path(args.output).absolute()
    try:
        write_atomically(path, json.dumps(document, indent=2, sort_keys=True).encode() + b"\n")
    except OSError as err:
        raise HostError(f"cannot write {path}: {err.strerror}") from err
    return 0


def _document(path: Path | None) -> dict[str, Any]:
    """Of the file, in whatever form it has; without one of the running master."""
    from ganeti.bootstrap.takeover import export_cluster, original_of  # noqa: PLC0415
    from ganeti.tools.sanitizing import parsed  # noqa: PLC0415

    if path is not None:
        return parsed(read(path))
    paths = Paths.from_environment()
    found, _report = asyncio.run(export_cluster(paths, original_of(paths, None), keep_unknown=True))
    return dict(found)


if __name__ == "__main__":
    sys.exit(main())
