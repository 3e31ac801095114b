"""Taking a node's part of a cluster away from it."""

import contextlib
import shutil
from pathlib import Path

from ganeti.base.errors import HostError
from ganeti.base.files import sync_directory
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import CONFD, ETCD, MASTERD, MOND, NODED, RAPI, Daemons


def is_member(paths: Paths) -> bool:
    """Whether this node belongs to a cluster, as far as its files say."""
    return any(path.exists() for path in (paths.register, paths.node_certificate, paths.state))


def forget_cluster(paths: Paths, *, storage_list: bool = True) -> None:
    """Remove keys, certificates, ssconf, register, state, and the list of allowed storage directories.

    The disks of instances and the logs stay. Harmless where nothing is left. The node's key goes first: without it nobody can act for the node.
    """
    keys = [
        paths.authority_key,
        paths.imported,
        paths.confd_key,
        paths.former_confd_key,
        paths.node_key,
        paths.next_node_key,
        paths.next_node_certificate,
        paths.cluster_domain_secret,
        paths.node_certificate,
        paths.authority_certificate,
        paths.rapi_certificate,
    ]
    databases = [
        path.with_name(path.name + suffix)
        for path in (paths.state, paths.job_archive)
        for suffix in ("", "-wal", "-shm", ".lock")
    ]
    ssconf = [paths.ssconf, *sorted(paths.data.glob("ssconf[._-]*"))]
    former_states = sorted(paths.data.glob(paths.state_before("*").name))
    try:
        etcd = (paths.state_settings, paths.etcd_directory)
        for path in (*keys, *ssconf, *databases, *former_states, *etcd, paths.tasks):
            _remove(path)
        if storage_list:
            _remove(paths.file_storage_paths)
        _remove(paths.register)  # the last: until then the node says that it belongs to a cluster
        if paths.data.is_dir():
            sync_directory(paths.data)
    except OSError as err:
        raise HostError(f"cannot remove {err.filename}: {err.strerror}") from err


async def destroy(paths: Paths, daemons: Daemons) -> None:
    """The end of a cluster on its last node: stop the daemons, then remove its data."""
    await daemons.stop(CONFD)
    await daemons.stop(RAPI)
    await daemons.stop(MASTERD)
    await daemons.stop(MOND)
    await daemons.stop(ETCD)
    await daemons.stop(NODED)
    forget_cluster(paths)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
