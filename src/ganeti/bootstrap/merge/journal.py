"""The journal of a merge on the master's disk, so that the merge can continue or be rolled back.

A step is recorded before it begins and when it is done. A step that began and is not done may have
done anything, so doing and undoing must both be idempotent.
"""

from pathlib import Path

import msgspec

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.files import write_atomically
from ganeti.model import wire

FILE = "journal.json"


class NodeRecord(msgspec.Struct, kw_only=True):
    """A node to move."""

    name: str
    address: str
    is_master: bool = False
    daemons: list[str] | None = None
    """The daemons that ran there; None: not known yet."""
    pause: str | None = None
    """The pause that its watcher had before the merge."""
    is_added: bool = False


class ClusterRecord(msgspec.Struct, kw_only=True):
    """A cluster that is merged into the local one; its offline nodes are not touched."""

    contact: str
    """The cluster's name on the command line."""
    name: str
    uuid: str
    original: str = ""
    """The version of upstream Ganeti; '' for a cluster of this implementation."""
    nodes: list[NodeRecord]
    left_out: list[str] = []
    """Nodes that the administrator has left out, by their names there."""
    running: list[str] | None = None
    """The instances that ran; None: not known yet."""

    @property
    def master(self) -> NodeRecord:
        return next(node for node in self.nodes if node.is_master)


class MergeChoices(msgspec.Struct, kw_only=True, frozen=True):
    """The choices of the administrator, stored for later runs."""

    parameters: str = ""
    groups: str = "strict"
    networks: str = "strict"
    group_names: dict[str, str] = {}
    network_names: dict[str, str] = {}
    keep_unknown: bool = False
    renames: tuple[str, ...] = ()
    hypervisors: tuple[str, ...] = ()
    """For clusters of upstream, the three options of `gnt-cluster import`."""
    shutdown_timeout: int = 120
    ssh_port: int = 22
    key_types: tuple[str, ...] = ()
    known_hosts: str = ""
    check_host_key: bool = True


class Journal(msgspec.Struct, kw_only=True):
    """The whole journal."""

    id: str
    choices: MergeChoices
    clusters: list[ClusterRecord]
    public_key: str
    """The public key that was created for this merge."""
    pause: str | None = None
    """The pause that the local watcher had before the merge."""
    has_pauses: bool = False
    """True if the pauses of all nodes are recorded."""
    begun: list[str] = []
    done: list[str] = []
    drained: list[str] = []
    """Nodes to drain again once they are added."""
    nodes: list[str] = []
    """The nodes and instances that must exist at the end."""
    instances: list[str] = []
    path: str = ""

    @property
    def mark(self) -> str:
        """The last word of the added line in authorized keys."""
        return f"ganeti-cluster-merge-{self.id}"

    @property
    def key_line(self) -> str:
        return f"{self.public_key} {self.mark}"

    def save(self) -> None:
        """Write the journal durably."""
        write_atomically(Path(self.path), wire.encode(self), mode=0o600)


def load(directory: Path) -> Journal | None:
    """Return the merge in progress, if any; PrereqError if its journal cannot be read."""
    path = directory / FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as err:
        raise PrereqError(f"cannot read {path}: {err.strerror}", ErrorCode.ENVIRONMENT) from err
    return wire.decode(data, Journal, what=str(path))
