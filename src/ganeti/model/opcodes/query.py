"""Opcodes for queries; clients of LUXI and REST query without a job."""

from typing import Annotated, Any, ClassVar

from ganeti.model.fields import RefersTo
from ganeti.model.opcodes.base import OpCode


class OpQuery(OpCode, frozen=True, kw_only=True, tag="OP_QUERY"):
    """Return objects of the kind `what` that match a filter: field definitions, and rows of `[status, value]`."""

    what: Annotated[str, RefersTo.CLUSTER]
    fields: Annotated[list[str], RefersTo.NOTHING]
    qfilter: Annotated[Any, RefersTo.CLUSTER] = None
    use_locking: bool = False

    summary_field: ClassVar[str | None] = "what"
    host_changing: ClassVar[bool] = False


class OpQueryFields(OpCode, frozen=True, kw_only=True, tag="OP_QUERY_FIELDS"):
    """Return definitions of fields of the kind `what` (default: all fields)."""

    what: Annotated[str, RefersTo.NOTHING]
    fields: Annotated[list[str] | None, RefersTo.NOTHING] = None

    summary_field: ClassVar[str | None] = "what"
    host_changing: ClassVar[bool] = False


class OpClusterConfigQuery(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_CONFIG_QUERY"):
    """Return values of the cluster: cluster_name, master_node, drain_flag, watcher_pause, volume_group_name."""

    output_fields: Annotated[list[str], RefersTo.CLUSTER]

    host_changing: ClassVar[bool] = False
