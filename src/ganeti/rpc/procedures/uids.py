"""Procedures about the user ids that guests run under."""

from ganeti.rpc.procedures.form import NORMAL_S, Message, Procedure


class UidPoolArgs(Message, frozen=True, kw_only=True):
    """First and last user id of each range."""

    uid_pool: list[tuple[int, int]]


class UidPoolUse(Message, frozen=True, kw_only=True):
    """Data of a node about these ids."""

    conflicts: list[str]
    """Whose they are, a sentence each: no guest may have them."""
    in_use: list[int]
    """Ids that processes run with now."""


UID_POOL_USE = Procedure("uid_pool_use", UidPoolArgs, UidPoolUse, NORMAL_S, changes=False)
