"""Procedures about confd on nodes that are not master candidates."""

from ganeti.rpc.procedures.form import NORMAL_S, Message, Procedure


class ConfdCopyArgs(Message, frozen=True, kw_only=True):
    """The node's own key, and the changes to its copy of the configuration (`confd.copy_file.write_copy`)."""

    key: bytes
    base: int | None
    """The position that the changes follow; None for a whole copy."""
    position: int
    content: bytes

    def __repr__(self) -> str:
        return f"ConfdCopyArgs(base={self.base}, position={self.position}, …)"


class ConfdCopyReport(Message, frozen=True, kw_only=True):
    """The position of the node's copy now: not the sent position if its base differs."""

    position: int


CONFD_COPY_WRITE = Procedure(
    "confd_copy_write", ConfdCopyArgs, ConfdCopyReport, NORMAL_S, changes=True
)
