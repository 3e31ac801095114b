"""Opcodes about the cluster as a whole."""

from typing import ClassVar

from ganeti.model.opcodes.base import OpCode


class OpClusterPostInit(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_POST_INIT"):
    """The first job of a cluster: bring every node's files up to date."""


class OpClusterDestroy(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_DESTROY"):
    """Refuse unless only the master is left; the command then removes its data."""


class OpClusterQuery(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_QUERY"):
    """What `gnt-cluster info` shows, as a job."""

    host_changing: ClassVar[bool] = False


class OpClusterVerify(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_VERIFY"):
    """Check everything: submits one job for the configuration and one for each node group."""

    debug_simulate_errors: bool = False
    error_codes: bool = False
    skip_checks: list[str] = []
    ignore_errors: list[str] = []
    verbose: bool = False
    group_name: str | None = None
    verify_clutter: bool = False

    host_changing: ClassVar[bool] = False


class OpClusterVerifyConfig(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_VERIFY_CONFIG"):
    """Check the configuration against itself; the result is True if it is sound."""

    debug_simulate_errors: bool = False
    error_codes: bool = False
    ignore_errors: list[str] = []
    verbose: bool = False

    host_changing: ClassVar[bool] = False


class OpClusterVerifyGroup(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_VERIFY_GROUP"):
    """Check the nodes and instances of one group; the result is True if all is well."""

    group_name: str
    debug_simulate_errors: bool = False
    error_codes: bool = False
    skip_checks: list[str] = []
    ignore_errors: list[str] = []
    verbose: bool = False
    verify_clutter: bool = False

    summary_field: ClassVar[str | None] = "group_name"
    host_changing: ClassVar[bool] = False
