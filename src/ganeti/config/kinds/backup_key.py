"""Keys of backups."""

from collections.abc import Iterator

from ganeti.base.backup_ciphers import KEY_BYTES, key_id
from ganeti.base.errors import ErrorCode
from ganeti.config.index import Claim
from ganeti.config.kinds.kind import Kind, Problem
from ganeti.config.view import View
from ganeti.model.backup_key import BackupKey
from ganeti.model.objects import Cluster


def _claims(_cluster: Cluster, key: BackupKey) -> Iterator[Claim]:
    yield Claim("backup key", key.name)


def _problems(view: View, key: BackupKey) -> Iterator[Problem]:
    try:
        secret = bytes.fromhex(key.secret)
    except ValueError:
        secret = b""
    if len(secret) != KEY_BYTES or key_id(secret) != key.name:
        yield (
            ErrorCode.WRONG_INPUT,
            f"backup key {key.name} is damaged: its id is that of another key",
        )
    active = [one.name for one in view.table(BackupKey).values() if one.is_active]
    if key.is_active and len(active) > 1:
        yield ErrorCode.WRONG_STATE, f"several backup keys are active: {', '.join(sorted(active))}"


BACKUP_KEY = Kind("backup-key", BackupKey, _claims, _problems)
