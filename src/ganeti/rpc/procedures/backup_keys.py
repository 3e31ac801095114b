"""The keys that a node needs for one instance's backups, in calls about them: only in memory, never in files or logs."""

from ganeti.base.backup_ciphers import KEY_BYTES
from ganeti.base.errors import InputError
from ganeti.protocols.backup_encryption import BackupKeyring
from ganeti.rpc.procedures.form import Message


class BackupKeys(Message, frozen=True, kw_only=True):
    """See `BackupKeyring`; keys in hexadecimal."""

    keys: dict[str, str] = {}
    current: str = ""
    is_required: bool = False

    def __repr__(self) -> str:
        return f"BackupKeys({', '.join(self.keys)})"

    @property
    def keyring(self) -> BackupKeyring:
        """Return the keys; InputError."""
        try:
            keys = {name: bytes.fromhex(text) for name, text in self.keys.items()}
        except ValueError as err:
            raise InputError("a key is not hexadecimal", "keys") from err
        if any(len(one) != KEY_BYTES for one in keys.values()):
            raise InputError(f"a key has not {KEY_BYTES} bytes", "keys")
        return BackupKeyring(keys, self.current, self.is_required)


NO_BACKUP_KEYS = BackupKeys()
