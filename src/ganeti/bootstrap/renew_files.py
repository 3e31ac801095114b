"""Keys and certificates in files that the master distributes (`gnt-cluster redist-conf`).

A new cluster has those that its candidates share. Each file is replaced atomically with mode 0600;
a repeated run creates or reads it again.
"""

from dataclasses import dataclass
from pathlib import Path

from ganeti.base import certificates
from ganeti.base.domain_secret import new_secret
from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.files import write_atomically
from ganeti.base.paths import Paths, hostname
from ganeti.ssconf import SimpleStore

LIFETIME_S = 5 * 365 * certificates.DAY_S
FILE_LIMIT = 64 * 1024
LEAST_SECRET = 20
"""Minimum length of a secret from a file."""


@dataclass(frozen=True, kw_only=True)
class FileRenewal:
    """The files to create again, or to read from a file."""

    rapi: bool = False
    rapi_file: str | None = None
    spice: bool = False
    spice_file: str | None = None
    spice_authority_file: str | None = None
    domain_secret: bool = False
    domain_secret_file: str | None = None

    def check(self) -> None:
        """Raise InputError where options contradict each other."""
        for made, given, option in (
            (self.rapi, self.rapi_file, "--rapi-certificate"),
            (self.spice, self.spice_file, "--spice-certificate"),
            (self.domain_secret, self.domain_secret_file, "--cluster-domain-secret"),
        ):
            if made and given:
                raise InputError("create a new one or pass a file, not both", option)
        if bool(self.spice_file) != bool(self.spice_authority_file):
            raise InputError(
                "--spice-certificate and --spice-ca-certificate must be passed together",
                "--spice-certificate",
            )

    def paths(self, paths: Paths) -> list[str]:
        """Return the cluster's names of the files to write."""
        found = [paths.rapi_certificate] * bool(self.rapi or self.rapi_file)
        if self.spice or self.spice_file:
            found += [paths.spice_authority, paths.spice_certificate]
        found += [paths.cluster_domain_secret] * bool(self.domain_secret or self.domain_secret_file)
        return ["/" + str(path.relative_to(paths.root)) for path in found]


def renew_files(paths: Paths, wanted: FileRenewal, cluster_name: str, now: float) -> list[str]:
    """Write the requested files; return a line about each. InputError or PrereqError before any write."""
    wanted.check()
    contents: list[tuple[Path, bytes, str]] = []
    if wanted.rapi:
        pair = rest_pair(paths, now)
        contents.append((paths.rapi_certificate, pair, "certificate of the REST interface"))
    if wanted.rapi_file:
        pair = _given_pair(wanted.rapi_file)
        contents.append((paths.rapi_certificate, pair, "certificate of the REST interface"))
    contents += _spice(paths, wanted, cluster_name, now)
    if wanted.domain_secret:
        contents.append((paths.cluster_domain_secret, _new_secret(), "cluster domain secret"))
    if wanted.domain_secret_file:
        secret = read_secret(wanted.domain_secret_file)
        contents.append((paths.cluster_domain_secret, secret, "cluster domain secret"))
    said = []
    for path, content, what in contents:
        try:
            write_atomically(path, content, mode=0o600)
        except OSError as err:
            raise PrereqError(
                f"{path} cannot be written: {err.strerror}", ErrorCode.ENVIRONMENT
            ) from err
        said.append(f"new {what}: {path}")
    return said


def make_first_files(paths: Paths, now: float) -> None:
    """Create the shared files of a new cluster's candidates; OSError, HostError without ssconf.

    An existing domain secret is kept: an import carries over upstream's, which other clusters
    share.
    """
    if not paths.cluster_domain_secret.exists():
        write_atomically(paths.cluster_domain_secret, _new_secret(), mode=0o600)
    ensure_rest_pair(paths, now)


def ensure_rest_pair(paths: Paths, now: float) -> None:
    """Create a key and a certificate of the REST interface, if they are missing; OSError."""
    if not paths.rapi_certificate.exists():
        write_atomically(paths.rapi_certificate, rest_pair(paths, now), mode=0o600)


def rest_pair(paths: Paths, now: float) -> bytes:
    """Return a key and a certificate for the cluster's name and address, and this host's name."""
    values = SimpleStore(paths)
    names = [values.read("cluster_name").strip(), hostname()]
    address = values.read("master_ip").strip()
    key = certificates.new_key()
    return key + certificates.for_rest(key, names, [address] if address else [], now)


def _new_secret() -> bytes:
    return new_secret().encode() + b"\n"


def read_secret(name: str) -> bytes:
    """Return the secret from the file of another cluster with the same owner; PrereqError."""
    content = _read(name)
    if not LEAST_SECRET <= len(content.strip()) <= FILE_LIMIT or not content.isascii():
        raise PrereqError(
            f"{name} has no domain secret: text of at least {LEAST_SECRET} characters",
            ErrorCode.WRONG_INPUT,
        )
    return content.strip() + b"\n"


def _spice(
    paths: Paths, wanted: FileRenewal, cluster_name: str, now: float
) -> list[tuple[Path, bytes, str]]:
    if wanted.spice:
        pair = _own_pair(cluster_name, now)
        authority = pair[pair.index(b"-----BEGIN CERTIFICATE") :]
    elif wanted.spice_file and wanted.spice_authority_file:
        pair, authority = _given_pair(wanted.spice_file), _read(wanted.spice_authority_file)
        if not certificates.is_signed_by(_certificate_of(pair), authority):
            raise PrereqError(
                f"{wanted.spice_file} is not signed by {wanted.spice_authority_file}",
                ErrorCode.WRONG_INPUT,
            )
    else:
        return []
    return [
        (paths.spice_authority, authority, "authority of SPICE displays"),
        (paths.spice_certificate, pair, "certificate of SPICE displays"),
    ]


def _own_pair(name: str, now: float) -> bytes:
    key = certificates.new_key()
    return key + certificates.self_signed(key, name, now, LIFETIME_S)


def _given_pair(name: str) -> bytes:
    """Return a key and its certificate unchanged from one file (PEM); PrereqError."""
    import ssl  # noqa: PLC0415 - rarely needed

    content = _read(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(name, password=lambda: "")
    except (OSError, ValueError) as err:
        raise PrereqError(
            f"{name} must have a key without password and its certificate (PEM): {err}",
            ErrorCode.WRONG_INPUT,
        ) from err
    return content


def _certificate_of(pair: bytes) -> bytes:
    begin = pair.find(b"-----BEGIN CERTIFICATE")
    return pair[begin:] if begin >= 0 else b""


def _read(name: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            content = file.read(FILE_LIMIT + 1)
    except OSError as err:
        raise PrereqError(f"{name} cannot be read: {err.strerror}", ErrorCode.ENVIRONMENT) from err
    if len(content) > FILE_LIMIT:
        raise PrereqError(f"{name} is too large", ErrorCode.WRONG_INPUT)
    return content
