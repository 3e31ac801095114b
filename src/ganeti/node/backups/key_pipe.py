"""The keys of backups on their way to a program of the node: by a pipe, which can be read once.

They are never words of a command, variables of the environment, or files: a process list, a record of a task and a
copy of the disk have none. The environment has only the number of the descriptor.
"""

import os
from typing import TYPE_CHECKING

from ganeti.base.errors import HostError
from ganeti.model import wire
from ganeti.protocols.backup_encryption import BackupKeyring

if TYPE_CHECKING:  # most programs get no keys, and the import takes a third of their start
    from ganeti.rpc.procedures.backup_keys import BackupKeys

VARIABLE = "GANETI_KEY_PIPE"
LIMIT = 32 << 10
"""Bytes that a pipe certainly holds without a reader."""
_received: list[BackupKeyring] = []


def packed(keys: "BackupKeys") -> bytes:
    """Return the content of the pipe; nothing without keys."""
    return wire.encode(keys) if keys.keys or keys.is_required else b""


def received_keys() -> BackupKeyring:
    """Return the keys that this process got at its start; none if it got no pipe."""
    if not _received:
        _received.append(_read())
    return _received[0]


def _read() -> BackupKeyring:
    number = os.environ.pop(VARIABLE, "")
    if not number:
        return BackupKeyring()
    with os.fdopen(int(number), "rb") as pipe:
        content = pipe.read(LIMIT)
    if not content:
        raise HostError("the keys of the backups were already read by another process")
    from ganeti.rpc.procedures.backup_keys import BackupKeys  # noqa: PLC0415 - slow to import

    return wire.decode(content, BackupKeys, what="the keys of the backups").keyring
