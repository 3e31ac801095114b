"""A candidate's etcd server: its certificate, and the command that runs it.

etcd accepts certificates that its own authority has signed. This authority has the key of the
cluster's authority but another name. Every candidate has the key, so it can issue itself a
certificate. The certificates of nodes are signed in the cluster's name, so etcd refuses a node that
is not a candidate.
"""

from ganeti.base import certificates
from ganeti.base.certificate_facts import validity
from ganeti.base.errors import HostError, InputError
from ganeti.base.files import write_atomically
from ganeti.base.paths import Paths
from ganeti.store.etcd.files import EtcdFiles
from ganeti.store.etcd.settings import ServerSettings, client_url, peer_url

RENEWED_BEFORE_S = 180 * certificates.DAY_S
QUOTA_BYTES = 4 << 30
SNAPSHOT_ENTRIES = 20_000


def role_name(cluster_uuid: str) -> str:
    """Return the name of the authority of one cluster's etcd."""
    return f"etcd.{cluster_uuid}.ganeti"


def ensure_certificate(paths: Paths, cluster_uuid: str, address: str, now: float) -> bool:
    """Make a new certificate if it is missing, old, or of another authority; return whether it did.

    HostError where this node has no authority key, so is not a candidate.
    """
    try:
        authority_key = paths.authority_key.read_bytes()
        if _is_good(paths, authority_key, now):
            return False
        authority = certificates.role_authority(authority_key, role_name(cluster_uuid), now)
        key = certificates.new_key()
        certificate = certificates.sign_peer(
            authority, authority_key, key, name=f"etcd at {address}", address=address, now=now
        )
        files = EtcdFiles(paths)
        files.directory.mkdir(mode=0o700, exist_ok=True)
        write_atomically(files.authority, authority, mode=0o600)
        write_atomically(files.key, key, mode=0o600)
        write_atomically(files.certificate, certificate, mode=0o600)
    except OSError as err:
        raise HostError(f"no certificate for etcd: {err.filename}: {err.strerror}") from err
    return True


def _is_good(paths: Paths, authority_key: bytes, now: float) -> bool:
    try:
        files = EtcdFiles(paths)
        authority = files.authority.read_bytes()
        certificate, key = files.certificate.read_bytes(), files.key.read_bytes()
        return (
            certificates.is_pair(certificate, key)
            and certificates.is_pair(authority, authority_key)
            and certificates.is_signed_by(certificate, authority)
            and validity(certificate)[1] - RENEWED_BEFORE_S > now
        )
    except (FileNotFoundError, InputError):
        return False


def command(paths: Paths, settings: ServerSettings, *, alone: bool = False) -> list[str]:
    """Return the server's command line.

    The server ends with its parent. `alone`: it removes all other members.
    """
    client, peer = client_url(settings.address), peer_url(settings.address)
    own = EtcdFiles(paths)
    files = {
        "cert-file": own.certificate,
        "key-file": own.key,
        "trusted-ca-file": own.authority,
    }
    options = {
        "name": settings.name,
        "data-dir": own.data,
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": settings.initial_cluster,
        "initial-cluster-state": "new" if settings.is_new else "existing",
        "initial-cluster-token": settings.cluster_uuid,
        **files,
        **{f"peer-{name}": path for name, path in files.items()},
        "quota-backend-bytes": QUOTA_BYTES,
        "snapshot-count": SNAPSHOT_ENTRIES,
        "max-snapshots": 2,
        "max-wals": 3,
        "logger": "zap",
        "log-level": "error",
    }
    flags = (
        "client-cert-auth",
        "peer-client-cert-auth",
        # A candidate with several addresses may call from any of them; the certificate
        # authenticates it.
        "experimental-peer-skip-client-san-verification",
        "pre-vote",
        *(("force-new-cluster",) if alone else ()),
    )
    words = [f"--{name}={value}" for name, value in options.items()]
    return ["setpriv", "--pdeathsig", "KILL", "etcd", *words, *(f"--{name}" for name in flags)]
