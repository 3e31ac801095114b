"""The proofs beside the manifests of a directory of backups: read, and changed by a rename."""

from collections.abc import Callable

from ganeti.base.errors import GanetiError, HostError
from ganeti.model import wire
from ganeti.node.backups.directory import BackupDirectory
from ganeti.protocols.backup_manifest import Manifest
from ganeti.protocols.backup_proof import SIZE_LIMIT, Proof, new_proof, parse_proof, proof_file


def read_proof(directory: BackupDirectory, point: Manifest) -> Proof | None:
    """Return the proof of a backup; None if there is none that belongs to it."""
    try:
        return parse_proof(directory.read(proof_file(point.point), SIZE_LIMIT), point)
    except (GanetiError, OSError):
        return None


def record(
    directory: BackupDirectory, point: Manifest, change: Callable[[Proof, Manifest], Proof]
) -> None:
    """Change the proof of a backup, if it still has the images of this manifest; HostError or OSError.

    Waits while another process changes these backups.
    """
    with directory.locked(waits=True):
        now = directory.contents().points.get(point.point)
        if now is None or now.instance_uuid != point.instance_uuid or now.disks != point.disks:
            raise HostError(f"backup {point.point} was changed or removed meanwhile")
        known = read_proof(directory, now) or new_proof(now)
        directory.write(proof_file(now.point), wire.encode(change(known, now)))
