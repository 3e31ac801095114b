"""Procedures that end work of earlier masters on a node (R11)."""

from ganeti.rpc.procedures.form import NORMAL_S, Message, Procedure


class EndWorkArgs(Message, frozen=True, kw_only=True):
    """The changing calls to end, with their programs.

    A call of one of these keys that arrives later runs no program.
    """

    keys: list[str] = []
    older: bool = False
    """True to end all work of masters before the caller's epoch, too."""
    wait_s: float = 5.0
    """Time to wait for calls that run no program, and end on their own."""


class UnfinishedWork(Message, frozen=True, kw_only=True):
    """Work that still runs."""

    what: str
    """`procedure key`, or `task key`."""
    instance: str = ""
    """The name of its instance; '' if unknown."""


class EndWorkResult(Message, frozen=True, kw_only=True):
    """Ended work, and work that survived."""

    ended: list[str]
    unfinished: list[UnfinishedWork]


# The handler itself checks in the register whether the caller is the master.
END_STALE_WORK = Procedure("end_stale_work", EndWorkArgs, EndWorkResult, NORMAL_S, changes=False)
