"""Fields of the keys of backups; none has the key."""

from dataclasses import dataclass

from ganeti.model.backup_key import BackupKey
from ganeti.query.context import QueryContext
from ganeti.query.fields.field import UNAVAILABLE, Field, ValueKind
from ganeti.query.fields.field import field_table as table
from ganeti.query.fields.stored import stored_fields


@dataclass(frozen=True)
class BackupKeyRow:
    """One key in its context."""

    context: QueryContext
    key: BackupKey


_FIELDS: tuple[Field[BackupKeyRow], ...] = (
    Field("name", "Key", ValueKind.TEXT, "Id of the key", lambda r: r.key.name),
    Field("active", "Active", ValueKind.BOOL, "Whether new encrypted backups use it", lambda r: r.key.is_active),
    Field("owner", "Owner", ValueKind.TEXT, "Who has added it", lambda r: r.key.owner or UNAVAILABLE),
)  # fmt: skip
BACKUP_KEY_FIELDS = table(_FIELDS, stored_fields("key", lambda row: row.key))
