"""The user-id pool: ids under which this node runs processes, one process tree per id.

A pool is a list of ranges, both ends included. An id is handed out with the lock on its file held,
after a look at all processes: a lock file only says that the id is probably in use, and its absence
says nothing, so that neither a crash nor a reboot leaves anything to be put right (S102, S111-S114).
The names are those of Ganeti's Python module.
"""

import contextlib
import fcntl
import grp
import os
import pwd
import random
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, TypeVar

from ganeti.base.errors import ErrorCode, HostError, PrereqError
from ganeti.base.paths import Paths
from ganeti.model.uid_ranges import (
    AddToUidPool,
    CheckUidPool,
    ExpandUidPool,
    FormatUidPool,
    ParseUidPool,
    RemoveFromUidPool,
    UidRange,
)

__all__ = [
    "AddToUidPool",
    "CheckUidPool",
    "ExpandUidPool",
    "FormatUidPool",
    "ParseUidPool",
    "RemoveFromUidPool",
    "UidRange",
]

T = TypeVar("T")
SYSTEM_UIDS = 1000
"""Ids below it belong to services, even if those cannot log in."""
NO_SHELLS = frozenset(("nologin", "false"))
PROC = Path("/proc")
DIRECTORY_VARIABLE = "GANETI_UID_LOCKS"
"""In the environment: the directory of lock files, for all nodes that share a host."""
_FACTS = re.compile(rb"^(State|Threads|Uid):(.*)$", re.MULTILINE)
"""Of all that the kernel says about a process, what is used here."""
_ENDED = ([b"Z"], [b"X"])


def host_conflicts(uid_pool: Iterable[UidRange]) -> list[str]:
    """Why these ids are not free for guests on this host, a sentence each: people and services have them."""
    ranges = list(uid_pool)

    def is_in_pool(number: int) -> bool:
        return any(low <= number <= high for low, high in ranges)

    users = {user.pw_uid: user for user in pwd.getpwall() if is_in_pool(user.pw_uid)}
    problems = [
        f"user id {uid} belongs to {user.pw_name}"
        for uid, user in users.items()
        if uid < SYSTEM_UIDS or Path(user.pw_shell).name not in NO_SHELLS
    ]
    # A guest whose id has no user has a group of the same number.
    return problems + [
        f"the group {group.gr_name} has the number {group.gr_gid}, which a guest would get"
        for group in grp.getgrall()
        if is_in_pool(group.gr_gid) and group.gr_gid not in users
    ]


class LockedUid:
    """An id that is reserved while its lock is held or a process runs with it."""

    def __init__(self, uid: int, lock: int, directory: Path) -> None:
        self._uid, self._lock, self._directory = uid, lock, directory

    def GetUid(self) -> int:
        return self._uid

    def AsStr(self) -> str:
        return str(self._uid)

    def __str__(self) -> str:
        return str(self._uid)

    def __int__(self) -> int:
        return self._uid

    @property
    def directory(self) -> Path:
        """Where its lock file is."""
        return self._directory

    def fileno(self) -> int:
        """The lock's descriptor. A child that inherits it holds the lock on if this process dies."""
        return self._lock

    @property
    def is_locked(self) -> bool:
        return self._lock >= 0

    def Unlock(self) -> None:
        """Give the lock up, once a process runs with the id; its file stays, as a hint."""
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                # Explicitly: a child that has inherited the descriptor shall not hold it on.
                fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = -1


def RequestUnusedUid(
    all_uids: Collection[int],
    *,
    directory: Path | None = None,
    uids_in_use: Callable[[], set[int]] | None = None,
) -> LockedUid:
    """An id of these that no process runs with, locked until `Unlock` or `ReleaseUid`.

    PrereqError if all are in use, HostError if this host cannot be asked.
    """
    directory = lock_directory() if directory is None else directory
    look = uids_in_use or host_uids_in_use
    busy = look()
    free = [uid for uid in all_uids if uid not in busy]
    random.shuffle(free)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Those with a lock file are most probably in use.
        free.sort(key=lambda uid: _lock_file(directory, uid).exists())
        for uid in free:
            lock = _locked(_lock_file(directory, uid))
            if lock is None:
                continue
            try:
                if uid not in look():
                    return LockedUid(uid, lock, directory)
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)
    except OSError as err:
        raise HostError(f"no user id can be locked in {directory}: {err.strerror}") from err
    raise PrereqError(
        f"all {len(all_uids)} user ids of the pool are in use on this node; add some with"
        " 'gnt-cluster modify --add-uids'",
        ErrorCode.NO_RESOURCES,
    )


def ReleaseUid(uid: LockedUid | int | str, *, directory: Path | None = None) -> None:
    """Give an id back to the pool; does not look at processes, and never takes it from its next owner."""
    if isinstance(uid, LockedUid):
        path = _lock_file(uid.directory, uid.GetUid())
        if uid.is_locked:
            path.unlink(missing_ok=True)
            uid.Unlock()
            return
    else:
        path = _lock_file(lock_directory() if directory is None else directory, int(uid))
    # Removing a locked file would let a third process lock a new file of the same name.
    lock = _locked(path, create=False)
    if lock is not None:
        path.unlink(missing_ok=True)
        os.close(lock)


def ExecWithUnusedUid(
    fn: Callable[..., T], all_uids: Collection[int], *args: Any, **kwargs: Any
) -> T:
    """Call `fn(uid, …)`, which starts a process under a free id; if it fails the id is free again."""
    uid = RequestUnusedUid(all_uids)
    try:
        result = fn(uid, *args, **kwargs)
    except BaseException:
        ReleaseUid(uid)
        raise
    uid.Unlock()
    return result


def lock_directory(paths: Paths | None = None) -> Path:
    """Where this node keeps the lock files: in its run directory, which a reboot empties.

    Virtual nodes of one host share its user ids, hence one directory, which their environment names.
    """
    if common := os.environ.get(DIRECTORY_VARIABLE):
        return Path(common)
    return (Paths.from_environment() if paths is None else paths).run / "uid-pool"


def mark_in_use(directory: Path, uid: int) -> None:
    """Put the hint back that an id is in use, for a process that runs with it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    os.close(os.open(_lock_file(directory, uid), flags, 0o600))


def host_uids_in_use(proc: Path = PROC) -> set[int]:
    """The real, effective, saved and file-system user ids of all processes of this host.

    One that has ended, and for which only nobody has waited yet, has none.
    """
    found: set[int] = set()
    for entry in os.scandir(proc):
        if not entry.name.isdecimal():
            continue
        try:
            status = Path(entry.path, "status").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        facts = dict(_FACTS.findall(status))
        if facts.get(b"State", b"").split()[:1] in _ENDED and facts[b"Threads"].split() == [b"1"]:
            continue
        found.update(int(word) for word in facts.get(b"Uid", b"").split())
    if not found:
        raise HostError(f"{proc} does not say which processes run here")
    return found


def _lock_file(directory: Path, uid: int) -> Path:
    return directory / str(uid)


def _locked(path: Path, *, create: bool = True) -> int | None:
    """A descriptor with the lock on the file that is at `path` now; None if another has it, or it is gone."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    while True:
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, descriptor):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # removed between opening and locking: its lock protects nothing


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
