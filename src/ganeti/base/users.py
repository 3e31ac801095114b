"""The users of this node's daemons: all run as root, or each under a user of its own (S224).

`ganeti-users-setup` creates the users and writes their names down; a node without that file, such
as one of a virtual cluster, has a single user.
"""

import grp
import os
import pwd
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import ConfigurationError, HostError
from ganeti.base.paths import Paths

MASTERD, RAPI, CONFD = "masterd", "rapi", "confd"
DAEMONS, ADMIN = "daemons", "admin"
DAEMON_ROLES = (MASTERD, RAPI, CONFD)
GROUP_ROLES = (DAEMONS, ADMIN)
ADMIN_DAEMONS = frozenset((MASTERD, RAPI))
"""The members of the group that may ask the master."""
NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}", re.ASCII)
_DAEMON_UMASK = 0o027


@dataclass(frozen=True)
class Account:
    """A user, with the groups of its daemon."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class ServiceUsers:
    """The users of this node: `daemons` is their common group, `admin` that of the master's clients."""

    accounts: Mapping[str, Account]
    daemons: int
    admin: int

    @classmethod
    def of_node(cls, paths: Paths) -> "ServiceUsers | None":
        """Return the users that were set up here, or None; ConfigurationError if they no longer exist."""
        try:
            text = users_file(paths).read_text(encoding="ascii")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as err:
            raise ConfigurationError(f"{users_file(paths)} cannot be read: {err}") from err
        names = parse_names(text, str(users_file(paths)))
        try:
            daemons, admin = (grp.getgrnam(names[role]).gr_gid for role in GROUP_ROLES)
            accounts = {}
            for role in DAEMON_ROLES:
                user = pwd.getpwnam(names[role])
                groups = (daemons, admin) if role in ADMIN_DAEMONS else (daemons,)
                accounts[role] = Account(user.pw_name, user.pw_uid, daemons, groups)
        except KeyError as err:
            raise ConfigurationError(
                f"{users_file(paths)} names a user or group that this host does not have"
                f" ({err.args[0]}); run ganeti-users-setup, or remove that file"
            ) from err
        if any(account.uid == 0 for account in accounts.values()):
            raise ConfigurationError(f"{users_file(paths)} gives a daemon the rights of root")
        return cls(accounts, daemons, admin)


def users_file(paths: Paths) -> Path:
    """Role and name of each user and group, one pair a line."""
    return paths.etc / "users"


def parse_names(text: str, where: str) -> dict[str, str]:
    """Return role -> name; ConfigurationError unless there is exactly one name for each role."""
    names: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        role, _, name = (word.strip() for word in line.partition("="))
        if role in names or role not in DAEMON_ROLES + GROUP_ROLES or not NAME.fullmatch(name):
            raise ConfigurationError(f"{where}: {line!r:.80} is not 'role = name'")
        names[role] = name
    if missing := [role for role in DAEMON_ROLES + GROUP_ROLES if role not in names]:
        raise ConfigurationError(f"{where} does not name the user for {', '.join(missing)}")
    return names


def format_names(names: Mapping[str, str]) -> str:
    """Return the text for `parse_names`."""
    lines = [f"{role} = {names[role]}" for role in DAEMON_ROLES + GROUP_ROLES]
    return "\n".join(
        ["# As whom the daemons of this node run; see ganeti-users-setup(8).", *lines, ""]
    )


@contextmanager
def acting_as(account: Account) -> Iterator[None]:
    """Open and create files with the rights of `account` during the block; for one thread, at the start."""
    groups = os.getgroups()
    os.setgroups(account.groups)
    os.setegid(account.gid)
    os.seteuid(account.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def become(account: Account) -> None:
    """Drop root's rights for those of `account`, permanently; HostError if that fails (S227)."""
    try:
        os.setgroups(account.groups)
        os.setresgid(account.gid, account.gid, account.gid)
        os.setresuid(account.uid, account.uid, account.uid)
    except OSError as err:
        raise HostError(f"cannot change to the user {account.name}: {err.strerror}") from err
    os.umask(_DAEMON_UMASK)
    for module in (os.__file__, __file__):
        # A later import would fail with an unclear error.
        if not os.access(module, os.R_OK):
            raise HostError(f"{account.name} cannot read {module}; install it for all users")
    if os.getresuid() != (account.uid,) * 3 or os.getresgid() != (account.gid,) * 3:
        raise HostError(f"cannot change to the user {account.name}")
