"""`ganeti-confd-client`: query the query daemons from a node that has a key of confd."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ganeti.base.errors import ErrorCode, GanetiError, InputError, PrereqError
from ganeti.base.paths import CONFD_PORT
from ganeti.base.terminal import Parser, say

if TYPE_CHECKING:  # Loaded only when needed.
    from ganeti.clients.confd import BestAnswer, ConfdClient
    from ganeti.protocols.confd import Query

QUERIES = {
    "ping": ("PING", "", "check that the query daemons answer"),
    "node-role": ("NODE_ROLE_BY_NAME", "NODE", "0 master, 1 candidate, 2 offline, 3 drained, 4 regular"),
    "node-ip": ("NODE_IP_BY_INSTANCE_IP", "ADDRESS", "address of the primary node of the instance with ADDRESS"),
    "master": ("MASTER", "", "name of the master node"),
    "node-ips": ("NODE_IPS", "", "addresses of all nodes"),
    "candidate-ips": ("CANDIDATE_IPS", "", "addresses of the master candidates"),
    "instance-ips": ("INSTANCE_IPS", "[LINK]", "addresses of the instances at a link"),
    "node-drbd": ("NODE_DRBD", "NODE", "minors of mirrored disks of a node"),
    "node-instances": ("NODE_INSTANCES", "NODE", "primary and secondary instances of a node"),
    "instance-disks": ("INSTANCE_DISKS", "INSTANCE", "disks of an instance"),
    "config": ("CONFIG_VALUE", "PATH", "one value, for example /cluster/cluster_name"),
    "collectors": ("DATA_COLLECTORS", "", "data collectors"),
    "candidates": ("CANDIDATES", "", "names of the master candidates"),
    "offline-nodes": ("OFFLINE_NODES", "", "names of the offline nodes"),
    "instances": ("INSTANCES", "[NAME]", "names of the instances after NAME, as many as fit into the answer"),
    "primary-node": ("INSTANCE_PRIMARY_NODE", "INSTANCE", "node of an instance"),
}  # fmt: skip
"""Query type, argument and help of each command."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    queries = "\n".join(
        f"  {f'{name} {takes}':28} {what}" for name, (_type, takes, what) in QUERIES.items()
    )
    made = Parser(
        prog="ganeti-confd-client",
        description="Query the query daemons of the master candidates. A node that is not a candidate queries its own daemon.",
        epilog=f"queries:\n{queries}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "query", choices=QUERIES, metavar="QUERY", help="one of the queries listed below"
    )
    made.add_argument("key", nargs="?", help="argument of the query")
    made.add_argument(
        "-a",
        "--address",
        action="append",
        metavar="ADDRESS",
        help="address to query; may be repeated (default: all candidates, or this node if it is not a candidate)",
    )
    made.add_argument(
        "--hmac-file", metavar="FILE", help="file with the key (default: that of this node)"
    )
    made.add_argument(
        "-p", "--port", type=int, default=CONFD_PORT, help="port (default: %(default)s)"
    )
    made.add_argument(
        "-t", "--timeout", type=float, default=5.0, metavar="SECONDS", help="default: %(default)s"
    )
    made.add_argument(
        "-v", "--verbose", action="store_true", help="show the serial and the number of answers"
    )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Print the answer, which is JSON or a text; return 0, or 1 for an error or no answer."""
    args = parser().parse_args(argv)
    try:
        found = _ask(args)
    except GanetiError as err:
        say(f"ganeti-confd-client: {err}", file=sys.stderr)
        return 1
    import json

    answer = found.answer
    if args.verbose:
        say(
            f"serial {answer.serial}, {found.answered} of {found.asked} nodes",
            file=sys.stderr,
        )
    if answer.status:
        why = {
            0: "there is none",
            1: "the query daemon has no data yet",
            2: "the key has the wrong form",
        }
        text = (
            why.get(answer.answer, answer.answer)
            if isinstance(answer.answer, int)
            else answer.answer
        )
        say(f"ganeti-confd-client: {text}", file=sys.stderr)
        return 1
    say(answer.answer if isinstance(answer.answer, str) else json.dumps(answer.answer, indent=2))
    return 0


def _ask(args: argparse.Namespace) -> "BestAnswer":
    import asyncio

    from ganeti.protocols.confd import QueryType

    name, takes, _what = QUERIES[args.query]
    if takes and not takes.startswith("[") and args.key is None:
        raise InputError(f"{args.query} needs {takes}")
    if not takes and args.key is not None:
        raise InputError(f"{args.query} does not accept the argument {args.key!r:.80}")
    query: Query = args.key
    client = client_of_node(args.hmac_file, args.address, args.port)
    return asyncio.run(client.ask(QueryType[name], query, limit_s=args.timeout))


def client_of_node(
    key_file: str | None = None, addresses: Sequence[str] | None = None, port: int = CONFD_PORT
) -> "ConfdClient":
    """Return the client of this node: a candidate queries all candidates, another node queries itself.

    A candidate queries another node in `addresses` with that node's key. PrereqError without a key.
    """
    from pathlib import Path

    from ganeti.base.paths import Paths, hostname
    from ganeti.clients.confd import ConfdClient
    from ganeti.confd.keys import key_of_node
    from ganeti.ssconf import SimpleStore

    paths = Paths.from_environment()
    facts = SimpleStore(paths)
    is_own = not key_file and not paths.confd_key.exists() and paths.own_confd_key.exists()
    path = Path(key_file) if key_file else paths.own_confd_key if is_own else paths.confd_key
    try:
        key = path.read_bytes()
    except OSError as err:
        raise PrereqError(
            f"{path}: {err.strerror}; only root can read it; a master candidate has the cluster's key,"
            " and another node has its own key if confd runs on all nodes",
            ErrorCode.ENVIRONMENT,
        ) from err
    if is_own:
        own = facts.pairs("node_primary_ips").get(hostname(), "")
        return ConfdClient(key, addresses or [own], port=port)
    candidates = facts.lines("master_candidates_ips")
    if addresses and not key_file:
        regular = {
            ip: name for name, ip in facts.pairs("node_primary_ips").items() if ip not in candidates
        }
        if len(addresses) == 1 and addresses[0] in regular:
            key = key_of_node(key, regular[addresses[0]])
    return ConfdClient(key, addresses or candidates, port=port)


if __name__ == "__main__":
    sys.exit(main())
