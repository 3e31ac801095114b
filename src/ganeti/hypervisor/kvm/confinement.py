"""The confinement of a QEMU that a guest may have compromised: a user id, an empty directory, few system calls.

QEMU is started as root, opens disks, devices, logs and sockets, and drops its privileges before the guest's first
instruction (S228-S230). So none of these must belong to the guest's user, and a hotplugged device is passed as an
open file.
"""

import asyncio
import contextlib
import json
import os
import pwd
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ganeti import ssconf, uidpool
from ganeti.base.errors import GanetiError, HostError, HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import Run
from ganeti.hypervisor.kvm.options import option
from ganeti.hypervisor.kvm.runtime import GuestFiles, Record
from ganeti.model.confinement import confinement_problems
from ganeti.model.params import Params

CHROOT_MODE = 0o555
"""The root directory of a guest's QEMU is not writable."""
PROBE_S = 20.0
SETPRIV = "/usr/bin/setpriv"
"""A program of util-linux, which every Debian has."""
_UID_LOCK_SET = 0x48000
"""The number of a set of descriptors that is different from all others."""
_QUESTIONS = ("qmp_capabilities", "query-command-line-options", "quit")


@dataclass(frozen=True)
class Abilities:
    """The options of this QEMU; those of QEMU 9 replaced `-runas` and `-chroot`."""

    run_with_user: bool = False
    run_with_chroot: bool = False
    sandbox: bool = True


@dataclass(frozen=True)
class User:
    """The user whose privileges QEMU keeps."""

    uid: int
    gid: int

    def __str__(self) -> str:
        return f"{self.uid}:{self.gid}"


@dataclass(frozen=True)
class Confined:
    """The confinement of one start."""

    words: Sequence[str]
    """For QEMU's command line."""
    launcher: Sequence[str] = ()
    """The prefix that starts QEMU with few capabilities."""
    user: User | None = None
    """None for the daemon's own user."""
    lock: uidpool.LockedUid | None = None
    """The lock of the id from the pool, until QEMU runs with the id."""

    @property
    def pool_uid(self) -> int:
        """The id from the pool; 0 if there is none."""
        return self.lock.GetUid() if self.lock else 0

    @property
    def owner(self) -> tuple[int, int]:
        """The user and group of the guest's processes."""
        return (self.user.uid, self.user.gid) if self.user else (os.geteuid(), os.getegid())

    @property
    def descriptors(self) -> Sequence[int]:
        """The descriptors that QEMU inherits: the lock, so that it holds even if this daemon dies now."""
        return (self.lock.fileno(),) if self.lock else ()


class Confinement:
    """Confines the guests of one node."""

    def __init__(self, paths: Paths, run: Run) -> None:
        self._paths, self._run = paths, run
        self._lock_files = uidpool.lock_directory(paths)
        self._known: dict[tuple[str, int, int], Abilities] = {}
        self._one_probe = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def confined(
        self, files: GuestFiles, hvparams: Params, program: str
    ) -> AsyncIterator[Confined]:
        """Confine the start in the block; if it fails, its user id is free again."""
        abilities = await self.abilities(program)
        chroot = files.chroot if hvparams["use_chroot"] else None
        if hvparams["security_model"] != "pool":
            user = user_of(hvparams)
            yield Confined(words(user, chroot, abilities), _launcher(user, chroot), user)
            return
        lock = await self._take_uid()
        try:
            user = _pool_user(lock.GetUid())
            found = [*words(user, chroot, abilities), *_closes(lock)]
            yield Confined(found, _launcher(user, chroot), user, lock)
        except BaseException:
            uidpool.ReleaseUid(lock)
            raise
        lock.Unlock()

    def prepare(self, files: GuestFiles, hvparams: Params) -> None:
        """Make an empty root directory for the guest's QEMU."""
        _remove_tree(files.chroot)
        if hvparams["use_chroot"]:
            files.chroot.mkdir()
            files.chroot.chmod(CHROOT_MODE)

    def remember(self, record: Record) -> None:
        """Reserve the user id of a live guest, whatever became of its lock file."""
        if record.pool_uid:
            uidpool.mark_in_use(self._lock_files, record.pool_uid)

    def clear(self, files: GuestFiles, record: Record) -> None:
        """Free the user id of an ended guest, and remove its directory."""
        if record.pool_uid:
            uidpool.ReleaseUid(record.pool_uid, directory=self._lock_files)
        _remove_tree(files.chroot)

    def pool_problems(self) -> list[str]:
        """Return the faults of the cluster's pool on this node."""
        try:
            pool = self._pool()
        except GanetiError:
            return []  # another check reports a node without facts about its cluster
        return [f"in the user-id pool: {text}" for text in uidpool.host_conflicts(pool)]

    async def abilities(self, program: str) -> Abilities:
        """Return the options of this QEMU, queried once for each version of the program."""
        key = _version_key(program)
        if key is None:
            return Abilities()  # the start will report the reason
        async with self._one_probe:
            if key not in self._known:
                self._known[key] = await self._probe(program)
            return self._known[key]

    async def _probe(self, program: str) -> Abilities:
        questions = "".join(f'{{"execute":"{name}"}}\n' for name in _QUESTIONS)
        try:
            done = await self._run(
                probe_command(program), stdin=questions.encode(), timeout_s=PROBE_S
            )
        except HostError as err:
            raise HypervisorError(f"the options of {program} cannot be queried: {err}") from err
        return abilities_of(done.stdout)

    async def _take_uid(self) -> uidpool.LockedUid:
        pool = self._pool()
        if not pool:
            raise HypervisorError(
                "security_model=pool, but the cluster has no user-id pool; set one with"
                " 'gnt-cluster modify --uid-pool', or choose another security_model"
            )
        uids = uidpool.ExpandUidPool(pool)
        # A scan of all processes takes time, but must not be left half way.
        taking = asyncio.ensure_future(
            asyncio.to_thread(uidpool.RequestUnusedUid, uids, directory=self._lock_files)
        )
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            with contextlib.suppress(GanetiError):
                uidpool.ReleaseUid(await taking)
            raise
        except GanetiError as err:
            raise HypervisorError(str(err)) from err

    def _pool(self) -> list[uidpool.UidRange]:
        definition = ssconf.SimpleStore(self._paths).GetUidPool()
        return uidpool.ParseUidPool(definition, separator="\n")


