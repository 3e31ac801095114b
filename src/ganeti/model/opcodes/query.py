"""Opcodes that ask; clients of LUXI and REST ask without a job."""

from typing import Any, ClassVar

from ganeti.model.opcodes.base import OpCode


class OpQuery(OpCode, frozen=True, kw_only=True, tag="OP_QUERY"):
    """Things of the kind `what` that pass a filter: definitions of fields, and `[status, value]` of each row."""

    what: str
    fields: list[str]
    qfilter: Any = None
    use_locking: bool = False

    summary_field: ClassVar[str | None] = "what"
    host_changing: ClassVar[bool] = False


class OpQueryFields(OpCode, frozen=True, kw_only=True, tag="OP_QUERY_FIELDS"):
    """Definitions of fields of the kind `what`, all without `fields`."""

    what: str
    fields: list[str] | None = None

    summary_field: ClassVar[str | None] = "what"
    host_changing: ClassVar[bool] = False


class OpClusterConfigQuery(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_CONFIG_QUERY"):
    """Values of the cluster: cluster_name, master_node, drain_flag, watcher_pause, volume_group_name."""

    output_fields: list[str]

    host_changing: ClassVar[bool] = False
