"""All paths in one place, below the prefix of a virtual cluster (`GANETI_ROOTDIR`)."""

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
"""Written by the installation; a checkout has none."""


class Paths(NamedTuple):
    """The paths of a node; `root` is `/` except in a virtual cluster."""

    root: Path = Path("/")

    @classmethod
    def from_environment(cls) -> "Paths":
        """Return the paths of this node, from `GANETI_ROOTDIR`."""
        return cls(Path(os.environ.get("GANETI_ROOTDIR") or "/"))

    def below(self, absolute: str) -> Path:
        """Return this node's path for the cluster's path `absolute`."""
        return self.root / absolute.lstrip("/")

    def named(self, path: Path) -> str:
        """Return the cluster's path for a path of this node."""
        return f"/{path.relative_to(self.root)}"

    @property
    def etc(self) -> Path:
        return self.below("/etc/ganeti")

    @property
    def file_storage_paths(self) -> Path:
        """Return the list of directories below which file-based disks may lie, one a line."""
        return self.etc / "file-storage-paths"

    @property
    def image_paths(self) -> Path:
        """Return the list of directories below which machine images may lie, one a line."""
        return self.etc / "image-paths"

    @property
    def backup_paths(self) -> Path:
        """Return the list of directories that may have backups, one a line."""
        return self.etc / "backup-paths"

    @property
    def image_work(self) -> Path:
        """Return the directory for images that are being written to disks; its content is temporary."""
        return self.below("/var/cache/ganeti/images")

    @property
    def distributed_files(self) -> Path:
        """Return the master's list of files that all nodes must have, one a line (S68)."""
        return self.etc / "distributed-files"

    @property
    def shared_files(self) -> Path:
        """Return a directory of the administrator.

        The master may write files directly in it on every node (S242).
        """
        return self.etc / "shared"

    @property
    def allowed_uploads(self) -> Path:
        """Return this node's list of files that the master may write here, one a line (F37)."""
        return self.etc / "allowed-uploads"

    @property
    def hooks(self) -> Path:
        """Return the directory of an administrator's programs that run before and after operations."""
        return self.etc / "hooks"

    @property
    def master_ip_script(self) -> Path:
        """Return an administrator's program that adds the cluster's address to the master and removes it."""
        return self.etc / "scripts" / "master-ip-setup"

    @property
    def restricted_commands(self) -> Path:
        """Return the directory of this node's programs that users of the cluster may start, by name only."""
        return self.etc / "restricted-commands"

    @property
    def shell_commands_allowed(self) -> Path:
        """Return the file that allows the master to run shell lines here."""
        return self.etc / "shell-commands-allowed"

    @property
    def data(self) -> Path:
        return self.below("/var/lib/ganeti")

    @property
    def imported(self) -> Path:
        """Return upstream's configuration that this cluster was imported from, on the node that imported it."""
        return self.data / "imported.data"

    @property
    def state(self) -> Path:
        """Return the state store of a master candidate."""
        return self.data / "state.db"

    def state_before(self, version: str) -> Path:
        """Return the state before this version converted its rows."""
        return self.state.with_name(f"state.before-{version}")

    @property
    def state_room(self) -> Path:
        """Return the file that reserves space on the state's disk for when it is full."""
        return self.data / "state.room"

    @property
    def export_backup(self) -> Path:
        """Return a backup of the state, while a configuration is exported from it."""
        return self.data / "export.backup"

    @property
    def upstream(self) -> Path:
        """Return the directory of upstream Ganeti's files on a node that was taken over."""
        return self.data / "original"

    @property
    def left_clusters(self) -> Path:
        """Return a pattern for copies of what `node-cleanup` has removed."""
        return self.data / "left-cluster-*"

    @property
    def state_settings(self) -> Path:
        """Return the location of the state, if it is not in the embedded store."""
        return self.data / "state-backend.json"

    @property
    def job_archive(self) -> Path:
        return self.data / "archive.db"

    @property
    def register(self) -> Path:
        return self.data / "register"

    @property
    def tasks(self) -> Path:
        """Return the directory of durable records of long work on this node."""
        return self.data / "tasks"

    @property
    def history(self) -> Path:
        """Return the directory of the history of figures of this node and its guests."""
        return self.data / "history"

    @property
    def disk_grants(self) -> Path:
        """Return the file with this node's records of the grants of protected disks."""
        return self.data / "disk-grants"

    @property
    def disk_copies(self) -> Path:
        """Return the directory of the previous version's disk copies; removed in the next release."""
        return self.data / "disk-copies"

    @property
    def transfer_keys(self) -> Path:
        """Return the directory of keys for transfers between nodes; a reboot removes them."""
        return self.run / "crypto"

    @property
    def streams(self) -> Path:
        """Return the directory of orders and results of disk transfers."""
        return self.run / "streams"

    @property
    def exports(self) -> Path:
        """Return the directory of exports of instances."""
        return self.below("/srv/ganeti/export")

    @property
    def image_store(self) -> Path:
        """Return the directory of this node's copies of images."""
        return self.below("/srv/ganeti/image-store")

    @property
    def image_uploads(self) -> Path:
        """Return the directory of images that clients upload to this node."""
        return self.below("/srv/ganeti/image-uploads")

    @property
    def ssconf(self) -> Path:
        """Return a link to the directory of the current ssconf set."""
        return self.data / "ssconf"

    @property
    def node_certificate(self) -> Path:
        return self.data / "node.pem"

    @property
    def node_key(self) -> Path:
        return self.data / "node.key"

    @property
    def next_node_key(self) -> Path:
        """Return the key of a certificate that is being renewed."""
        return self.data / "node.key.next"

    @property
    def next_node_certificate(self) -> Path:
        return self.data / "node.pem.next"

    @property
    def cluster_domain_secret(self) -> Path:
        """Return the secret that clusters of one owner share, for moves of instances between them."""
        return self.data / "cluster-domain-secret"

    @property
    def spice_certificate(self) -> Path:
        """Return key and certificate of SPICE displays."""
        return self.data / "spice.pem"

    @property
    def spice_authority(self) -> Path:
        return self.data / "spice-ca.pem"

    @property
    def authority_certificate(self) -> Path:
        return self.data / "ca.pem"

    @property
    def authority_key(self) -> Path:
        """Return the authority's key, which is only on master candidates."""
        return self.data / "ca.key"

    @property
    def confd_key(self) -> Path:
        """Return the key that signs confd's datagrams; only on master candidates."""
        return self.data / "hmac.key"

    @property
    def former_confd_key(self) -> Path:
        """Return the previous key, valid beside the other one during a renewal."""
        return self.data / "hmac.key.former"

    @property
    def own_confd_key(self) -> Path:
        """Return the key of confd's datagrams on a node that answers from a copy: of this node alone."""
        return self.data / "node-hmac.key"

    @property
    def confd_copy(self) -> Path:
        """Return confd's data on such a node: the configuration without secrets."""
        return self.data / "confd.db"

    @property
    def rapi_certificate(self) -> Path:
        return self.data / "rapi.pem"

    @property
    def rapi_users(self) -> Path:
        """Return the users of the REST interface; only on master candidates."""
        return self.data / "rapi_users"

    @property
    def rapi_openid(self) -> Path:
        """Return the settings of the OpenID provider, with a client's secret; only on master candidates."""
        return self.data / "rapi_openid.yaml"

    @property
    def merge(self) -> Path:
        """Return the journal and the backups of a merge of clusters in progress, on the master."""
        return self.data / "merge"

    @property
    def merge_lock(self) -> Path:
        """Return the file that a merge on this node locks while it runs."""
        return self.data / "merge.lock"

    @property
    def root_ssh(self) -> Path:
        """Return the directory of root's own SSH keys and authorized keys."""
        return self.below(pwd.getpwuid(0).pw_dir) / ".ssh"

    @property
    def watcher_pause(self) -> Path:
        """Return the end of the watcher's pause: seconds since the epoch."""
        return self.data / "watcher.pause"

    @property
    def log(self) -> Path:
        return self.below("/var/log/ganeti")

    @property
    def run(self) -> Path:
        return self.below("/var/run/ganeti")

    @property
    def lease(self) -> Path:
        """Return the end of this node's lease, for its watchdog process."""
        return self.run / "lease.json"

    @property
    def guard_status(self) -> Path:
        """Return what the watchdog process says about its device."""
        return self.run / "guard.json"

    @property
    def luxi_socket(self) -> Path:
        return self.run / "socket" / "ganeti-query"

    @property
    def kvm(self) -> Path:
        """Return runtime files of KVM instances: monitor and console sockets, records."""
        return self.run / "kvm"

    @property
    def uefi_variables(self) -> Path:
        """Return the UEFI variables of guests whose disks are not files that all nodes share."""
        return self.data / "uefi"

    @property
    def tpm_states(self) -> Path:
        """Return the directory of the guests' TPM states, a directory each."""
        return self.data / "tpm"

    @property
    def disk_moves(self) -> Path:
        """Return the directory of the records of moves of running guests' disks, a file for each instance."""
        return self.data / "disk-moves"

    def disk_move(self, instance_uuid: str) -> Path:
        """Return the record of the last move of an instance's disks."""
        return self.disk_moves / f"{instance_uuid}.json"

    @property
    def live_restores(self) -> Path:
        """Return the directory for what guests write before their restored disks are complete, one for each."""
        return self.data / "live-restores"

    def live_restore(self, instance_uuid: str) -> Path:
        return self.live_restores / instance_uuid

    @property
    def kvm_tls(self) -> Path:
        """Return the certificates and keys of QEMU processes, while these read them."""
        return self.run / "kvm-tls"

    @property
    def fake_hypervisor(self) -> Path:
        return self.run / "fake-hypervisor"

    @property
    def extstorage_search_path(self) -> tuple[Path, ...]:
        """Return the search path of external storage providers; the first match wins."""
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
        """Return the search path of OS definitions; the first match wins."""
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
        """Return the search path of allocators.

        From the installation (S159), or GANETI_IALLOCATOR_SEARCH_PATH.
        """
        given = os.environ.get("GANETI_IALLOCATOR_SEARCH_PATH") or _installed_search_path()
        return tuple(self.below(name) for name in given.split(","))


def _installed_search_path() -> str:
    """Return the search path of `scripts/install --with-iallocator-search-path`, or the default."""
    try:
        return INSTALLED_SEARCH_PATH.read_text("utf-8").strip()
    except FileNotFoundError:
        return "/usr/lib/ganeti/iallocators"


HOSTNAME_VARIABLE = "GANETI_HOSTNAME"


def hostname() -> str:
    """Return the name of this node: `GANETI_HOSTNAME` in a virtual cluster, else the full host name."""
    return os.environ.get(HOSTNAME_VARIABLE) or socket.getfqdn()
