"""The keys with which confd's datagrams are signed (S51, S238).

One key belongs to the cluster and is on its master candidates only. Where confd answers on all nodes, each
other node has a key of its own: it follows from the cluster's key and the node's name, so candidates can
talk to every node, and a node only to itself.

A file's whole content is the key, as Ganeti's own clients read it. While the cluster's key is renewed the
former one is beside it, and both count.
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
"""What the cluster calls the file of the key."""
_LEAST, _MOST = 16, 1024


def new_key() -> bytes:
    """A key of a new cluster, or a renewed one."""
    return secrets.token_hex(KEY_BYTES).encode() + b"\n"


def confd_keys(paths: Paths) -> tuple[bytes, ...]:
    """The key, and the former one while both count; ConfigurationError."""
    found = [_read(path) for path in (paths.confd_key, paths.former_confd_key) if path.exists()]
    if not found:
        raise ConfigurationError(
            f"{paths.confd_key} does not exist: only master candidates have it"
        )
    return tuple(found)


def distributed_keys(paths: Paths) -> tuple[bytes, bytes]:
    """What the master gives to candidates: the key, made here where there is none yet, and the former one."""
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
    """Have exactly these from now on; return whether that is a change. InputError for an invalid key.

    A master of an older release has none to give: then all stays.
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
            raise ConfigurationError(f"{path} can be read by others: chmod 600 {path}")
        return path.read_bytes()
    except OSError as err:
        raise ConfigurationError(f"{path} cannot be read: {err.strerror}") from err
