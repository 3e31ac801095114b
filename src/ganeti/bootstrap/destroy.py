"""Removes a node's part of a cluster."""

import contextlib
import shutil
from collections.abc import Collection
from pathlib import Path

from ganeti.base.errors import HostError
from ganeti.base.files import sync_directory
from ganeti.base.node_files import Lifetime, existing
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import (
    CONFD,
    GUARD,
    MASTERD,
    MOND,
    NODED,
    RAPI,
    STATE_DAEMONS,
    Daemons,
)


def is_member(paths: Paths) -> bool:
    """Return whether this node belongs to a cluster according to its files."""
    return any(path.exists() for path in (paths.register, paths.node_certificate, paths.state))


def prepared(paths: Paths) -> list[Path]:
    """Return what is on this host for its future cluster: files of an administrator, and copies of images.

    A merge takes over the images of the other clusters.
    """
    files = (paths.cluster_domain_secret, paths.rapi_users, paths.rapi_openid, paths.image_store)
    return [path for path in files if path.exists()]


def forget_cluster(paths: Paths, *, keep: Collection[Path] = ()) -> None:
    """Remove everything on this node that belongs to its cluster, except `keep`; HostError.

    The data of guests and the logs stay. Idempotent.
    """
    try:
        for path in existing(paths, Lifetime.CLUSTER):
            if path not in keep:
                _remove(path)
        if paths.data.is_dir():
            sync_directory(paths.data)
    except OSError as err:
        raise HostError(f"cannot remove {err.filename}: {err.strerror}") from err


async def stop_daemons(daemons: Daemons) -> None:
    """Stop all daemons of this node, the ones that others depend on last."""
    for name in (CONFD, RAPI, MASTERD, MOND, *STATE_DAEMONS, NODED, GUARD):
        await daemons.stop(name)


async def destroy(paths: Paths, daemons: Daemons) -> None:
    """Destroy a cluster on its last node: stop the daemons, then remove its data."""
    await stop_daemons(daemons)
    forget_cluster(paths)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
