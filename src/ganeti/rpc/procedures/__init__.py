"""Every call from the master to a node, declared once.

Arguments, result, deadline, and whether it changes the host.

The client, the server and the fake are built from `PROCEDURES`, so both ends agree. Unknown fields
are ignored here (nodes are upgraded first); sizes and memory are MiB.
"""

from typing import Any

from ganeti.base.modules import modules_below
from ganeti.rpc.procedures.form import Procedure

PROCEDURES: dict[str, Procedure[Any, Any]] = {
    procedure.name: procedure
    for module in modules_below(__name__)
    for procedure in vars(module).values()
    if isinstance(procedure, Procedure)
}
"""Name -> procedure."""
