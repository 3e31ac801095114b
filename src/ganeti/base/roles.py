"""What a node of each role may hold (as `ganeti.base.node_files` lists it), and which daemons it may run.

A demotion, a node that returns, `gnt-cluster redist-conf` and each node's watcher make it true; `gnt-cluster
verify` compares every online node with it.
"""

import enum
from pathlib import Path

from ganeti.base.node_files import Lifetime, existing
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


NEEDED = frozenset(("ca.key",))
"""Files that every candidate must have, of those that only candidates may have."""

DAEMONS: dict[str, frozenset[Role]] = {
    "ganeti-confd": CANDIDATES,
    "ganeti-rapi": CANDIDATES,
    "ganeti-masterd": CANDIDATES,
    "ganeti-etcd": CANDIDATES,
}
"""The daemons that only some roles may run, in the order in which they are stopped; all nodes run the others."""


def held_files(paths: Paths) -> list[Path]:
    """Return what is here of the files that only candidates may have (`ganeti.base.node_files`)."""
    return existing(paths, Lifetime.CLUSTER, candidates_only=True)


def forbidden_files(paths: Paths, role: Role) -> list[Path]:
    """Return the files that are here and must not be on a node of this role."""
    return [] if role in KEEPERS else held_files(paths)


def forbidden_daemons(role: Role) -> list[str]:
    """Return the daemons that a node of this role must not run."""
    return [name for name, roles in DAEMONS.items() if role not in roles]
