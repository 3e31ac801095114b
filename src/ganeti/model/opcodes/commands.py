"""Opcodes by which nodes are switched on and off, and run programs of their administrators."""

from typing import Annotated, ClassVar

from ganeti.model.fields import Field
from ganeti.model.opcodes.base import OpCode


class OpOobCommand(OpCode, frozen=True, kw_only=True, tag="OP_OOB_COMMAND"):
    """Let the out-of-band program of nodes (all without names) do `command`, one after the other.

    The result is a list of `[[0, name], [status, data]]`, with the status of a query's values.
    """

    node_names: list[str] = []
    node_uuids: list[str] | None = None
    command: str
    timeout: Annotated[int, Field(
        "how long the program may take (60)", "! --oob-timeout", "SECONDS"
    )] = 60  # fmt: skip
    ignore_status: Annotated[bool, Field("switch a node off although it is not marked offline")] = (
        False
    )
    power_delay: Annotated[float, Field(
        "how long to wait between two nodes that are switched on (2)", metavar="SECONDS"
    )] = 2.0  # fmt: skip


class OpRestrictedCommand(OpCode, frozen=True, kw_only=True, tag="OP_RESTRICTED_COMMAND"):
    """Run a program of nodes' own `restricted-commands`; the result is `[succeeded, output]` for each node."""

    nodes: list[str]
    node_uuids: list[str] | None = None
    command: str
    use_locking: Annotated[bool, Field("wait until no job works on the nodes", "! --sync")] = False


class OpClusterCommand(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_COMMAND"):
    """Run a line of shell on nodes that allow it; the result is `[name, status, output]` for each."""

    command: str
    node_names: list[str]


class OpClusterCopyFile(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_COPY_FILE"):
    """Give nodes that allow it a file of the master's; the result is `[name, why not or '']` for each."""

    path: str
    node_names: list[str]

    summary_field: ClassVar[str | None] = "path"
