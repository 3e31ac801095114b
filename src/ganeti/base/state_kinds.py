"""The back ends of the state: one line for each, with the facts that every layer may need.

`module` has the rest as `BACK_END` (`ganeti.store.backends`), and is imported where the rest is used.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ganeti.base.errors import InputError
from ganeti.base.paths import Paths


class StateServer(NamedTuple):
    """A server of a back end, which candidates run."""

    daemon: str
    """The program that supervises the server."""
    module: str
    """The module with the `main` of that program."""
    directory_name: str
    """The directory with everything of the server, below `Paths.data`."""
    settings_name: str
    """The file in it that exists where this node runs a server."""
    secret_names: tuple[str, ...]
    """Further files in it that only the master daemon's user may read."""
    logs: tuple[str, ...]
    """The logs of the program and of the server."""

    def directory(self, paths: Paths) -> Path:
        """Return the directory of this node's server."""
        return paths.data / self.directory_name

    def settings(self, paths: Paths) -> Path:
        """Return the file that exists where this node runs a server."""
        return self.directory(paths) / self.settings_name

    def secrets(self, paths: Paths) -> Iterator[Path]:
        """Iterate over the files that only the master daemon's user may read."""
        names = (self.settings_name, *self.secret_names)
        return (self.directory(paths) / name for name in names)

    def runs_here(self, paths: Paths) -> bool:
        """Return whether this node is to run a server."""
        return self.settings(paths).exists()

    def preserved_states(self, paths: Paths) -> Path:
        """Return the pattern of backups of states that a restore replaced."""
        return paths.data / f"{self.directory_name}.aside-*"


class StateKind(NamedTuple):
    """One back end; its name is the key in `STATE_KINDS`."""

    module: str
    title: str
    """The location of the state in the output of `gnt-cluster info`."""
    summary: str
    """Its description in `--help`."""
    server: StateServer | None = None


class ExternalServers(NamedTuple):
    """Servers that the administrator runs, for a back end that can use such servers."""

    urls: tuple[str, ...]
    authority: str = ""
    """A file with the certificates that sign those of the servers."""
    credentials: str = ""
    """A file with a user and a password, a line each."""

    def check(self) -> None:
        """Raise InputError for what is not a URL, and for a password that would be sent in the clear."""
        for url in self.urls:
            scheme, _, rest = url.partition("://")
            if scheme not in ("http", "https") or not rest or "/" in rest:
                raise InputError(
                    f"{url!r:.100} is not a URL such as https://192.0.2.1:2379", "state_urls"
                )
            if scheme == "http" and self.credentials:
                raise InputError("a password must not be sent by plain http", "state_urls")


EMBEDDED = "embedded"
"""The back end of a node without a setting."""

ETCD_SERVER = StateServer(
    "ganeti-etcd",
    "ganeti.daemons.etcd",
    "etcd",
    "server.json",
    ("ca.pem", "server.pem", "server.key"),
    ("etcd-daemon.log", "etcd.log"),
)

STATE_KINDS = {
    EMBEDDED: StateKind(
        "ganeti.store.embedded_back_end",
        "the candidates",
        "the candidates' own store, where an administrator names a new master",
    ),
    "etcd": StateKind(
        "ganeti.store.etcd.back_end",
        "etcd",
        "etcd, which elects a master automatically",
        ETCD_SERVER,
    ),
}
"""The back ends by the name in `--state` and `StateSettings.kind`."""


def state_servers() -> Iterator[StateServer]:
    """Iterate over the servers that back ends have."""
    return (kind.server for kind in STATE_KINDS.values() if kind.server is not None)
