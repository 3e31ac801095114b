"""The daemons that must run on this node, and their restart."""

import logging
from pathlib import Path

from ganeti import ssconf
from ganeti.base.errors import GanetiError
from ganeti.base.paths import Paths
from ganeti.base.pidfile import pid_file
from ganeti.base.roles import CANDIDATES, forbidden_daemons
from ganeti.base.state_kinds import state_servers
from ganeti.bootstrap.daemons import CONFD, MASTERD, MODULES, NODED, STATE_DAEMONS, Daemons
from ganeti.bootstrap.own_role import enforce_own_role, own_role

log = logging.getLogger(__name__)

START_ORDER = (NODED, *STATE_DAEMONS, MASTERD, CONFD)


def wanted(paths: Paths, *, has_confd: bool = True) -> list[str]:
    """Return the daemons that a node's roles require, and others that did not end normally.

    A stopped daemon has removed its pid file; a dead one has not.
    """
    role = own_role(paths)
    confd_on_all = ssconf.SimpleStore(paths).has_confd_on_all_nodes()
    forbidden = set(forbidden_daemons(role, confd_on_all=confd_on_all)) if role else set()
    needed = {NODED}
    needed.update(server.daemon for server in state_servers() if server.runs_here(paths))
    if role in CANDIDATES:
        needed.add(MASTERD)
    if has_confd and (paths.confd_key.exists() or paths.own_confd_key.exists()):
        needed.add(CONFD)
    died = {name for name in MODULES if name not in START_ORDER and _has_died(paths.run, name)}
    return [name for name in (*START_ORDER, *sorted(died)) if name in (needed | died) - forbidden]


def _has_died(run: Path, name: str) -> bool:
    return pid_file(run, name).exists()


async def restart_daemons(paths: Paths, daemons: Daemons) -> list[str]:
    """Stop daemons that the node's role forbids, and start missing ones; return the messages."""
    try:
        said = await enforce_own_role(paths, daemons)
    except GanetiError as err:
        said = [f"cannot remove data that only master candidates may have: {err.message}"]
    for name in wanted(paths, has_confd=daemons.has_confd):
        status = daemons.status(name)
        if status.is_alive:
            continue
        try:
            await daemons.start(name)
        except GanetiError as err:
            said.append(f"{name} was not running and cannot be started: {err.message}")
        else:
            said.append(f"{name} was not running and was started")
    return said
