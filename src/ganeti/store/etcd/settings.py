"""A candidate's access to etcd, and the settings of its own server (`etcd/server.json`: JSON, mode 0600)."""

import shutil
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from ganeti.base import tls
from ganeti.base.errors import ConfigurationError
from ganeti.base.files import write_atomically
from ganeti.base.paths import Paths
from ganeti.store.etcd.files import EtcdFiles
from ganeti.store.settings import StateSettings, read_settings

CLIENT_PORT = 1818
PEER_PORT = 1819


@dataclass(frozen=True)
class Access:
    """The addresses of an etcd cluster, and the credentials for it."""

    endpoints: tuple[str, ...]
    """URLs such as https://192.0.2.1:1819, the nearest first."""
    tls: ssl.SSLContext | None = None
    user: str = ""
    password: str = ""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One etcd server of a candidate."""

    format: Literal[1] = 1
    name: str
    """The node's UUID."""
    cluster_uuid: str
    address: str
    initial_cluster: str
    """NAME=PEER-URL of every member, including this one, at the server's creation."""
    is_new: bool
    """True if the etcd cluster starts with this server."""
    has_begun: bool = False
    """True once it had data: without the data it is no longer this member and must not be started."""


def client_url(address: str) -> str:
    """Return the URL at which a node's server answers clients."""
    return f"https://{_host(address)}:{CLIENT_PORT}"


def peer_url(address: str) -> str:
    """Return the URL at which a node's server talks to the others."""
    return f"https://{_host(address)}:{PEER_PORT}"


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def server_settings(paths: Paths) -> ServerSettings | None:
    """Return the settings of this node's etcd server, or None; ConfigurationError."""
    return read_settings(EtcdFiles(paths).settings, ServerSettings)


def keep_server_settings(paths: Paths, settings: ServerSettings) -> None:
    """Store the settings of a server; a server with data keeps its first settings."""
    EtcdFiles(paths).directory.mkdir(mode=0o700, exist_ok=True)
    known = server_settings(paths)
    if known is None or not has_data(paths):
        if known is not None and known.has_begun:
            shutil.rmtree(EtcdFiles(paths).data, ignore_errors=True)  # the rest of lost data
        write_atomically(EtcdFiles(paths).settings, msgspec.json.encode(settings), mode=0o600)


def has_data(paths: Paths) -> bool:
    """Return whether a server of this node has started, and its data still exists."""
    return (EtcdFiles(paths).data / "member" / "wal").is_dir()


def note_begun(paths: Paths) -> None:
    """Record that the server of this node had data; does nothing where it has none."""
    known = server_settings(paths)
    if known is not None and not known.has_begun and has_data(paths):
        begun = msgspec.structs.replace(known, has_begun=True)
        write_atomically(EtcdFiles(paths).settings, msgspec.json.encode(begun), mode=0o600)


def forget_etcd(paths: Paths) -> None:
    """Remove the data of a server that ran here."""
    shutil.rmtree(EtcdFiles(paths).directory, ignore_errors=True)


def access(paths: Paths, settings: StateSettings) -> Access:
    """Return this node's access to etcd; ConfigurationError, or HostError where certificates are missing."""
    if not settings.endpoints:
        raise ConfigurationError(f"{paths.state_settings} does not contain the location of etcd")
    if settings.is_managed:
        own = EtcdFiles(paths)
        context = tls.client_context(own.certificate, own.key, own.authority)
        return Access(settings.endpoints, context)
    user, password = _credentials(settings.credentials)
    return Access(settings.endpoints, _trusted(settings), user, password)


def _trusted(settings: StateSettings) -> ssl.SSLContext | None:
    """Return the authority of the servers' certificates: the named one, or those of the system."""
    if settings.authority:
        return tls.authority_context(Path(settings.authority))
    is_private = any(one.startswith("https:") for one in settings.endpoints)
    return ssl.create_default_context() if is_private else None


def _credentials(path: str) -> tuple[str, str]:
    if not path:
        return "", ""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError as err:
        raise ConfigurationError(f"etcd's credentials {path}: {err.strerror}") from err
    if len(lines) < 2:  # noqa: PLR2004 - user and password
        raise ConfigurationError(f"{path} must have two lines: a user and a password")
    return lines[0], lines[1]
