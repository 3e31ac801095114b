"""Opcodes about the keys that encrypt backups."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from ganeti.model.fields import RefersTo
from ganeti.model.opcodes.base import OpCode
from ganeti.model.operation import DRY_RUN, Loss, Rest

_PATH = "/2/backup-keys"


class OpBackupKeyCreate(OpCode, frozen=True, kw_only=True, tag="OP_BACKUP_KEY_CREATE"):
    """Create a key for encrypted backups. New backups use it; the former keys remain for the older ones.

    The result is the id of the key. The next encrypted backup of each instance is a full one.
    """

    no_loss: ClassVar[str] = "adds a key, and removes none"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", _PATH, (DRY_RUN,), summary="Create a key for encrypted backups", has_body=False),
    )  # fmt: skip


class OpBackupKeyImport(OpCode, frozen=True, kw_only=True, tag="OP_BACKUP_KEY_IMPORT"):
    """Add a key that another cluster has exported, or that was written down. The result is the id of the key."""

    secret: Annotated[str, RefersTo.NOTHING]
    """The text of `gnt-backup key export`, or its groups of letters alone."""
    is_active: bool = False
    """Whether new backups use it."""

    secret_fields: ClassVar[tuple[str, ...]] = ("secret",)
    no_loss: ClassVar[str] = "adds a key, and removes none"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", f"{_PATH}/import", (DRY_RUN,), summary="Add a key for encrypted backups from its text"),
    )  # fmt: skip


def _ask_retire(ops: Sequence[Any]) -> str | None:
    forced = [op.key_id for op in ops if op.force]
    if not forced:
        return None
    return f"Remove backup key {', '.join(forced)}? Without its paper, nobody can read the backups that use it."


class OpBackupKeyRetire(OpCode, frozen=True, kw_only=True, tag="OP_BACKUP_KEY_RETIRE"):
    """Remove a key that no backup uses any more.

    Nodes that are offline or do not answer may have backups that use it, so the request is refused then.
    """

    key_id: Annotated[str, RefersTo.CLUSTER]
    force: bool = False
    """Remove the key although backups use it, or may use it."""

    summary_field: ClassVar[str | None] = "key_id"
    loss: ClassVar[Loss | None] = Loss(_ask_retire, ("is_sure",))
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("DELETE", f"{_PATH}/{{key}}", (DRY_RUN,), summary="Remove a key that no backup uses", has_body=False),
    )  # fmt: skip
