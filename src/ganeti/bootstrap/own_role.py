"""Enforces the table of roles (`ganeti.base.roles`) on this node."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from ganeti import ssconf
from ganeti.base.certificate_facts import node_identity
from ganeti.base.errors import GanetiError, HostError
from ganeti.base.files import sync_directory
from ganeti.base.node_files import Holders, Lifetime, existing
from ganeti.base.paths import Paths
from ganeti.base.roles import CANDIDATES, Role, forbidden_daemons, forbidden_files, holds_copy
from ganeti.bootstrap.daemons import CONFD, Daemons
from ganeti.store.register import RegisterFile
from ganeti.store.stored_tail import read_stored_tail

GRACE_S = 900.0
"""Time that a new candidate may have its keys before its ssconf files name it as a candidate."""


def own_role(paths: Paths) -> Role | None:
    """Return candidate, offline or regular, from the ssconf files of this node; None if they do not tell.

    Files that name no candidate at all are ignored, because a cluster has at least one.
    """
    try:
        uuid, name = node_identity(paths.node_certificate.read_bytes())
        candidates = ssconf.candidate_certificates(paths)
        if uuid in candidates:
            return Role.CANDIDATE
        if name in ssconf.SimpleStore(paths).GetOfflineNodeList():
            return Role.OFFLINE
        return Role.REGULAR if candidates else None
    except (GanetiError, OSError, ValueError):
        return None


async def enforce_role(paths: Paths, daemons: Daemons, role: Role) -> list[str]:
    """Stop daemons that a node of this role must not run, and remove forbidden files.

    Return the actions. HostError.
    """
    confd_on_all = ssconf.SimpleStore(paths).has_confd_on_all_nodes()
    done = []
    for name in forbidden_daemons(role, confd_on_all=confd_on_all):
        if daemons.status(name).is_alive:
            await daemons.stop(name)
            done.append(f"{name} was stopped: a {role} node must not run it")
    removed = forbidden_files(paths, role, confd_on_all=confd_on_all)
    return done + await _remove_all(paths, daemons, removed, f"a {role} node must not have it")


async def end_confd_copy(paths: Paths, daemons: Daemons) -> list[str]:
    """Remove the copy of confd unless this node's role and the cluster allow it; return the actions.

    Files of candidates stay: the master removes them when the store no longer needs the node.
    """
    role = own_role(paths)
    if role is None or may_answer_from_copy(paths):
        return []
    found = existing(paths, Lifetime.CLUSTER)
    removed = [path for path, holders in found.items() if holders is Holders.COPIES]
    return await _remove_all(paths, daemons, removed, "confd does not answer from a copy here")


def may_answer_from_copy(paths: Paths) -> bool:
    """Return whether confd of this node answers from a copy, according to the ssconf files."""
    role = own_role(paths)
    confd_on_all = ssconf.SimpleStore(paths).has_confd_on_all_nodes()
    return role is not None and holds_copy(role, confd_on_all=confd_on_all)


async def _remove_all(
    paths: Paths, daemons: Daemons, removed: Sequence[Path], why: str
) -> list[str]:
    """Remove files, after stopping confd if it uses one of them; return the actions. HostError."""
    done = []
    read = (paths.confd_key, paths.state, paths.own_confd_key, paths.confd_copy)
    if any(path in removed for path in read) and daemons.status(CONFD).is_alive:
        await daemons.stop(CONFD)
        done.append(f"{CONFD} was stopped: its data is removed")
    try:
        for path in removed:
            _remove(path)
        if removed:
            sync_directory(paths.data)
    except OSError as err:
        raise HostError(f"cannot remove {err.filename}: {err.strerror}") from err
    return [*done, *(f"{path} was removed: {why}" for path in removed)]


async def enforce_own_role(paths: Paths, daemons: Daemons) -> list[str]:
    """Enforce the role in this node's ssconf files, unless something on the node is newer."""
    role = own_role(paths)
    if role is None or role in CANDIDATES or _is_newer(paths):
        return []
    return await enforce_role(paths, daemons, role)


def _is_newer(paths: Paths) -> bool:
    """Return whether this node may have become a candidate or the master after its ssconf files.

    Both the state and the files have the position of their last change. A new key may belong to a
    promotion in progress.
    """
    stored = read_stored_tail(paths.state)
    if stored is not None and stored.tail.position.as_int() > ssconf.current_position(paths):
        return True
    try:
        uuid, _name = node_identity(paths.node_certificate.read_bytes())
        register = RegisterFile(paths.register).read()
        if register and register.accepted and register.accepted.master == uuid:
            return register.accepted.epoch == register.promised.epoch
        return time.time() - paths.authority_key.stat().st_mtime < GRACE_S
    except FileNotFoundError:
        return False
    except (GanetiError, OSError):
        return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
