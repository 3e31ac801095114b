"""`ganeti-users-setup`: creates or removes the users and groups of the daemons of this node."""

import argparse
import asyncio
import grp
import os
import pwd
import sys
from collections.abc import Mapping, Sequence

from ganeti.base import permissions
from ganeti.base.errors import ErrorCode, GanetiError, HostError, InputError, PrereqError
from ganeti.base.files import write_atomically
from ganeti.base.paths import Paths
from ganeti.base.process import Run, run
from ganeti.base.terminal import Parser, say
from ganeti.base.users import (
    ADMIN,
    ADMIN_DAEMONS,
    DAEMON_ROLES,
    DAEMONS,
    GROUP_ROLES,
    NAME,
    ServiceUsers,
    format_names,
    parse_names,
    users_file,
)
from ganeti.bootstrap.daemons import MASTERD, Daemons

PREFIX = "gnt"
HOME = "/nonexistent"
SHELL = "/usr/sbin/nologin"


def names_of(prefix: str) -> dict[str, str]:
    """Return role -> name of the user or group; InputError for a name that the system would refuse."""
    names = {role: f"{prefix}-{role}" for role in (*DAEMON_ROLES, *GROUP_ROLES)}
    for name in names.values():
        if not NAME.fullmatch(name):
            raise InputError(f"{name!r:.60} is not the name of a user", "prefix")
    return names


def commands(names: Mapping[str, str], users: set[str], groups: set[str]) -> list[list[str]]:
    """Return the commands that create the missing users and groups, given the existing ones."""
    made = [
        ["groupadd", "--system", names[role]] for role in GROUP_ROLES if names[role] not in groups
    ]
    for role in DAEMON_ROLES:
        further = names[ADMIN] if role in ADMIN_DAEMONS else ""
        if names[role] not in users:
            words = ["useradd", "--system", "--gid", names[DAEMONS], "--groups", further]
            words += ["--no-create-home", "--home-dir", HOME, "--shell", SHELL]
            made.append([*words, "--comment", f"Ganeti {role}", names[role]])
        else:
            made.append(["usermod", "--gid", names[DAEMONS], "--groups", further, names[role]])
    return made


def removing_commands(
    names: Mapping[str, str], users: set[str], groups: set[str]
) -> list[list[str]]:
    """Return the commands that remove the existing ones."""
    gone = [["userdel", names[role]] for role in DAEMON_ROLES if names[role] in users]
    return gone + [["groupdel", names[role]] for role in GROUP_ROLES if names[role] in groups]


async def set_up(paths: Paths, prefix: str, *, run: Run = run) -> list[str]:
    """Create users and groups, record their names, set the owner of every path; return the actions.

    PrereqError if this node has users with other names.
    """
    names = names_of(prefix)
    if _names_here(paths) not in ({}, names):
        raise PrereqError(
            (
                f"this node has users with other names (see {users_file(paths)}); pass their "
                "--prefix, or remove them first with --remove"
            ),
            ErrorCode.EXISTS,
        )
    wanted = commands(names, *_known())
    for words in wanted:
        await run(words)
    paths.etc.mkdir(parents=True, exist_ok=True)
    write_atomically(users_file(paths), format_names(names).encode(), mode=0o644)
    made = [f"created {words[-1]}" for words in wanted if words[0] != "usermod"]
    return made + permissions.repair(paths, ServiceUsers.of_node(paths))


async def tear_down(paths: Paths, *, run: Run = run) -> list[str]:
    """Give all files to root, and remove the users and groups; PrereqError while the master runs."""
    names = _names_here(paths)
    if not names:
        return []
    if Daemons(paths).status(MASTERD).process:
        raise PrereqError(
            f"{MASTERD} runs as {names['masterd']}; stop it first", ErrorCode.WRONG_STATE
        )
    users_file(paths).unlink()
    permissions.repair(paths, None)
    for words in removing_commands(names, *_known()):
        await run(words)
    return [f"removed {name}" for name in names.values()]


def _names_here(paths: Paths) -> dict[str, str]:
    try:
        text = users_file(paths).read_text(encoding="ascii")
    except FileNotFoundError:
        return {}
    return parse_names(text, str(users_file(paths)))


def _known() -> tuple[set[str], set[str]]:
    return {user.pw_name for user in pwd.getpwall()}, {group.gr_name for group in grp.getgrall()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program."""
    args = _parser().parse_args(argv)
    paths = Paths.from_environment()
    try:
        if os.geteuid() != 0:
            raise HostError("only root can create users")
        work = tear_down(paths) if args.remove else set_up(paths, args.prefix)
        for line in asyncio.run(work):
            say(line)
    except GanetiError as err:
        say(f"ganeti-users-setup: {err}", file=sys.stderr)
        return err.exit_code
    if not args.remove and Daemons(paths).status(MASTERD).process:
        say(f"{MASTERD} runs unchanged until it is restarted.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ganeti-users-setup",
        description=(
            "Create the users that the daemons of this node run under, and give them their "
            "files. Idempotent."
        ),
        epilog="Members of the group PREFIX-admin may use the gnt-* commands.",
    )
    parser.add_argument("--prefix", default=PREFIX, help=f"prefix of the names (default: {PREFIX})")
    parser.add_argument(
        "--remove",
        action="store_true",
        help="remove the users and groups; all daemons run as root again",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
