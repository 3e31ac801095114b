"""Procedures that end work of earlier masters on a node (R11)."""

from ganeti.rpc.procedures.form import NORMAL_S, Message, Procedure


class EndWorkArgs(Message, frozen=True, kw_only=True):
    """Which changing calls are to end, with the programs that they run.

    A call of one of these keys that arrives later runs no program any more.
    """

    keys: list[str] = []
    older: bool = False
    """All that masters of epochs before the caller's began, too."""
    wait_s: float = 5.0
    """How long to wait for calls that run no program, and end by themselves."""


class UnfinishedWork(Message, frozen=True, kw_only=True):
    """Something that still runs."""

    what: str
    """`procedure key`, or `task key`."""
    instance: str = ""
    """The name of the instance that it concerns; '' if that is not known."""


class EndWorkResult(Message, frozen=True, kw_only=True):
    """Ended work, and work that survived."""

    ended: list[str]
    unfinished: list[UnfinishedWork]


# The handler itself asks the register whether the caller is the master.
END_STALE_WORK = Procedure("end_stale_work", EndWorkArgs, EndWorkResult, NORMAL_S, changes=False)
