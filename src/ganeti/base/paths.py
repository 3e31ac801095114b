"""Every path in one place, below the prefix of a virtual cluster (`GANETI_ROOTDIR`)."""

import os
import pwd
import socket
from pathlib import Path
from typing import NamedTuple

NODED_PORT = 1811
CONFD_PORT = 1814
MOND_PORT = 1815
RAPI_PORT = 5080

INSTALLED_SEARCH_PATH = Path(__file__).with_name("iallocator-search-path")
"""Made by the installation; a checkout has none."""


class Paths(NamedTuple):
    """Where a node keeps its things; `root` is `/` except in a virtual cluster."""

    root: Path = Path("/")

    @classmethod
    def from_environment(cls) -> "Paths":
        """The paths of this node, after `GANETI_ROOTDIR`."""
        return cls(Path(os.environ.get("GANETI_ROOTDIR") or "/"))

    def below(self, absolute: str) -> Path:
        """Where this node keeps what the cluster calls `absolute`."""
        return self.root / absolute.lstrip("/")

    def named(self, path: Path) -> str:
        """Return what the cluster calls a path of this node."""
        return f"/{path.relative_to(self.root)}"

    @property
    def etc(self) -> Path:
        return self.below("/etc/ganeti")

    @property
    def file_storage_paths(self) -> Path:
        """The list of directories below which disks may be kept as files, one a line."""
        return self.etc / "file-storage-paths"

    @property
    def image_paths(self) -> Path:
        """The list of directories below which images of machines may lie, one a line."""
        return self.etc / "image-paths"

    @property
    def image_work(self) -> Path:
        """Room for images that are being written to disks; nothing in it is needed afterwards."""
        return self.below("/var/cache/ganeti/images")

    @property
    def distributed_files(self) -> Path:
        """The master's list of files that all nodes must have, one a line (S68)."""
        return self.etc / "distributed-files"

    @property
    def shared_files(self) -> Path:
        """A directory of the administrator: the master may write files directly in it on every node (S242)."""
        return self.etc / "shared"

    @property
    def allowed_uploads(self) -> Path:
        """This node's list of files that the master may write here, one a line (F37)."""
        return self.etc / "allowed-uploads"

    @property
    def hooks(self) -> Path:
        """An administrator's programs that run before and after operations."""
        return self.etc / "hooks"

    @property
    def master_ip_script(self) -> Path:
        """An administrator's program that gives the master the cluster's address and takes it away."""
        return self.etc / "scripts" / "master-ip-setup"

    @property
    def restricted_commands(self) -> Path:
        """Programs of this node that users of the cluster may start, by name only."""
        return self.etc / "restricted-commands"

    @property
    def shell_commands_allowed(self) -> Path:
        """Where it exists, the master may run lines of shell here."""
        return self.etc / "shell-commands-allowed"

    @property
    def data(self) -> Path:
        return self.below("/var/lib/ganeti")

    @property
    def imported(self) -> Path:
        """Upstream's configuration that this cluster was imported from, on the node that imported it."""
        return self.data / "imported.data"

    @property
    def state(self) -> Path:
        """The state store of a master candidate."""
        return self.data / "state.db"

    def state_before(self, version: str) -> Path:
        """The state before this version converted its rows."""
        return self.state.with_name(f"state.before-{version}")

    @property
    def state_room(self) -> Path:
        """Space that is kept on the state's disk for when it is full."""
        return self.data / "state.room"

    @property
    def export_backup(self) -> Path:
        """A backup of the state, while a configuration is made of it."""
        return self.data / "export.backup"

    @property
    def upstream(self) -> Path:
        """Everything of upstream Ganeti on a node that was taken over from it."""
        return self.data / "original"

    @property
    def left_clusters(self) -> Path:
        """A pattern: copies of what `node-cleanup` has removed."""
        return self.data / "left-cluster-*"

    @property
    def state_settings(self) -> Path:
        """Where the state is, if it is not in the embedded store."""
        return self.data / "state-backend.json"

    @property
    def job_archive(self) -> Path:
        return self.data / "archive.db"

    @property
    def register(self) -> Path:
        return self.data / "register"

    @property
    def tasks(self) -> Path:
        """Durable records of long work on this node."""
        return self.data / "tasks"

    @property
    def disk_copies(self) -> Path:
        """What copies of disks by the version before have left; goes with the next release."""
        return self.data / "disk-copies"

    @property
    def transfer_keys(self) -> Path:
        """Keys of transfers between nodes, each in a directory of its own; a reboot forgets them."""
        return self.run / "crypto"

    @property
    def streams(self) -> Path:
        """Orders and results of transfers of disks."""
        return self.run / "streams"

    @property
    def exports(self) -> Path:
        """Exports of instances, each in a directory of its own."""
        return self.below("/srv/ganeti/export")

    @property
    def ssconf(self) -> Path:
        """A link to the directory of the current ssconf set."""
        return self.data / "ssconf"

    @property
    def node_certificate(self) -> Path:
        return self.data / "node.pem"

    @property
    def node_key(self) -> Path:
        return self.data / "node.key"

    @property
    def next_node_key(self) -> Path:
        """Of a certificate that is being renewed."""
        return self.data / "node.key.next"

    @property
    def next_node_certificate(self) -> Path:
        return self.data / "node.pem.next"

    @property
    def cluster_domain_secret(self) -> Path:
        """What clusters of one owner share, for moves of instances between them."""
        return self.data / "cluster-domain-secret"

    @property
    def spice_certificate(self) -> Path:
        """Key and certificate of SPICE displays."""
        return self.data / "spice.pem"

    @property
    def spice_authority(self) -> Path:
        return self.data / "spice-ca.pem"

    @property
    def authority_certificate(self) -> Path:
        return self.data / "ca.pem"

    @property
    def authority_key(self) -> Path:
        """Only on master candidates."""
        return self.data / "ca.key"

    @property
    def confd_key(self) -> Path:
        """With which confd's datagrams are signed; only on master candidates."""
        return self.data / "hmac.key"

    @property
    def former_confd_key(self) -> Path:
        """Counts beside the other while a key is renewed."""
        return self.data / "hmac.key.former"

    @property
    def own_confd_key(self) -> Path:
        """The key of confd's datagrams on a node that answers from a copy: of this node alone."""
        return self.data / "node-hmac.key"

    @property
    def confd_copy(self) -> Path:
        """What confd answers from on such a node: the configuration without secrets."""
        return self.data / "confd.db"

    @property
    def rapi_certificate(self) -> Path:
        return self.data / "rapi.pem"

    @property
    def rapi_users(self) -> Path:
        """Who may use the REST interface; only on master candidates."""
        return self.data / "rapi_users"

    @property
    def merge(self) -> Path:
        """On the master: the journal and the backups of a merge of clusters that is under way."""
        return self.data / "merge"

    @property
    def merge_lock(self) -> Path:
        """Locked by the merge that runs on this node."""
        return self.data / "merge.lock"

    @property
    def root_ssh(self) -> Path:
        """Where root's own keys for ssh are, and who may log in by which."""
        return self.below(pwd.getpwuid(0).pw_dir) / ".ssh"

    @property
    def watcher_pause(self) -> Path:
        """Until when the watcher rests: seconds since the epoch."""
        return self.data / "watcher.pause"

    @property
    def log(self) -> Path:
        return self.below("/var/log/ganeti")

    @property
    def run(self) -> Path:
        return self.below("/var/run/ganeti")

    @property
    def luxi_socket(self) -> Path:
        return self.run / "socket" / "ganeti-query"

    @property
    def kvm(self) -> Path:
        """Runtime files of KVM instances: monitor and console sockets, records."""
        return self.run / "kvm"

    @property
    def uefi_variables(self) -> Path:
        """Variables of guests with UEFI firmware whose disks are not files that all nodes see."""
        return self.data / "uefi"

    @property
    def tpm_states(self) -> Path:
        """The state of each guest's TPM, a directory of its own."""
        return self.data / "tpm"

    @property
    def kvm_tls(self) -> Path:
        """Where QEMU processes find certificates and a key, for the moment in which they read them."""
        return self.run / "kvm-tls"

    @property
    def fake_hypervisor(self) -> Path:
        return self.run / "fake-hypervisor"

    @property
    def extstorage_search_path(self) -> tuple[Path, ...]:
        """Where providers of external storage are looked for; the first match wins."""
        return tuple(
            self.below(name)
            for name in (
                "/srv/ganeti/extstorage",
                "/usr/local/lib/ganeti/extstorage",
                "/usr/lib/ganeti/extstorage",
                "/usr/share/ganeti/extstorage",
            )
        )

    @property
    def os_search_path(self) -> tuple[Path, ...]:
        """Where OS definitions are looked for; the first match wins."""
        return tuple(
            self.below(name)
            for name in (
                "/srv/ganeti/os",
                "/usr/local/lib/ganeti/os",
                "/usr/lib/ganeti/os",
                "/usr/share/ganeti/os",
            )
        )

    @property
    def iallocator_search_path(self) -> tuple[Path, ...]:
        """Where allocators are looked for: as the installation says (S159), or GANETI_IALLOCATOR_SEARCH_PATH."""
        given = os.environ.get("GANETI_IALLOCATOR_SEARCH_PATH") or _installed_search_path()
        return tuple(self.below(name) for name in given.split(","))


def _installed_search_path() -> str:
    """What `scripts/install --with-iallocator-search-path` wrote, or the default."""
    try:
        return INSTALLED_SEARCH_PATH.read_text("utf-8").strip()
    except FileNotFoundError:
        return "/usr/lib/ganeti/iallocators"


def hostname() -> str:
    """The name of this node: `GANETI_HOSTNAME` in a virtual cluster, else the full host name."""
    return os.environ.get("GANETI_HOSTNAME") or socket.getfqdn()
