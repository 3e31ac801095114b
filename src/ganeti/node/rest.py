"""Answers the master's call for a REST server; the server ends when the master is on another node."""

from ganeti.bootstrap.daemons import RAPI, Daemons
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.mastership import REST_UP


def handlers(daemons: Daemons) -> Handlers:
    """Start the server unless it runs; idempotent."""

    async def up(_args: Nothing, _call: Call) -> Nothing:
        if daemons.has_rest:
            await daemons.start(RAPI)
        return Nothing()

    return {REST_UP.name: up}
