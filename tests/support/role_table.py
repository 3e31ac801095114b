"""The table of roles (`ganeti.base.roles`) as every node of a virtual cluster must keep it, whatever happened."""

import contextlib
import time
from collections.abc import Sequence

from ganeti.base.errors import GanetiError
from ganeti.base.roles import Role, forbidden_daemons, forbidden_files
from ganeti.bootstrap.daemons import Daemons
from ganeti.clients.luxi import LuxiClient
from ganeti.vcluster.layout import VirtualNode

SHORT = {
    "M": Role.MASTER,
    "C": Role.CANDIDATE,
    "R": Role.REGULAR,
    "D": Role.DRAINED,
    "O": Role.OFFLINE,
}


def violations(nodes: Sequence[VirtualNode]) -> list[str]:
    """Return what a node holds or runs against its role; empty where no master says the roles."""
    found = []
    roles, confd_on_all = _roles(nodes)
    for node in nodes:
        role = roles.get(node.name, Role.OFFLINE)
        if role is Role.OFFLINE:
            continue  # gone, or it may be cut off
        daemons = Daemons(node.paths, environment=node.environment())
        found += [
            f"{node.name} ({role}) has {path}"
            for path in forbidden_files(node.paths, role, confd_on_all=confd_on_all)
        ]
        found += [
            f"{node.name} ({role}) runs {name}"
            for name in forbidden_daemons(role, confd_on_all=confd_on_all)
            if daemons.status(name).is_alive
        ]
    return found


def check_roles(nodes: Sequence[VirtualNode], limit_s: float) -> None:
    """Fail where a node breaks the table after the time that the last operation may take to reach it."""
    end = time.monotonic() + limit_s
    while (found := violations(nodes)) and time.monotonic() < end:
        time.sleep(0.2)
    assert not found, "the table of roles is broken: " + "; ".join(found)


def _roles(nodes: Sequence[VirtualNode]) -> tuple[dict[str, Role], bool]:
    """The roles of all nodes, and whether confd answers on all of them."""
    for node in nodes:
        with (
            contextlib.suppress(GanetiError, OSError),
            LuxiClient(node.paths, timeout_s=20) as client,
        ):
            rows = client.call("QueryNodes", [], ["name", "role"], False)
            confd_on_all = client.call("QueryClusterInfo").get("confd_on_all_nodes", False)
            return {name: SHORT[role] for name, role in rows}, confd_on_all
    return {}, False
