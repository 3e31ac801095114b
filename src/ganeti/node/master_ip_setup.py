"""`master-ip-setup`: add a cluster's address to this host, or remove it, like its master's node.

For an administrator's own `/etc/ganeti/scripts/master-ip-setup` that does something in addition.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from os import environ

from ganeti.base.errors import GanetiError, InputError
from ganeti.base.process import Run, run
from ganeti.base.terminal import Parser, say
from ganeti.node.master_ip import MasterIp
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.mastership import MasterIpArgs


def main(argv: Sequence[str] | None = None, run: Run = run) -> int:
    """Run the program; return 0 also if there is nothing to do."""
    word = parser().parse_args(argv).word
    try:
        asyncio.run(_set_up(word, address_of(environ), run))
    except GanetiError as err:
        say(f"master-ip-setup: {err.message}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the only argument."""
    made = Parser(
        prog="master-ip-setup",
        description="Add a cluster's address to this host, or remove it.",
        epilog="The address is in the environment: MASTER_NETDEV, MASTER_IP, MASTER_NETMASK (bits),"
        " CLUSTER_IP_VERSION (4 or 6).",
    )
    made.add_argument("word", metavar="start|stop", choices=("start", "stop"))
    return made


def address_of(variables: Mapping[str, str]) -> MasterIpArgs:
    """Return the address in the environment; InputError names a missing or wrong variable."""
    names = ("MASTER_NETDEV", "MASTER_IP", "MASTER_NETMASK", "CLUSTER_IP_VERSION")
    if missing := [name for name in names if not variables.get(name)]:
        raise InputError("must be set in the environment", ", ".join(missing))
    address, mask = variables["MASTER_IP"], variables["MASTER_NETMASK"]
    if variables["CLUSTER_IP_VERSION"] != ("6" if ":" in address else "4"):
        raise InputError(f"is not the IP version of {address!r:.60}", "CLUSTER_IP_VERSION")
    if not (mask.isascii() and mask.isdecimal()):
        raise InputError(f"{mask!r:.60} is not a prefix length", "MASTER_NETMASK")
    return MasterIpArgs(address=address, netmask=int(mask), netdev=variables["MASTER_NETDEV"])


async def _set_up(word: str, args: MasterIpArgs, run: Run) -> None:
    master_ip = MasterIp(run, asyncio.Lock())
    await (master_ip.up if word == "start" else master_ip.down)(args, Call())


if __name__ == "__main__":
    sys.exit(main())
