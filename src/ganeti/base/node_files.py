"""All paths that this implementation writes on a node.

Their lifetime, the nodes that may have them, and their owner.

This is the only such list. Leaving a cluster, `node-cleanup`, `ganeti-takeover --back`, the removal
of the programs and the table of permissions all read it, and tests compare it with the file systems
of their nodes.
"""

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path

from ganeti.base.paths import Paths
from ganeti.base.state_kinds import state_servers
from ganeti.base.users import ADMIN, CONFD, DAEMONS, MASTERD, RAPI, users_file

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
"""Owners of the logs of daemons without the rights of root; the monitoring daemon runs as confd's user."""
STORAGE_LIST_MARK = "# Directories below which disks may be kept as files, one a line.\n"
"""The first line of a list of storage directories that this implementation has written."""
DATABASE_PARTS = ("", "-wal", "-shm", ".lock")
_WILDCARD = re.compile(r"[*?[]")
_TEMPORARY = re.compile(r"[.](.+)[.][0-9a-f]{8,16}", re.ASCII)
"""The name of an unfinished file (`base.files.AtomicFile`, `ssconf`)."""


class Lifetime(Enum):
    """The event that ends the life of a file."""

    CLUSTER = "the node leaves its cluster"
    GUESTS = "the guests that own the data are removed"
    COPIES = "an administrator removes it"
    HOST = "the programs are removed from this host"
    ADMINISTRATOR = "an administrator wrote it"


class Holders(Enum):
    """The nodes that may have a file (`ganeti.base.roles`)."""

    ALL = "every node"
    CANDIDATES = "master candidates"
    COPIES = "nodes that answer confd queries from a copy"


@dataclass(frozen=True)
class Access:
    """The owner and group of a file, which are roles (`ganeti.base.users`)."""

    owner: str
    group: str
    mode: int
    is_secret: bool = False
    """True if no other user may read it, whatever users this node's daemons have."""


@dataclass(frozen=True)
class NodeFile:
    """A file, or a directory with everything in it; the last part of `path` may be a pattern."""

    path: Path
    lifetime: Lifetime
    access: Access | None = None
    """None: inherited from its directory and its writer."""
    holders: Holders = Holders.ALL

    def covers(self, name: str) -> bool:
        """Return whether a file in the directory is this one, or the rest of an interrupted write of it."""
        return any(fnmatchcase(one, self.path.name) for one in _possible_names(name))

    def among(self, names: Mapping[str, Collection[str]]) -> list[str]:
        """Return the names that it covers; `names` has those in its directory (`_by_possible_name`)."""
        own = self.path.name
        if not _WILDCARD.search(own):
            return sorted(names.get(own, ()))
        found = (names[one] for one in names if fnmatchcase(one, own))
        return sorted({one for several in found for one in several})


def node_files(paths: Paths) -> tuple[NodeFile, ...]:
    """Return the whole list; the cluster's files come in the order of their removal.

    Keys go before the state: without them no process can act for the node. The register goes last:
    until then the node still belongs to a cluster.
    """
    return (*_of_the_cluster(paths), *_of_guests(paths), *_of_the_host(paths))


def existing(paths: Paths, lifetime: Lifetime) -> dict[Path, Holders]:
    """Return paths on this node with this lifetime, in the order of the list, and who may have each.

    None is below another of them.
    """
    found: dict[Path, Holders] = {}
    names: dict[Path, dict[str, list[str]]] = {}
    for one in node_files(paths):
        directory = one.path.parent
        if one.lifetime is not lifetime or directory in found:
            continue
        if directory not in names:
            names[directory] = _by_possible_name(directory)
        for name in one.among(names[directory]):
            found.setdefault(directory / name, one.holders)
    return found


def holders_of(paths: Paths, path: Path) -> Holders:
    """Return the nodes that may have a path of the list; candidates for a path that is not in the list."""
    for one in node_files(paths):
        if one.path.parent == path.parent and one.covers(path.name):
            return one.holders
    return Holders.CANDIDATES


