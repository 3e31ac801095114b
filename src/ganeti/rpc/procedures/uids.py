"""Procedures about the user ids of guests."""

from ganeti.rpc.procedures.form import NORMAL_S, Message, Procedure


class UidPoolArgs(Message, frozen=True, kw_only=True):
    """First and last user id of each range."""

    uid_pool: list[tuple[int, int]]


class UidPoolUse(Message, frozen=True, kw_only=True):
    """Data of a node about these ids."""

    conflicts: list[str]
    """The owners of ids, a sentence each: no guest may use these ids."""
    in_use: list[int]
    """Ids of running processes."""


UID_POOL_USE = Procedure("uid_pool_use", UidPoolArgs, UidPoolUse, NORMAL_S, changes=False)