def words(user: User | None, chroot: Path | None, abilities: Abilities) -> list[str]:
    """Return the options that confine a QEMU."""
    found: list[str] = []
    run_with: dict[str, str | int | bool] = {}
    if chroot is not None and abilities.run_with_chroot:
        run_with["chroot"] = str(chroot)
    elif chroot is not None:
        found += ["-chroot", str(chroot)]
    if user is not None and abilities.run_with_user:
        run_with["user"] = str(user)
    elif user is not None:
        found += ["-runas", str(user)]
    if run_with:
        found += ["-run-with", option(**run_with)]
    if abilities.sandbox:
        denied: dict[str, str | int | bool] = dict.fromkeys(
            ("obsolete", "spawn", "resourcecontrol"), "deny"
        )
        if user is None:
            # The sandbox exists before the user changes, which it would forbid.
            denied["elevateprivileges"] = "deny"
        found += ["-sandbox", option("on", **denied)]
    return found


def _closes(lock: uidpool.LockedUid) -> list[str]:
    """Make QEMU treat the lock's descriptor as one of its own, which it closes once the guest runs.

    It is unused, and QEMU closes such files when a conversation with its monitor ends.
    """
    return ["-add-fd", option(fd=lock.fileno(), set=_UID_LOCK_SET, opaque="uid-lock")]


def _launcher(user: User | None, chroot: Path | None) -> list[str]:
    """Return whether this process is root: only root has privileges to drop."""
    return capability_words(user, chroot) if os.geteuid() == 0 else []


def capability_words(user: User | None, chroot: Path | None) -> list[str]:
    """Return the prefix that starts a program as root without the capabilities that QEMU does not need.

    Without a user of its own it keeps the rest for life; with one it loses all.
    """
    # Images may belong to any user, in directories that are not open to all.
    kept = ["dac_override"]
    if user is not None:
        kept += ["setgid", "setuid"]
    if chroot is not None:
        kept.append("sys_chroot")
    bounds = ",".join(["-all", *(f"+{name}" for name in kept)])
    return [SETPRIV, f"--bounding-set={bounds}", "--inh-caps=-all", "--"]


def user_of(hvparams: Params) -> User | None:
    """Return the user of a guest without a pool: None for root; HypervisorError for an unknown user."""
    if problems := user_problems(hvparams):
        raise HypervisorError(problems[0])
    if hvparams["security_model"] != "user":
        return None
    found = pwd.getpwnam(str(hvparams["security_domain"]))
    return User(found.pw_uid, found.pw_gid)


def user_problems(hvparams: Params) -> list[str]:
    """Return the faults of the parameters that choose QEMU's user, on this node."""
    # The master checks whether a pool exists; the start finds a missing one when it takes an id.
    found = confinement_problems(hvparams, has_pool=True)
    name = str(hvparams["security_domain"])
    if found or not name:
        return found
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        return [f"security_domain: the user {name} does not exist on this node"]
    if user.pw_uid == 0 or user.pw_gid == 0:
        return [f"security_domain: {name} has root privileges"]
    return []


def probe_command(program: str) -> list[str]:
    """Return the words that start a QEMU without a machine, for queries on its standard input."""
    return [
        program,
        *("-machine", "none", "-nodefaults", "-no-user-config", "-display", "none", "-S"),
        *("-qmp", "stdio"),
    ]


def abilities_of(answers: bytes) -> Abilities:
    """Read the answers of QEMU; one without a known option counts as an old one."""
    options: dict[str, set[str]] = {}
    for line in answers.splitlines():
        with contextlib.suppress(ValueError):
            answer: Any = json.loads(line)
            listed = answer.get("return") if isinstance(answer, dict) else None
            for one in listed if isinstance(listed, list) else ():
                options[one["option"]] = {pair["name"] for pair in one["parameters"]}
    if not options:
        return Abilities()
    run_with = options.get("run-with", set())
    return Abilities(
        run_with_user="user" in run_with,
        run_with_chroot="chroot" in run_with,
        sandbox="sandbox" in options,
    )


def _version_key(program: str) -> tuple[str, int, int] | None:
    try:
        status = Path(program).stat()
    except OSError:
        return None
    return program, status.st_mtime_ns, status.st_size


def _pool_user(uid: int) -> User:
    """Return the user; its primary group is that of the host's user of this id, else gid = uid."""
    try:
        return User(uid, pwd.getpwuid(uid).pw_gid or uid)
    except KeyError:
        return User(uid, uid)


def _remove_tree(directory: Path) -> None:
    """Empty the directory: a guest without a user of its own may have written files there."""
    if directory.exists():
        directory.chmod(0o700)
        shutil.rmtree(directory)
