"""Procedures about a node's power."""

from ganeti.rpc.procedures.form import QUICK_S, Message, Nothing, Procedure


class PowercycleResult(Message, frozen=True, kw_only=True):
    """The host will be restarted, without any further ado, so many seconds later."""

    delay_s: float


# The handler itself asks who is master: it must answer where the register cannot be written any more.
NODE_POWERCYCLE = Procedure("node_powercycle", Nothing, PowercycleResult, QUICK_S, changes=False)
