"""Procedures about a node's power."""

from ganeti.rpc.procedures.form import QUICK_S, Message, Nothing, Procedure


class PowercycleResult(Message, frozen=True, kw_only=True):
    """The host restarts unconditionally after so many seconds."""

    delay_s: float


# The handler itself checks the master: it must answer even if the register cannot be written.
NODE_POWERCYCLE = Procedure("node_powercycle", Nothing, PowercycleResult, QUICK_S, changes=False)
