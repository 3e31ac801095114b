"""Opcodes by which nodes are switched on and off, and run programs of their administrators."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from ganeti.model.fields import Field, RefersTo
from ganeti.model.opcodes.base import OpCode
from ganeti.model.operation import Loss


def _ask_power(ops: Sequence[Any]) -> str | None:
    op = ops[0]
    what = {"power-off": "Switch off", "power-cycle": "Switch off and on again"}.get(op.command)
    nodes = ", ".join(op.node_names) or "all nodes but the master"
    return f"{what} {nodes}? Whatever runs there is lost." if what else None


class OpOobCommand(OpCode, frozen=True, kw_only=True, tag="OP_OOB_COMMAND"):
    """Let the out-of-band program of nodes (all without names) do `command`, one after the other.

    The result is a list of `[[0, name], [status, data]]`, with the status of a query's values.
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
    """Run a program of nodes' own `restricted-commands`; the result is `[succeeded, output]` for each node."""

    nodes: Annotated[list[str], RefersTo.NODE]
    node_uuids: Annotated[list[str] | None, RefersTo.NODE] = None
    command: Annotated[str, RefersTo.CLUSTER]
    use_locking: Annotated[bool, Field("wait until no job works on the nodes", "! --sync")] = False

    no_loss: ClassVar[str] = "runs only programs that the nodes offer"


class OpClusterCommand(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_COMMAND"):
    """Run a line of shell on nodes that allow it; the result is `[name, status, output]` for each."""

    command: Annotated[str, RefersTo.CLUSTER]
    node_names: Annotated[list[str], RefersTo.NODE]

    no_loss: ClassVar[str] = "runs the administrator's own line, where nodes allow it"


class OpClusterCopyFile(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_COPY_FILE"):
    """Give nodes that allow it a file of the master's; the result is `[name, why not or '']` for each."""

    path: Annotated[str, RefersTo.PATH]
    node_names: Annotated[list[str], RefersTo.NODE]

    summary_field: ClassVar[str | None] = "path"
    no_loss: ClassVar[str] = "replaces only files that the nodes list for it"