def unexplained(paths: Paths) -> list[Path]:
    """Return paths in this implementation's directories that are not in the list."""
    listed = node_files(paths)
    return [
        directory / name
        for directory in (paths.etc, paths.data)
        for name in _names(directory)
        if not any(one.path.parent == directory and one.covers(name) for one in listed)
    ]


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208  # names are enough: paths take longer
    except (FileNotFoundError, NotADirectoryError):
        return []


def _by_possible_name(directory: Path) -> dict[str, list[str]]:
    """Return the names in a directory by the names that the files may have once they are whole."""
    found = defaultdict[str, list[str]](list)
    for name in _names(directory):
        for possible in _possible_names(name):
            found[possible].append(name)
    return found


def _possible_names(name: str) -> tuple[str, ...]:
    """Return the name of a file, and of the whole one if it is the rest of an interrupted write."""
    unfinished = _TEMPORARY.fullmatch(name) if name.startswith(".") else None
    return (name, unfinished[1]) if unfinished else (name,)


def _of_state_servers(paths: Paths, secret: Access) -> Iterator[NodeFile]:
    """Return the files of state back ends on candidates."""
    private = Access(MASTERD, DAEMONS, 0o700, is_secret=True)
    for server in state_servers():
        found: list[tuple[Path, Access | None]] = [(server.directory(paths), private)]
        found += [(path, secret) for path in server.secrets(paths)]
        found.append((server.preserved_states(paths), None))
        for path, access in found:
            yield NodeFile(path, Lifetime.CLUSTER, access, Holders.CANDIDATES)


def _of_the_cluster(paths: Paths) -> Iterator[NodeFile]:
    data = paths.data
    secret = Access(MASTERD, DAEMONS, 0o600, is_secret=True)
    of_root = Access(ROOT, DAEMONS, 0o600, is_secret=True)
    public = Access(MASTERD, DAEMONS, 0o644)

    def held(path: Path, access: Access | None = None, holders: Holders = Holders.ALL) -> NodeFile:
        return NodeFile(path, Lifetime.CLUSTER, access, holders)

    def candidates(*found: Path, access: Access | None = None) -> Iterator[NodeFile]:
        return (held(path, access, Holders.CANDIDATES) for path in found)

    yield from candidates(paths.authority_key, access=secret)
    yield from candidates(paths.imported)
    yield from candidates(paths.confd_key, paths.former_confd_key, access=secret)
    yield held(paths.own_confd_key, of_root, Holders.COPIES)
    copy = paths.confd_copy
    parts = (copy.with_name(copy.name + part) for part in DATABASE_PARTS)
    yield from (held(part, of_root, Holders.COPIES) for part in parts)
    yield held(paths.node_key, secret)
    yield held(paths.next_node_key, secret)
    yield held(paths.next_node_certificate)
    yield from candidates(paths.cluster_domain_secret, access=secret)
    yield from candidates(paths.rapi_certificate, access=of_root)
    yield from _of_rest_server(paths)
    yield held(paths.node_certificate, public)
    yield held(paths.authority_certificate, public)
    yield held(paths.spice_certificate, of_root)
    yield from map(held, (paths.spice_authority, data / "ssconf", data / "ssconf[._-]*"))
    for database in (paths.state, paths.job_archive):
        parts = (database.with_name(database.name + part) for part in DATABASE_PARTS)
        yield from candidates(*parts, access=secret)
    # States that were replaced, damaged, or written by an older version.
    preserved = (paths.state_before("*"), data / f".{paths.state.name}.aside*")
    yield from candidates(*preserved, data / f"{paths.state.name}.aside-*")
    yield from candidates(data / f"{paths.state.name}.damaged-*", paths.state_room)
    yield from candidates(paths.state_settings, access=secret)
    yield from _of_state_servers(paths, secret)
    yield from candidates(paths.merge, paths.merge_lock, paths.export_backup)
    yield held(paths.watcher_pause)
    yield from (
        held(path, Access(ROOT, ROOT, 0o700))
        for path in (paths.tasks, paths.history, paths.disk_moves)
    )
    yield from map(held, (paths.disk_copies, paths.image_store))
    yield held(paths.disk_grants, Access(ROOT, ROOT, 0o600))
    # One-time keys of a join, and a backup for a merge.
    yield held(data / "join-*")
    yield held(data / "merge-*")
    yield NodeFile(paths.file_storage_paths, _lifetime_of_list(paths.file_storage_paths))
    yield from map(held, (paths.lease, paths.guard_status))
    yield held(paths.register, secret)


