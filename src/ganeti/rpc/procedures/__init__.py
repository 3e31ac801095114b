"""Every call from the master to a node, declared once: arguments, result, deadline, whether it changes the host.

`PROCEDURES` is what the client, the server and the fake are made from, so that both ends cannot
disagree. Unknown fields are ignored here (nodes are upgraded first); sizes and memory are MiB.
"""

from typing import Any

from ganeti.rpc.procedures import (
    devices,
    disks,
    earlier,
    files,
    hardware,
    host,
    instances,
    mastership,
    migration,
    networks,
    power,
    programs,
    transfers,
    uids,
)
from ganeti.rpc.procedures.form import Procedure

_MODULES = (
    devices,
    disks,
    earlier,
    files,
    hardware,
    host,
    instances,
    mastership,
    migration,
    networks,
    power,
    programs,
    transfers,
    uids,
)

PROCEDURES: dict[str, Procedure[Any]] = {
    procedure.name: procedure
    for module in _MODULES
    for procedure in vars(module).values()
    if isinstance(procedure, Procedure)
}
"""Name -> procedure."""
