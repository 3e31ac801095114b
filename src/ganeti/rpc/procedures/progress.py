"""How far a call is whose work takes long."""

from ganeti.model.progress import Progress
from ganeti.rpc.procedures.form import QUICK_S, Message, Procedure, optional


class ProgressArgs(Message, frozen=True, kw_only=True):
    """The key of the call."""

    key: str


CALL_PROGRESS = Procedure("call_progress", ProgressArgs, optional(Progress), QUICK_S, changes=False)
"""None if no such call is carried out, or it does not report how far it is."""
