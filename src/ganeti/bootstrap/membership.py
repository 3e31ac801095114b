"""Records on a node that it belongs to a cluster, completely or not at all."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from ganeti import ssconf
from ganeti.base import certificates
from ganeti.base.certificate_facts import node_identity
from ganeti.base.errors import ErrorCode, HostError, InputError, PrereqError, StoreError
from ganeti.base.files import write_atomically
from ganeti.base.identifiers import is_uuid
from ganeti.base.node_files import STORAGE_LIST_MARK
from ganeti.base.paths import Paths
from ganeti.bootstrap.destroy import forget_cluster, is_member, prepared
from ganeti.bootstrap.join_messages import Admission
from ganeti.model.objects import NodeUuid
from ganeti.store.interface import Identity
from ganeti.store.register import PromiseRequest, RegisterFile, join

STORAGE_LIST_HEADER = (
    STORAGE_LIST_MARK
    + "# A node that leaves its cluster removes a list that begins with the line above.\n"
)


def own_identity(paths: Paths) -> Identity:
    """Return this node's identity from its certificate, and its cluster's from its register."""
    node_uuid, _name = node_identity(paths.node_certificate.read_bytes())
    register = RegisterFile(paths.register).read()
    if register is None:
        raise StoreError(f"{paths.register} does not exist: this node is not a member of a cluster")
    return Identity(register.cluster_uuid, NodeUuid(node_uuid))


def make_directories(paths: Paths, made: list[Path]) -> None:
    """Create the directories that every daemon requires; `made` gets the new ones, innermost first."""
    for directory, mode in (
        (paths.etc, 0o755),
        (paths.data, 0o750),
        (paths.log, 0o750),
        (paths.run, 0o755),
        (paths.luxi_socket.parent, 0o750),
    ):
        _make(directory, mode, made)


def check_admission(admission: Admission, name: str, key: bytes) -> None:
    """Raise InputError unless the master's answer makes a member of the node `name` with this key."""
    certificate, authority = admission.certificate.encode(), admission.authority.encode()
    if not certificates.is_pair(certificate, key):
        raise InputError("the master's certificate is not for this node's key")
    if not certificates.is_signed_by(certificate, authority):
        raise InputError("the master's certificate is not signed by its authority")
    if node_identity(certificate) != (admission.node_uuid, name):
        raise InputError("the master's certificate is for another node")
    if not is_uuid(admission.cluster_uuid) or not is_uuid(admission.master_uuid):
        raise InputError("the master did not name its cluster")
    if admission.epoch <= 0:
        raise InputError("the master has no epoch")


def install(paths: Paths, admission: Admission, key: bytes) -> None:
    """Make this node a member; on any error nothing of it remains."""
    before, made = prepared(paths), list[Path]()
    try:
        write_identity(paths, key, admission.certificate.encode(), admission.authority.encode())
        ssconf.write_set(paths, admission.ssconf_position, admission.ssconf)
        allow_storage(paths, admission.file_storage_paths)
        # The shared one is made by whoever mounts it: an empty directory would look like the share.
        make_storage_directories(paths, admission.ssconf.get("file_storage_dir", ""), "", made)
        _join_register(paths, admission)
    except BaseException as err:
        forget_cluster(paths, keep=before)
        remove_made(made)
        if isinstance(err, OSError):
            raise HostError(f"cannot write {err.filename}: {err.strerror}") from err
        raise


def _join_register(paths: Paths, admission: Admission) -> None:
    master = NodeUuid(admission.master_uuid)
    request = PromiseRequest(admission.cluster_uuid, admission.epoch, master)
    answer = RegisterFile(paths.register).decide(lambda old: join(old, request))
    if not answer.granted:
        raise HostError(f"this node's register refused: {answer.reason}")


def write_identity(paths: Paths, key: bytes, certificate: bytes, authority: bytes) -> None:
    """Write the node's key and certificates; only root reads the key."""
    write_atomically(paths.node_key, key, mode=0o600)
    write_atomically(paths.node_certificate, certificate, mode=0o644)
    write_atomically(paths.authority_certificate, authority, mode=0o644)


def allow_storage(paths: Paths, directories: Sequence[str]) -> bool:
    """List the directories as allowed, unless the administrator has a list; return whether it was written."""
    if paths.file_storage_paths.exists():
        return False
    lines = "".join(f"{directory}\n" for directory in dict.fromkeys(directories) if directory)
    write_atomically(paths.file_storage_paths, (STORAGE_LIST_HEADER + lines).encode(), mode=0o644)
    return True


def make_storage_directories(
    paths: Paths, file_dir: str, shared_dir: str, made: list[Path]
) -> None:
    """Create missing storage directories; `made` gets the new ones, innermost first.

    The shared directory has the same path on every node, so a virtual cluster does not prefix it.
    """
    if file_dir:
        _make(paths.below(file_dir), 0o755, made)
    if shared_dir:
        _make(Path(shared_dir), 0o755, made)


def remove_made(made: Sequence[Path]) -> None:
    """Remove new directories, innermost first; one that is used meanwhile stays."""
    for directory in made:
        with contextlib.suppress(OSError):
            directory.rmdir()


def _make(directory: Path, mode: int, made: list[Path]) -> None:
    missing = [one for one in (directory, *directory.parents) if not one.exists()]
    for one in reversed(missing):
        try:
            one.mkdir()
            one.chmod(mode if one == directory else 0o755)
        except OSError as err:
            raise HostError(f"cannot create the directory {one}: {err.strerror}") from err
        made.insert(0, one)


def check_not_member(paths: Paths, what_to_do: str) -> None:
    """Raise PrereqError, with a remedy, if this node has any data of a cluster."""
    if is_member(paths):
        what = f"this node belongs to a cluster already (see {paths.data})"
        raise PrereqError(f"{what}; {what_to_do}", ErrorCode.EXISTS)
