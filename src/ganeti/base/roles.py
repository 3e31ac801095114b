"""The files and daemons that each role of a node allows (see `ganeti.base.node_files`).

A demotion, a node that returns, `gnt-cluster redist-conf` and each node's watcher enforce it;
`gnt-cluster verify` compares every online node with it.
"""

import enum
from pathlib import Path

from ganeti.base.node_files import Holders, Lifetime, existing
from ganeti.base.paths import Paths
from ganeti.base.state_kinds import state_servers


class Role(enum.StrEnum):
    """The role of a node; each node has exactly one."""

    MASTER = "master"
    CANDIDATE = "candidate"
    REGULAR = "regular"
    DRAINED = "drained"
    OFFLINE = "offline"


CANDIDATES = frozenset((Role.MASTER, Role.CANDIDATE))
KEEPERS = CANDIDATES | {Role.OFFLINE}
"""Roles that keep everything.

A node that is marked offline keeps its files: its copy of the state may be the last one. It is
cleaned when it returns in another role.
"""

COPY_HOLDERS = frozenset((Role.REGULAR, Role.DRAINED))
"""Roles whose confd answers from a copy while the cluster has `confd_on_all_nodes`."""

_CONFD = "ganeti-confd"

NEEDED = frozenset(("ca.key",))
"""Files that every candidate must have, of those that only candidates may have."""

DAEMONS: dict[str, frozenset[Role]] = {
    _CONFD: CANDIDATES,
    "ganeti-rapi": CANDIDATES,
    "ganeti-masterd": CANDIDATES,
    **{server.daemon: CANDIDATES for server in state_servers()},
}
"""The daemons that only some roles may run, in the order in which they are stopped; all nodes run the others."""


def held_files(paths: Paths) -> list[Path]:
    """Return the present files that only some roles may have (`ganeti.base.node_files`)."""
    found = existing(paths, Lifetime.CLUSTER)
    return [path for path, holders in found.items() if holders is not Holders.ALL]


def forbidden_files(paths: Paths, role: Role, *, confd_on_all: bool) -> list[Path]:
    """Return the present files that a node of this role must not have.

    `confd_on_all` is the cluster's parameter `confd_on_all_nodes`, here and below.
    """
    return [
        path
        for path, holders in existing(paths, Lifetime.CLUSTER).items()
        if not may_hold(holders, role, confd_on_all=confd_on_all)
    ]


def may_hold(holders: Holders, role: Role, *, confd_on_all: bool) -> bool:
    """Return whether a node of this role may have files of these holders."""
    if holders is Holders.CANDIDATES:
        return role in KEEPERS
    return holders is Holders.ALL or holds_copy(role, confd_on_all=confd_on_all)


def holds_copy(role: Role, *, confd_on_all: bool) -> bool:
    """Return whether confd of such a node answers from a copy that the master sends."""
    return confd_on_all and role in COPY_HOLDERS


def forbidden_daemons(role: Role, *, confd_on_all: bool) -> list[str]:
    """Return the daemons that a node of this role must not run."""
    copies = COPY_HOLDERS if confd_on_all else frozenset()
    return [
        name
        for name, roles in DAEMONS.items()
        if role not in (roles | copies if name == _CONFD else roles)
    ]
