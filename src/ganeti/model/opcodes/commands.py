"""Opcodes that switch nodes on and off, and that run administrators' programs on nodes."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from ganeti.model.fields import Field, RefersTo
from ganeti.model.opcodes.base import OpCode
from ganeti.model.operation import Loss


def _ask_power(ops: Sequence[Any]) -> str | None:
    op = ops[0]
    what = {"power-off": "Switch off", "power-cycle": "Switch off and on again"}.get(op.command)
    nodes = ", ".join(op.node_names) or "all nodes but the master"
    return f"{what} {nodes}? Guests that run there are lost." if what else None


class OpOobCommand(OpCode, frozen=True, kw_only=True, tag="OP_OOB_COMMAND"):
    """Switch nodes (default: all nodes) by their out-of-band programs or fence agents, one node after the other.

    The result is a list of `[[0, name], [status, data]]`; the status is that of a query's values.
    """

    node_names: Annotated[list[str], RefersTo.NODE] = []
    node_uuids: Annotated[list[str] | None, RefersTo.NODE] = None
    command: Annotated[str, RefersTo.NOTHING]
    timeout: Annotated[int, Field(
        "timeout of the program in seconds (60)", "! --oob-timeout", "SECONDS"
    )] = 60  # fmt: skip
    ignore_status: Annotated[bool, Field("switch off a node that is not marked offline")] = False
    power_delay: Annotated[float, Field(
        "how long to wait between two nodes that are switched on (2)", metavar="SECONDS"
    )] = 2.0  # fmt: skip

    loss: ClassVar[Loss | None] = Loss(_ask_power)


class OpRestrictedCommand(OpCode, frozen=True, kw_only=True, tag="OP_RESTRICTED_COMMAND"):
    """Run a program from the nodes' `restricted-commands`; the result is `[succeeded, output]` for each node."""

    nodes: Annotated[list[str], RefersTo.NODE]
    node_uuids: Annotated[list[str] | None, RefersTo.NODE] = None
    command: Annotated[str, RefersTo.CLUSTER]
    use_locking: Annotated[
        bool, Field("lock the nodes, and wait for jobs that use them", "! --sync")
    ] = False

    no_loss: ClassVar[str] = "runs only programs that the nodes offer"


class OpClusterCommand(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_COMMAND"):
    """Run a shell command line on nodes that allow it; the result is `[name, status, output]` for each node."""

    command: Annotated[str, RefersTo.CLUSTER]
    node_names: Annotated[list[str], RefersTo.NODE]

    no_loss: ClassVar[str] = "runs the administrator's own line, where nodes allow it"


class OpClusterCopyFile(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_COPY_FILE"):
    """Copy a file of the master to nodes that allow it; the result is `[name, error or '']` for each node."""

    path: Annotated[str, RefersTo.PATH]
    node_names: Annotated[list[str], RefersTo.NODE]

    summary_field: ClassVar[str | None] = "path"
    no_loss: ClassVar[str] = "replaces only files that the nodes list for it"
