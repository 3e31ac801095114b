"""`gnt-cluster list-users` and the commands that change the users file of the REST interface and the web console."""

import argparse
import sys
from collections.abc import Callable

from ganeti.base.errors import InputError
from ganeti.base.paths import Paths
from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable, option
from ganeti.cli.input_file import read_text
from ganeti.cli.jobs import run_opcode
from ganeti.cli.options import JSON, TABLE_OPTIONS
from ganeti.cli.output import print_json, print_rows
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument

USER = Argument("user_name", "name of the user", completion="user")
OPTIONS = option(
    "--options",
    metavar="OPTION,…",
    help="role, limits and end of the account, for example operator,name=web*,until=2027-12-31 (see ganeti-rapi(8))",
)
TOKEN = option(
    "--token", action="store_true", help="create a random token and print it, instead of a password"
)
_TITLES = ("Name", "Login", "Role", "Options", "Until")
_TOKEN_BYTES = 32
_LINE_LIMIT = 4096


def add_user_commands(table: CommandTable) -> None:
    """Add the commands to the table."""
    table.command("list-users", *TABLE_OPTIONS)(list_users)
    table.command("add-user", OPTIONS, TOKEN, JSON, USER._replace(completion=""))(add_user)
    table.command(
        "modify-user",
        option("--options", metavar="OPTION,…", help="replace all options; an empty text leaves only lists and facts"),
        option("--password", action="store_true", dest="is_password", help="set another password"),
        TOKEN,
        JSON,
        USER,
    )(modify_user)  # fmt: skip
    table.command("remove-user", USER)(remove_user)


def list_users(args: argparse.Namespace) -> int:
    """Show the users of the REST interface and the web console, in the order of the users file.

    The role is `write`, `operator`, `read` or `-` (lists and facts only). Invalid lines of the file cannot log in;
    they are reported on standard error, and the exit code is 1. Users of login links and of an OpenID provider are not
    in the file; the page "Users" of the console shows them while they have a session.
    """
    from ganeti.model.rest_users import parse_users

    entries, problems = parse_users(_read())
    shown = [
        {
            "name": one.user.name,
            "login": "token" if one.is_token else "password",
            "role": one.user.rights.role,
            "options": one.options,
            "until": one.user.rights.until and one.user.rights.until.isoformat(),
        }
        for one in entries.values()
    ]
    if args.is_json:
        print_json(shown)
    else:
        rows = [[one[title.lower()] or "-" for title in _TITLES] for one in shown]
        print_rows(_TITLES, rows, args)
    for problem in problems:
        say(f"{Paths.from_environment().rapi_users}: {problem}", file=sys.stderr)
    return 1 if problems else 0


def add_user(args: argparse.Namespace) -> int:
    """Add a user of the REST interface and the web console.

    On a terminal the command asks for the password twice; otherwise it reads one line from standard input. The
    password is never an argument, because other users of the host could see it. The users file gets its digest. With
    `--token`, the command prints a random token once; it is for programs (`Authorization: Bearer TOKEN`) and for the
    login of the console. The change counts at once, and a job copies the file to the other candidates.
    """
    from ganeti.model.rest_users import with_user

    word, token = _secret(args)
    _change(args, lambda text: with_user(text, args.user_name, word, args.options or ""))
    _report(args, token)
    return 0


def modify_user(args: argparse.Namespace) -> int:
    """Change the options, the password or the token of a user of the REST interface.

    A new password or token ends the sessions of the user. Passwords are read as by add-user.
    """
    from ganeti.model.rest_users import with_changes

    if args.options is None and not args.is_password and not args.token:
        raise InputError("pass at least one of --options, --password and --token", args.user_name)
    if args.is_password and args.token:
        raise InputError("--password and --token exclude each other", args.user_name)
    with_changes(_read(), args.user_name, None, args.options)  # before it asks for a password
    word, token = _secret(args) if args.is_password or args.token else (None, "")
    _change(args, lambda text: with_changes(text, args.user_name, word, args.options))
    _report(args, token)
    return 0


def remove_user(args: argparse.Namespace) -> int:
    """Remove a user of the REST interface; its sessions and open consoles end at once."""
    from ganeti.model.rest_users import without_user

    _change(args, lambda text: without_user(text, args.user_name))
    return 0


def _read() -> str:
    path = Paths.from_environment().rapi_users
    return read_text(str(path)) if path.exists() else ""


def _change(args: argparse.Namespace, change: Callable[[str], str]) -> None:
    """Replace the users file of the master, and copy it to the other candidates; GanetiError."""
    from ganeti.base.errors import ErrorCode, PrereqError
    from ganeti.base.files import locked_directory, write_atomically
    from ganeti.base.permissions import repair
    from ganeti.base.users import ServiceUsers
    from ganeti.model.opcodes.cluster import OpClusterRedistConf

    with LuxiClient() as client:
        client.call("QueryClusterInfo")  # only the master's file counts
    paths = Paths.from_environment()
    path = paths.rapi_users
    try:
        with locked_directory(path.parent):  # two commands at once must not lose a user
            write_atomically(path, change(_read()).encode())
        if (users := ServiceUsers.of_node(paths)) is not None:
            repair(paths, users, [path])
    except OSError as err:
        raise PrereqError(
            f"{path}: cannot be written: {err.strerror}", ErrorCode.ENVIRONMENT
        ) from err
    run_opcode(OpClusterRedistConf(), args)


def _secret(args: argparse.Namespace) -> tuple[str, str]:
    """Return the second word of the user's line, and a new token or ''."""
    from ganeti.model.rest_users import password_word, token_word

    if args.token:
        import secrets

        token = secrets.token_urlsafe(_TOKEN_BYTES)
        return token_word(token), token
    return password_word(args.user_name, _password(args.user_name)), ""


def _password(name: str) -> str:
    if not sys.stdin.isatty():
        password = sys.stdin.readline(_LINE_LIMIT).rstrip("\r\n")
    else:
        from getpass import getpass

        password = getpass(f"Password for {name}: ")
        if password != getpass("The same password again: "):
            raise InputError("the two passwords differ", f"user {name}")
    if not password:
        raise InputError("the password is empty", f"user {name}")
    return password


def _report(args: argparse.Namespace, token: str) -> None:
    if args.is_json:
        print_json({"name": args.user_name, "token": token or None})
    elif token:
        say(token)
