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


def cluster_files(paths: Paths, *, storage_list: bool = True) -> list[Path]:
    """What a node has of its cluster, in the order in which it is removed; not all of it is on each node.

    The node's keys are before its state: without them nobody can act for the node. The register is the last: until
    then the node says that it belongs to a cluster.
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
    etcd = (paths.state_settings, paths.etcd_directory)
    listed = [paths.file_storage_paths] if storage_list else []
    return [*keys, *ssconf, *databases, *former_states, *etcd, paths.tasks, *listed, paths.register]


def forget_cluster(paths: Paths, *, storage_list: bool = True) -> None:
    """Remove keys, certificates, ssconf, register, state, and the list of allowed storage directories.

    The disks of instances and the logs stay. Harmless where nothing is left.
    """
    try:
        for path in cluster_files(paths, storage_list=storage_list):
            _remove(path)
        if paths.data.is_dir():
            sync_directory(paths.data)
    except OSError as err:
        raise HostError(f"cannot remove {err.filename}: {err.strerror}") from err


async def stop_daemons(daemons: Daemons) -> None:
    """All of this node, those that others work for last."""
    for name in (CONFD, RAPI, MASTERD, MOND, ETCD, NODED):
        await daemons.stop(name)


async def destroy(paths: Paths, daemons: Daemons) -> None:
    """The end of a cluster on its last node: stop the daemons, then remove its data."""
    await stop_daemons(daemons)
    forget_cluster(paths)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
