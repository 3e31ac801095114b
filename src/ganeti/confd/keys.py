"""The keys that sign confd's datagrams (S51, S238).

One key belongs to the cluster and is on its master candidates only. Where confd answers on all
nodes, each other node has a key of its own, derived from the cluster's key and the node's name. So
candidates can talk to every node, and a node only to itself.

The key is the whole content of a file, as Ganeti's own clients expect. While the cluster's key is
renewed, the previous one is stored beside it, and both are valid.
"""

import hashlib
import hmac
import secrets
import stat
from pathlib import Path

from ganeti.base.errors import ConfigurationError, InputError
from ganeti.base.files import sync_directory, write_atomically
from ganeti.base.paths import Paths

KEY_BYTES = 32
KEY_NAME = str(Paths().confd_key)
"""The cluster's name for the file of the key."""
_LEAST, _MOST = 16, 1024


def new_key() -> bytes:
    """Return a key for a new cluster, or a renewed one."""
    return secrets.token_hex(KEY_BYTES).encode() + b"\n"


def confd_keys(paths: Paths) -> tuple[bytes, ...]:
    """Return the key, and the previous one while both are valid; ConfigurationError."""
    found = [_read(path) for path in (paths.confd_key, paths.former_confd_key) if path.exists()]
    if not found:
        raise ConfigurationError(
            f"{paths.confd_key} does not exist: only master candidates have it"
        )
    return tuple(found)


def distributed_keys(paths: Paths) -> tuple[bytes, bytes]:
    """Return the master's keys for candidates.

    The key, created if it does not exist, and the previous one.
    """
    if not paths.confd_key.exists():
        keep_key(paths, new_key())
    key, *former = confd_keys(paths)
    return key, former[0] if former else b""


def key_of_node(cluster_key: bytes, node_name: str) -> bytes:
    """Return the own key of a node that answers from a copy."""
    return hmac.digest(cluster_key, f"confd of {node_name}".encode(), hashlib.sha256).hex().encode()


def own_key(paths: Paths) -> tuple[bytes, ...]:
    """Return this node's own key; ConfigurationError."""
    return (_read(paths.own_confd_key),)


def keep_own_key(paths: Paths, key: bytes) -> bool:
    """Store this node's own key; return whether that is a change. InputError for an invalid key."""
    _check(key, "key")
    return _keep(paths.own_confd_key, key)


def keep_key(paths: Paths, key: bytes, former: bytes = b"") -> bool:
    """Store exactly these keys; return whether that is a change. InputError for an invalid key.

    A master of an older release sends none: then the stored keys stay.
    """
    if not key:
        return False
    for one in (key, former):
        if one:
            _check(one, "confd_key")
    changed = [
        _keep(path, content)
        for path, content in ((paths.former_confd_key, former), (paths.confd_key, key))
    ]
    return any(changed)


def _check(key: bytes, field: str) -> None:
    if not _LEAST <= len(key) <= _MOST:
        raise InputError(f"a key of confd has from {_LEAST} to {_MOST} bytes", field)


def _keep(path: Path, content: bytes) -> bool:
    if path.exists() and path.read_bytes() == content and _is_private(path):
        return False
    if content:
        write_atomically(path, content, mode=0o600)
        return True
    if path.exists():
        path.unlink()
        sync_directory(path.parent)
        return True
    return False


def _is_private(path: Path) -> bool:
    return not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def _read(path: Path) -> bytes:
    try:
        if not _is_private(path):
            raise ConfigurationError(f"other users can read {path}: run chmod 600 {path}")
        return path.read_bytes()
    except OSError as err:
        raise ConfigurationError(f"{path} cannot be read: {err.strerror}") from err
