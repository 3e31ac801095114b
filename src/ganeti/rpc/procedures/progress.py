"""The progress of a long call."""

from ganeti.model.progress import Progress
from ganeti.rpc.procedures.form import QUICK_S, Message, Procedure, optional


class ProgressArgs(Message, frozen=True, kw_only=True):
    """The key of the call."""

    key: str


CALL_PROGRESS = Procedure("call_progress", ProgressArgs, optional(Progress), QUICK_S, changes=False)
"""None if no such call runs, or it does not report its progress."""
