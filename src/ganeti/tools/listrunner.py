"""`ganeti-listrunner`: runs a command or a program on many hosts, by ssh."""

import argparse
import asyncio
import getpass
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ganeti.base.errors import ErrorCode, HostError, InputError, PrereqError
from ganeti.base.terminal import Parser, say
from ganeti.tools.program import ended, read

PROG = "ganeti-listrunner"
BATCH_SIZE = 15


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 even if hosts failed, which is printed; 1 if no host could be started."""
    args = parser().parse_args(argv)
    return ended(PROG, lambda: _run(args))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options, with Ganeti's names: -h is for hosts."""
    made = Parser(
        prog=PROG,
        description="Run a command, or a program of this host, on many hosts by ssh; write a log for each host.",
        add_help=False,
    )
    made.add_argument("--help", action="help", help="show this help")
    made.add_argument(
        "-l", dest="logs", metavar="DIRECTORY", required=True, help="directory of the logs"
    )
    work = made.add_mutually_exclusive_group(required=True)
    work.add_argument("-c", dest="command", metavar="COMMAND", help="a line of shell to run there")
    work.add_argument("-x", dest="program", metavar="FILE", help="a program to copy and run there")
    hosts = made.add_mutually_exclusive_group(required=True)
    hosts.add_argument("-f", dest="host_file", metavar="FILE", help="hosts, one a line")
    hosts.add_argument("-h", dest="hosts", metavar="HOST,...", help="hosts")
    made.add_argument(
        "-a", dest="files", metavar="FILE", action="append", default=[],
        help="a file to copy to the working directory; may be repeated",
    )  # fmt: skip
    made.add_argument("--args", default="", help="arguments of the program, for a shell")
    made.add_argument(
        "-b", dest="batch", type=int, default=BATCH_SIZE, metavar="N",
        help="number of hosts at a time (default: %(default)s)",
    )  # fmt: skip
    made.add_argument("-u", dest="user", default="root", help="user (default: %(default)s)")
    login = made.add_mutually_exclusive_group()
    login.add_argument(
        "-p", dest="password", help="password (default: ask for it, unless -A is given)"
    )
    login.add_argument(
        "-A",
        dest="agent",
        action="store_true",
        help="use the keys of an agent and of this user instead",
    )
    return made


def _run(args: argparse.Namespace) -> int:
    if args.batch < 1:
        raise InputError("must be at least 1", "-b")
    text = read(Path(args.host_file)).decode() if args.host_file else args.hosts.replace(",", "\n")
    hosts = hosts_of(text)
    files = [Path(name) for name in (*args.files, *([args.program] if args.program else []))]
    for path in files:
        if not path.is_file():
            raise HostError(f"{path} is not a file")
    password = None if args.agent else args.password or _asked_password(args.user)
    from ganeti.tools.remote_runs import Login, Work, run_on_all  # noqa: PLC0415 - heavy

    logs = Path(args.logs)
    logs.mkdir(parents=True, exist_ok=True)
    command = args.command or f"./{shlex.quote(Path(args.program).name)} {args.args}"
    work = Work(command, tuple(files), Path(args.program).name if args.program else "")
    failed = asyncio.run(
        run_on_all(hosts, work, Login(args.user, password), logs, at_a_time=args.batch)
    )
    say(f"{len(hosts) - len(failed)} of {len(hosts)} hosts succeeded; logs are in {logs}")
    for host, why in sorted(failed.items()):
        say(f"{host}: {why}", file=sys.stderr)
    return 0


def hosts_of(text: str) -> list[str]:
    """Return names or addresses, each once; InputError if one could be anything else."""
    lines = (line.strip() for line in text.splitlines())
    found = list(dict.fromkeys(line for line in lines if line and not line.startswith("#")))
    for host in found:
        if host.startswith("-") or not all(one.isalnum() or one in ".:-_%" for one in host):
            raise InputError(f"{host!r:.80} is not the name of a host", "hosts")
    if not found:
        raise InputError("the list is empty", "hosts")
    return found


def _asked_password(user: str) -> str:
    if not sys.stdin.isatty():
        raise PrereqError(
            "pass -p or -A: standard input is not a terminal, so the program cannot ask for a password",
            ErrorCode.WRONG_INPUT,
        )
    return getpass.getpass(f"Password of {user} on all hosts: ")


if __name__ == "__main__":
    sys.exit(main())
