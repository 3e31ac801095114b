"""`query-config`: values of the configuration, by path, from the query daemon of a master candidate."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.paths import CONFD_PORT, Paths
from ganeti.base.terminal import Parser, say
from ganeti.tools.program import ended, read

PROG = "query-config"
LIMIT_S = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    """0, or 1 if a query got no answer."""
    args = parser().parse_args(argv)
    return ended(PROG, lambda: asyncio.run(_ask(args)))


def parser() -> argparse.ArgumentParser:
    """The options, with Ganeti's names."""
    made = Parser(
        prog=PROG,
        description="Show values of the configuration, as a master candidate's ganeti-confd has them.",
    )
    made.add_argument(
        "--hmac", metavar="KEY", help="the cluster's key (default: that of this node)"
    )
    made.add_argument(
        "-a", "--address", metavar="ADDRESS", default="127.0.0.1", help="default: %(default)s"
    )
    made.add_argument("-p", "--port", type=int, default=CONFD_PORT, help="default: %(default)s")
    made.add_argument(
        "query",
        nargs="+",
        help="/version, /serial_no, /master, /cluster/cluster_name, /cluster/master_node,"
        " /cluster/master_ip or /cluster/uuid",
    )
    return made


async def _ask(args: argparse.Namespace) -> int:
    from ganeti.clients.confd import ConfdClient  # noqa: PLC0415 - heavy
    from ganeti.protocols.confd import QueryType, Status  # noqa: PLC0415

    # The file's last line feed is part of the key, and no shell gives it to an option.
    key = (
        f"{args.hmac.rstrip()}\n".encode()
        if args.hmac
        else read(Paths.from_environment().confd_key)
    )
    client = ConfdClient(key, [args.address], port=args.port)
    width = max(map(len, args.query))
    unknown = []
    for path in args.query:
        answer = (await client.ask(QueryType.CONFIG_VALUE, path, limit_s=LIMIT_S)).answer
        if answer.status == Status.OK:
            say(f"{path.ljust(width)}\t{answer.answer}")
        else:
            unknown.append(path)
    if unknown:
        raise PrereqError(f"there is no {', '.join(unknown)}", ErrorCode.UNKNOWN_ENTITY)
    return 0


if __name__ == "__main__":
    sys.exit(main())
