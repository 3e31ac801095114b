"""Procedures about the figures of a node and its guests (`ganeti.model.figures`)."""

from ganeti.model.figures import Values
from ganeti.rpc.procedures.form import NORMAL_S, QUICK_S, Message, Nothing, Procedure


class NodeFigures(Message, frozen=True, kw_only=True):
    """The present figures, at most some seconds old; empty before the second sample."""

    node: Values = ()
    guests: dict[str, Values] = {}
    """By the UUIDs of instances; guests that run here."""


class HistoryArgs(Message, frozen=True, kw_only=True):
    uuid: str
    """The instance's; '' for the node itself."""
    start: float
    end: float
    """Seconds since the epoch."""
    step: int
    """Seconds; one of `STEPS`."""


class HistoryPart(Message, frozen=True, kw_only=True):
    """The known steps that a node has, in the order of time."""

    times: list[int] = []
    """The beginnings of steps, in seconds since the epoch."""
    rows: list[Values] = []
    """The mean values of each step."""


class HistoryForgetArgs(Message, frozen=True, kw_only=True):
    uuid: str


FIGURES = Procedure("figures", Nothing, NodeFigures, QUICK_S, changes=False)

HISTORY = Procedure("history", HistoryArgs, HistoryPart, NORMAL_S, changes=False)

HISTORY_FORGET = Procedure("history_forget", HistoryForgetArgs, Nothing, NORMAL_S, changes=True)
"""Remove the history of an instance that is being removed. Idempotent."""
