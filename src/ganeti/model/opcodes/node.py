"""Opcodes about nodes."""

from typing import ClassVar

from ganeti.model.opcodes.base import OpCode
from ganeti.model.params import Params


class OpNodeAdd(OpCode, frozen=True, kw_only=True, tag="OP_NODE_ADD"):
    """Take a host into the cluster after it was joined.

    The command has already joined the host by ssh or token (`ganeti.bootstrap.join`): it runs with the
    certificate whose SHA-256 fingerprint is `certificate`, and listens on `primary_ip`:`port`.
    """

    node_name: str
    primary_ip: str | None = None
    secondary_ip: str | None = None
    port: int = 1811
    certificate: str = ""
    node_uuid: str | None = None
    """The UUID that the join has put into the certificate."""
    readd: bool = False
    group: str | None = None
    master_capable: bool = True
    vm_capable: bool = True
    ndparams: Params = {}
    # Clients of Ganeti name these too.
    hv_state: Params | None = None
    disk_state: Params | None = None
    node_setup: bool = False

    summary_field: ClassVar[str | None] = "node_name"
    null_is_default: ClassVar[tuple[str, ...]] = (
        *OpCode.null_is_default,
        *("master_capable", "vm_capable", "ndparams"),
    )


class OpNodeRemove(OpCode, frozen=True, kw_only=True, tag="OP_NODE_REMOVE"):
    """Take a node without instances out of the cluster."""

    node_name: str
    node_uuid: str | None = None

    summary_field: ClassVar[str | None] = "node_name"


class OpNodeSetParams(OpCode, frozen=True, kw_only=True, tag="OP_NODE_SET_PARAMS"):
    """Change a node's role and parameters; None leaves a thing as it is.

    `auto_promote` lets other nodes become master candidates in its place.
    """

    node_name: str
    node_uuid: str | None = None
    force: bool = False
    master_candidate: bool | None = None
    offline: bool | None = None
    drained: bool | None = None
    auto_promote: bool = False
    master_capable: bool | None = None
    vm_capable: bool | None = None
    secondary_ip: str | None = None
    ndparams: Params | None = None
    """None as a value takes a parameter from the group or the cluster again."""
    hv_state: Params | None = None
    disk_state: Params | None = None
    powered: bool | None = None

    summary_field: ClassVar[str | None] = "node_name"


class OpNodePowercycle(OpCode, frozen=True, kw_only=True, tag="OP_NODE_POWERCYCLE"):
    """Restart a host at once, without shutting anything down; the master only with `force`."""

    node_name: str
    node_uuid: str | None = None
    force: bool = False

    summary_field: ClassVar[str | None] = "node_name"


class OpNodeRename(OpCode, frozen=True, kw_only=True, tag="OP_NODE_RENAME"):
    """Give a node another name (S93); nothing refers to it by name, so nothing else is locked."""

    node_name: str
    node_uuid: str | None = None
    new_name: str

    summary_field: ClassVar[str | None] = "node_name"