def _of_rest_server(paths: Paths) -> Iterator[NodeFile]:
    access = Access(RAPI, DAEMONS, 0o600, is_secret=True)
    for path in (paths.rapi_users, paths.rapi_openid):
        yield NodeFile(path, Lifetime.CLUSTER, access, Holders.CANDIDATES)
    private = Access(RAPI, DAEMONS, 0o700, is_secret=True)
    yield NodeFile(paths.image_uploads, Lifetime.CLUSTER, private)


def _lifetime_of_list(path: Path) -> Lifetime:
    """Return the lifetime of the list of storage directories: an administrator's own list stays."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            is_generated = file.readline(len(STORAGE_LIST_MARK)) == STORAGE_LIST_MARK
    except OSError:
        is_generated = True
    return Lifetime.CLUSTER if is_generated else Lifetime.ADMINISTRATOR


def _of_guests(paths: Paths) -> Iterator[NodeFile]:
    for path in (paths.uefi_variables, paths.tpm_states, paths.exports, paths.live_restores):
        yield NodeFile(path, Lifetime.GUESTS)
    for path in (paths.left_clusters, paths.upstream):
        yield NodeFile(path, Lifetime.COPIES)


def _of_the_host(paths: Paths) -> Iterator[NodeFile]:
    def host(path: Path, access: Access | None = None) -> NodeFile:
        return NodeFile(path, Lifetime.HOST, access)

    yield host(paths.etc, Access(ROOT, ROOT, 0o755))
    yield host(users_file(paths), Access(ROOT, ROOT, 0o644))
    # Clients of the master read the master's name there; each secret in it has its own mode.
    yield host(paths.data, Access(MASTERD, DAEMONS, 0o751))
    yield host(paths.image_work)
    yield host(paths.log, Access(ROOT, DAEMONS, 0o750))
    for name, role in LOG_FILES.items():
        yield host(paths.log / name, Access(role, DAEMONS, 0o640))
    for name in (name for server in state_servers() for name in server.logs):
        yield host(paths.log / name, Access(MASTERD, DAEMONS, 0o640))
    yield host(paths.log / "node-daemon.log", Access(ROOT, DAEMONS, 0o640))
    yield host(paths.log / "kvm", Access(ROOT, ROOT, 0o700))
    yield host(paths.run, Access(ROOT, ROOT, 0o755))
    yield host(paths.kvm, Access(ROOT, ROOT, 0o700, is_secret=True))
    yield host(paths.run / "uid-pool", Access(ROOT, ROOT, 0o700))
    yield host(paths.luxi_socket.parent, Access(MASTERD, ADMIN, 0o750))
    yield host(paths.luxi_socket, Access(MASTERD, ADMIN, 0o660))
    for path in (
        paths.image_paths,
        paths.backup_paths,
        paths.distributed_files,
        paths.allowed_uploads,
        paths.shared_files,
        paths.hooks,
        paths.master_ip_script.parent,
        paths.restricted_commands,
        paths.shell_commands_allowed,
    ):
        yield NodeFile(path, Lifetime.ADMINISTRATOR)
