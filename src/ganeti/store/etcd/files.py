"""The paths of the files of a candidate's etcd server."""

from pathlib import Path

from ganeti.base.paths import Paths
from ganeti.base.state_kinds import ETCD_SERVER


class EtcdFiles:
    """The files of this node's server."""

    def __init__(self, paths: Paths) -> None:
        self.directory: Path = ETCD_SERVER.directory(paths)
        self.settings = ETCD_SERVER.settings(paths)
        self.data = self.directory / "data"
        self.authority, self.certificate, self.key = (
            self.directory / name for name in ETCD_SERVER.secret_names
        )
        """Certificate by which etcd's servers and clients authenticate candidates."""
