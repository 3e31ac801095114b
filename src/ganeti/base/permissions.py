"""The owners and modes of a node's files: one table, applied and checked (S224-S226).

Where all daemons run as root the owners do not matter, and only secrets are checked.
"""

import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import HostError
from ganeti.base.node_files import LOG_FILES, ROOT, Access, node_files
from ganeti.base.paths import Paths
from ganeti.base.users import ADMIN, DAEMONS, ServiceUsers, become


@dataclass(frozen=True)
class Rule(Access):
    """The owner and mode of one path."""

    path: Path = Path()


def table(paths: Paths) -> list[Rule]:
    """Return every path that has an owner of its own, outermost first; callers skip missing ones."""
    rules = [Rule(**vars(one.access), path=one.path) for one in node_files(paths) if one.access]
    return sorted(rules, key=lambda rule: len(rule.path.parts))


def problems(paths: Paths, users: ServiceUsers | None) -> list[str]:
    """Return the differences from the table, a sentence each."""
    found = []
    for rule, status in _existing(paths):
        if stat.S_ISLNK(status.st_mode):
            found.append(f"{rule.path} is a symbolic link")
        elif users is None:
            wrong = stat.S_IMODE(status.st_mode) & ~rule.mode
            if rule.is_secret and wrong:
                found.append(f"other users have access to {rule.path} (mode {_octal(status)})")
        elif (status.st_uid, status.st_gid) != (owner := _owner(rule, users)):
            found.append(
                f"{rule.path} belongs to {status.st_uid}:{status.st_gid}, not to"
                f" {owner[0]}:{owner[1]} ({rule.owner}:{rule.group})"
            )
        elif stat.S_IMODE(status.st_mode) != rule.mode:
            found.append(f"{rule.path} has mode {_octal(status)}, not {rule.mode:04o}")
    return found


def repair(
    paths: Paths, users: ServiceUsers | None, only: Collection[Path] | None = None
) -> list[str]:
    """Set owner and mode of every existing path (or `only` these); without a service user, those of root.

    Return the changes. HostError if a path has an unexpected type, such as a link: links are not
    followed.
    """
    done = []
    for rule, _status in _existing(paths):
        if only is not None and rule.path not in only:
            continue
        try:
            if _repair(rule, (0, 0) if users is None else _owner(rule, users)):
                done.append(f"{rule.path} belongs to {rule.owner}:{rule.group} again")
        except OSError as err:
            raise HostError(f"cannot give {rule.path} to {rule.owner}: {err.strerror}") from err
    return done


def begin_as(paths: Paths, role: str) -> ServiceUsers | None:
    """Repair the paths and drop root's rights: the first act of a daemon that root has started.

    Returns the users of this node, or None where all run as one; HostError or ConfigurationError if
    this process cannot, or must not, be that daemon. Files that only root may read must be read
    before.
    """
    users = ServiceUsers.of_node(paths)
    if users is None:
        return None
    if role == ROOT:
        repair(paths, users)
        return users
    account = users.accounts[role]
    if os.geteuid() == 0:
        for name, owner in LOG_FILES.items():
            if owner == role:
                make_log(paths.log / name)
        repair(paths, users)
        become(account)
    elif os.geteuid() != account.uid:
        raise HostError(f"on this node only root or {account.name} can start it")
    if found := problems(paths, users):
        raise HostError(f"{'; '.join(found)}: run 'ganeti-users-setup', and start again")
    return users


def _existing(paths: Paths) -> Iterator[tuple[Rule, os.stat_result]]:
    for rule in table(paths):
        try:
            status = rule.path.lstat()
        except (FileNotFoundError, PermissionError):
            continue
        yield rule, status


def _owner(rule: Rule, users: ServiceUsers) -> tuple[int, int]:
    groups = {ROOT: 0, DAEMONS: users.daemons, ADMIN: users.admin}
    uid = 0 if rule.owner == ROOT else users.accounts[rule.owner].uid
    return uid, groups[rule.group]


def _repair(rule: Rule, owner: tuple[int, int]) -> bool:
    """Change owner and mode through a descriptor, so that the checked file is the changed one."""
    descriptor = os.open(rule.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISLNK(status.st_mode):
            raise HostError(
                f"{rule.path} is a symbolic link: find out which program made it, and remove it"
            )
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            raise HostError(
                f"{rule.path} has a second hard link: find out which program made it, and remove it"
            )
        is_right = (status.st_uid, status.st_gid) == owner
        if is_right and stat.S_IMODE(status.st_mode) == rule.mode:
            return False
        same = f"/proc/self/fd/{descriptor}"
        os.chown(same, *owner)
        Path(same).chmod(rule.mode)
        return True
    finally:
        os.close(descriptor)


def make_log(path: Path) -> None:
    """Create a log, because a daemon cannot create files in the shared directory of logs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(path, flags, 0o640))


def _octal(status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode):04o}"
