"""Prevents new starts on a node that its cluster has marked offline (F29).

Its guests may be running elsewhere by now. Guests that run here continue, and may be stopped.
"""

from collections.abc import Callable
from typing import Any

from ganeti import ssconf
from ganeti.base.certificate_facts import node_identity
from ganeti.base.errors import ErrorCode, GanetiError, PrereqError
from ganeti.base.paths import Paths
from ganeti.rpc.calls import Call, Handler, Handlers
from ganeti.rpc.procedures.instances import INSTANCE_REBOOT, INSTANCE_START
from ganeti.rpc.procedures.live_restores import LIVE_START
from ganeti.rpc.procedures.migration import MIGRATION_ACCEPT
from ganeti.rpc.procedures.snapshots import RESTORE_GUEST

STARTS = (
    INSTANCE_START.name,
    INSTANCE_REBOOT.name,
    MIGRATION_ACCEPT.name,
    LIVE_START.name,
    RESTORE_GUEST.name,
)


def is_marked_offline(paths: Paths) -> bool:
    """Return whether the latest ssconf set that reached this node lists it as offline."""
    try:
        _uuid, name = node_identity(paths.node_certificate.read_bytes())
        return name in ssconf.SimpleStore(paths).GetOfflineNodeList()
    except (GanetiError, OSError):
        return False


def starting_nothing(handlers: Handlers, is_offline: Callable[[], bool]) -> Handlers:
    """Return the same handlers; the ones that start a guest refuse while the node is marked offline."""
    return {
        name: _refusing(handler, is_offline) if name in STARTS else handler
        for name, handler in handlers.items()
    }


def _refusing(handler: Handler, is_offline: Callable[[], bool]) -> Handler:
    async def answer(args: Any, call: Call) -> Any:
        if is_offline():
            raise PrereqError(
                (
                    "this node is marked offline in its cluster, so it starts no instance: its "
                    "instances may run on other nodes by now. See 'gnt-node list' on the master; "
                    "to use this node again run 'gnt-node modify --offline=no' with its name"
                ),
                ErrorCode.WRONG_STATE,
            )
        return await handler(args, call)

    return answer
