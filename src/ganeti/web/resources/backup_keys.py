"""Keys of backups, without the keys themselves; the opcodes declare how they are changed."""

from ganeti.clients import fields
from ganeti.model.operation import Right
from ganeti.web.lists import Listed
from ganeti.web.operations import BULK, LOCK, PAGES, Operation

KEYS = Listed("QueryBackupKeys", fields.BACKUP_KEY, "/2/backup-keys", id_field="name")
_PERMISSION = "backup_key_read"

OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/2/backup-keys", "backup-keys", "List the keys of backups", Right.WRITE, KEYS.collection(),
              (BULK, LOCK, *PAGES), result="list", shows="backup-key", permission=_PERMISSION),
    Operation("GET", "/2/backup-keys/{key}", "backup-keys_name", "Return one key of backups, without the key itself",
              Right.WRITE, KEYS.one(), (LOCK,), result="object", shows="backup-key", permission=_PERMISSION),
)  # fmt: skip
