"""What a node of each role may hold, and which daemons it may run: the only such table.

A demotion, a node that returns, `gnt-cluster redist-conf` and each node's watcher make it true; `gnt-cluster
verify` compares every online node with it.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.paths import Paths


class Role(enum.StrEnum):
    """The role of a node; each node has exactly one."""

    MASTER = "master"
    CANDIDATE = "candidate"
    REGULAR = "regular"
    DRAINED = "drained"
    OFFLINE = "offline"


CANDIDATES = frozenset((Role.MASTER, Role.CANDIDATE))
KEEPERS = CANDIDATES | {Role.OFFLINE}
"""A node that is marked offline keeps what it had: its copy of the state may be the last one that is left. It is
cleaned when it returns in another role."""


@dataclass(frozen=True)
class Held:
    """Files that only some roles may have."""

    what: str
    patterns: tuple[str, ...]
    """Names in the data directory."""
    roles: frozenset[Role] = KEEPERS
    is_needed: bool = False
    """Whether every candidate must have it."""


FILES = (
    Held("the key of the cluster's authority", ("ca.key",), is_needed=True),
    Held("keys of confd", ("hmac.key", "hmac.key.former")),
    Held("the secret for moves between clusters", ("cluster-domain-secret",)),
    Held("key and certificate of the REST interface", ("rapi.pem",)),
    Held("users of the REST interface", ("rapi_users",)),
    Held("the state", ("state.db*", "state.before-*", "state.room")),
    Held("the archive of jobs", ("archive.db*",)),
    Held("the state in etcd", ("etcd", "etcd.aside-*", "state-backend.json")),
    Held("the journal of a merge", ("merge",)),
)

DAEMONS: dict[str, frozenset[Role]] = {
    "ganeti-confd": CANDIDATES,
    "ganeti-rapi": CANDIDATES,
    "ganeti-masterd": CANDIDATES,
    "ganeti-etcd": CANDIDATES,
}
"""The daemons that only some roles may run, in the order in which they are stopped; all nodes run the others."""


def held_files(paths: Paths) -> Iterator[tuple[Held, Path]]:
    """Yield what is here of the files in the table."""
    for held in FILES:
        for pattern in held.patterns:
            yield from ((held, path) for path in sorted(paths.data.glob(pattern)))


def forbidden_files(paths: Paths, role: Role) -> list[Path]:
    """Return the files that are here and must not be on a node of this role."""
    return [path for held, path in held_files(paths) if role not in held.roles]


def forbidden_daemons(role: Role) -> list[str]:
    """Return the daemons that a node of this role must not run."""
    return [name for name, roles in DAEMONS.items() if role not in roles]


def kind_of(name: str) -> Held | None:
    """Return the row of the table for a file's name in the data directory."""
    for held in FILES:
        if any(Path(name).match(pattern) for pattern in held.patterns):
            return held
    return None
