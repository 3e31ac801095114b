"""Whose the files of a node are, and who may read them: one table, applied and checked (S224-S226).

Where all daemons run as root the owners do not matter, and only secrets are checked.
"""

import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import HostError
from ganeti.base.paths import Paths
from ganeti.base.users import (
    ADMIN,
    CONFD,
    DAEMONS,
    MASTERD,
    RAPI,
    ServiceUsers,
    become,
    users_file,
)

ROOT = "root"
MASTER_LOG, MOND_LOG = "master-daemon.log", "monitoring-daemon.log"
CONFD_LOG = "conf-daemon.log"
REST_LOG, AUDIT_LOG = "rapi-daemon.log", "rapi-audit.log"
MASTER_AUDIT_LOG = "master-audit.log"
LOG_FILES = {
    MASTER_LOG: MASTERD,
    REST_LOG: RAPI,
    AUDIT_LOG: RAPI,
    MASTER_AUDIT_LOG: MASTERD,
    CONFD_LOG: CONFD,
    MOND_LOG: CONFD,
}
"""Whose the logs of daemons without the rights of root are; the monitoring daemon is confd's user."""
ETCD_LOGS = ("etcd-daemon.log", "etcd.log")
"""Of what watches over this candidate's etcd server, and the server's own."""
_DATABASE_PARTS = ("", "-wal", "-shm", ".lock")


@dataclass(frozen=True)
class Rule:
    """One path: owner and group are roles (`ganeti.base.users`)."""

    path: Path
    owner: str
    group: str
    mode: int
    is_secret: bool = False
    """Nobody else may read it, however this node's daemons run."""


def table(paths: Paths) -> list[Rule]:
    """Every path with its owner, outermost first; those that do not exist are left out by who uses it."""
    databases = [
        path.with_name(path.name + part)
        for path in (paths.state, paths.job_archive)
        for part in _DATABASE_PARTS
    ]
    secrets = [
        paths.register,
        paths.node_key,
        paths.next_node_key,
        paths.authority_key,
        paths.confd_key,
        paths.former_confd_key,
        *databases,
        paths.state_settings,
        paths.etcd_server_settings,
        paths.etcd_authority,
        paths.etcd_certificate,
        paths.etcd_key,
    ]
    return [
        Rule(paths.etc, ROOT, ROOT, 0o755),
        Rule(users_file(paths), ROOT, ROOT, 0o644),
        # Clients of the master look up where it is; every secret in here is closed by itself.
        Rule(paths.data, MASTERD, DAEMONS, 0o751),
        Rule(paths.etcd_directory, MASTERD, DAEMONS, 0o700, is_secret=True),
        *(Rule(path, MASTERD, DAEMONS, 0o600, is_secret=True) for path in secrets),
        Rule(paths.node_certificate, MASTERD, DAEMONS, 0o644),
        Rule(paths.authority_certificate, MASTERD, DAEMONS, 0o644),
        Rule(paths.rapi_certificate, ROOT, DAEMONS, 0o600, is_secret=True),
        Rule(paths.cluster_domain_secret, MASTERD, DAEMONS, 0o600, is_secret=True),
        Rule(paths.spice_certificate, ROOT, DAEMONS, 0o600, is_secret=True),
        Rule(paths.rapi_users, RAPI, DAEMONS, 0o600, is_secret=True),
        Rule(paths.tasks, ROOT, ROOT, 0o700),
        Rule(paths.log, ROOT, DAEMONS, 0o750),
        *(Rule(paths.log / name, role, DAEMONS, 0o640) for name, role in LOG_FILES.items()),
        *(Rule(paths.log / name, MASTERD, DAEMONS, 0o640) for name in ETCD_LOGS),
        Rule(paths.log / "node-daemon.log", ROOT, DAEMONS, 0o640),
        Rule(paths.log / "kvm", ROOT, ROOT, 0o700),
        Rule(paths.run, ROOT, ROOT, 0o755),
        Rule(paths.kvm, ROOT, ROOT, 0o700, is_secret=True),
        Rule(paths.run / "uid-pool", ROOT, ROOT, 0o700),
        Rule(paths.luxi_socket.parent, MASTERD, ADMIN, 0o750),
        Rule(paths.luxi_socket, MASTERD, ADMIN, 0o660),
    ]


def problems(paths: Paths, users: ServiceUsers | None) -> list[str]:
    """What differs from the table, a sentence each."""
    found = []
    for rule, status in _existing(paths):
        if stat.S_ISLNK(status.st_mode):
            found.append(f"{rule.path} is a symbolic link")
        elif users is None:
            wrong = stat.S_IMODE(status.st_mode) & ~rule.mode
            if rule.is_secret and wrong:
                found.append(f"{rule.path} is open to others (mode {_octal(status)})")
        elif (status.st_uid, status.st_gid) != (owner := _owner(rule, users)):
            found.append(
                f"{rule.path} belongs to {status.st_uid}:{status.st_gid}, not to"
                f" {owner[0]}:{owner[1]} ({rule.owner}:{rule.group})"
            )
        elif stat.S_IMODE(status.st_mode) != rule.mode:
            found.append(f"{rule.path} has mode {_octal(status)}, not {rule.mode:04o}")
    return found


def mend(
    paths: Paths, users: ServiceUsers | None, only: Collection[Path] | None = None
) -> list[str]:
    """Give every existing path (or `only` these) its owner and mode, without a service user those of root; what was done.

    HostError if something is not what it should be, such as a link: nothing of it is followed.
    """
    done = []
    for rule, _status in _existing(paths):
        if only is not None and rule.path not in only:
            continue
        try:
            if _mend(rule, (0, 0) if users is None else _owner(rule, users)):
                done.append(f"{rule.path} belongs to {rule.owner}:{rule.group} again")
        except OSError as err:
            raise HostError(f"{rule.path} cannot be given to {rule.owner}: {err.strerror}") from err
    return done


def begin_as(paths: Paths, role: str) -> ServiceUsers | None:
    """The first act of a daemon that root has started: put the paths right, give root's rights up.

    Returns the users of this node, or None where all run as one; HostError or ConfigurationError if
    this process cannot, or must not, be that daemon. What only root may read is read before.
    """
    users = ServiceUsers.of_node(paths)
    if users is None:
        return None
    if role == ROOT:
        mend(paths, users)
        return users
    account = users.accounts[role]
    if os.geteuid() == 0:
        for name, owner in LOG_FILES.items():
            if owner == role:
                make_log(paths.log / name)
        mend(paths, users)
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


def _mend(rule: Rule, owner: tuple[int, int]) -> bool:
    """Through a descriptor, so that what was looked at is what is changed."""
    descriptor = os.open(rule.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISLNK(status.st_mode):
            raise HostError(f"{rule.path} is a symbolic link: look who made it, and remove it")
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            raise HostError(f"{rule.path} has a second name: look who made it, and remove it")
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
    """A daemon cannot make files in the directory of logs, which it shares with others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(path, flags, 0o640))


def _octal(status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode):04o}"
