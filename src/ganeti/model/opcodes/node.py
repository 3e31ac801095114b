"""Opcodes about nodes."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.opcodes.base import ExpectedSerial, OpCode
from ganeti.model.operation import (
    FORCE,
    NEW_NAME,
    NODE,
    Command,
    Loss,
    Parameter,
    Rest,
    Value,
)
from ganeti.model.params import Params

SecondaryIp = Annotated[
    str | None,
    Field("the node's address for replication of disks", "-s", "ADDRESS"),
    RefersTo.NOTHING,
]
MASTER_CAPABLE = Field("whether the node may become a master candidate", form=Form.YES_NO)
VM_CAPABLE = Field("whether the node may run instances", form=Form.YES_NO)


class OpNodeAdd(OpCode, frozen=True, kw_only=True, tag="OP_NODE_ADD"):
    """Add a joined host to the cluster.

    The command has already joined the host by ssh or token (`ganeti.bootstrap.join`). The host's certificate has
    the SHA-256 fingerprint `certificate`, and the host listens on `primary_ip`:`port`.
    """

    node_name: Annotated[str, RefersTo.NEW_NODE]
    primary_ip: Annotated[str | None, RefersTo.NOTHING] = None
    secondary_ip: SecondaryIp = None
    port: int = 1811
    certificate: Annotated[str, RefersTo.NOTHING] = ""
    node_uuid: Annotated[str | None, RefersTo.NEW_NODE] = None
    """UUID in the certificate that the join created."""
    readd: Annotated[bool, Field("add a node again that has lost its data")] = False
    drained: Annotated[
        bool, Field("accept no new instances, and do not make it a master candidate")
    ] = False
    group: Annotated[
        str | None, Field("node group", "! -g --node-group", "GROUP"), RefersTo.GROUP
    ] = None
    master_capable: Annotated[bool, MASTER_CAPABLE] = True
    vm_capable: Annotated[bool, VM_CAPABLE] = True
    ndparams: Annotated[
        Params,
        Field("node parameters", "! --node-parameters", "k=v,...", Form.KEY_VALUES),
        RefersTo.CLUSTER,
    ] = {}
    # Clients of upstream Ganeti send these fields too.
    hv_state: Annotated[Params | None, RefersTo.CLUSTER] = None
    disk_state: Annotated[Params | None, RefersTo.CLUSTER] = None
    node_setup: bool = False

    summary_field: ClassVar[str | None] = "node_name"
    null_is_default: ClassVar[tuple[str, ...]] = (
        *OpCode.null_is_default,
        *("master_capable", "vm_capable", "ndparams"),
    )
    no_loss: ClassVar[str] = "refuses a host that belongs to a cluster"


class OpNodeRemove(OpCode, frozen=True, kw_only=True, tag="OP_NODE_REMOVE"):
    """Remove a node without instances from the cluster."""

    node_name: Annotated[str, RefersTo.NODE]
    node_uuid: Annotated[str | None, RefersTo.NODE] = None

    summary_field: ClassVar[str | None] = "node_name"
    no_loss: ClassVar[str] = "removes a node without instances"
    cli: ClassVar[Command | None] = Command("gnt-node", "remove", (NODE,))


ROLE_CHANGES: dict[str, dict[str, bool]] = {
    "regular": {"master_candidate": False, "offline": False, "drained": False},
    "master-candidate": {"master_candidate": True},
    "drained": {"drained": True},
    "offline": {"offline": True},
}
"""Map roles of the REST interface to fields of `OpNodeSetParams`."""
AUTO_PROMOTE = Parameter(
    "auto-promote", Value.FLAG, "let another node become a master candidate instead", "auto_promote"
)


class OpNodeSetParams(OpCode, frozen=True, kw_only=True, tag="OP_NODE_SET_PARAMS"):
    """Change a node's role and parameters; None keeps the present value.

    `auto_promote` lets other nodes become master candidates in its place.
    """

    node_name: Annotated[str, RefersTo.NODE]
    node_uuid: Annotated[str | None, RefersTo.NODE] = None
    force: Annotated[bool, Field("continue although too few master candidates are left", "-f")] = (
        False
    )
    master_candidate: Annotated[
        bool | None, Field("whether the node is a master candidate", "-C", form=Form.YES_NO)
    ] = None
    offline: Annotated[bool | None, Field(
        "whether the node is offline and must not be called", "-O", form=Form.YES_NO
    )] = None  # fmt: skip
    drained: Annotated[
        bool | None, Field("whether the node accepts no new instances", "-D", form=Form.YES_NO)
    ] = None
    auto_promote: Annotated[bool, Field("promote another node in its place")] = False
    master_capable: Annotated[bool | None, MASTER_CAPABLE] = None
    vm_capable: Annotated[bool | None, VM_CAPABLE] = None
    secondary_ip: SecondaryIp = None
    ndparams: Annotated[Params | None, Field(
        "node parameters; '-k' resets k to the value of the group or cluster", "! --node-parameters",
        "k=v,...", Form.KEY_VALUES
    ), RefersTo.CLUSTER] = None  # fmt: skip
    hv_state: Annotated[Params | None, RefersTo.CLUSTER] = None
    disk_state: Annotated[Params | None, RefersTo.CLUSTER] = None
    powered: Annotated[bool | None, Field(
        "whether the node is powered on", "! --node-powered", form=Form.YES_NO
    )] = None  # fmt: skip
    awaits_return: bool = False
    """With `offline`: only until the node answers again; automatic recovery sets this field."""
    end_misplaced: bool = False
    """Kill the guests on a returning node whose instances have moved away; automatic recovery sets this field."""
    expected_serial: ExpectedSerial = None

    summary_field: ClassVar[str | None] = "node_name"
    no_loss: ClassVar[str] = "changes an entry of the configuration"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/nodes/{node}/role", (FORCE, AUTO_PROMOTE), summary="Change a node's role",
             body_schema={"type": "string", "enum": list(ROLE_CHANGES)}),
        Rest("POST", "/2/nodes/{node}/modify", summary="Change a node's parameters"),
    )  # fmt: skip


def _ask_powercycle(ops: Sequence[Any]) -> str:
    return f"Restart node {ops[0].node_name} at once? Guests that run there are lost."


class OpNodePowercycle(OpCode, frozen=True, kw_only=True, tag="OP_NODE_POWERCYCLE"):
    """Restart a host at once without a shutdown; the master needs `force`."""

    node_name: Annotated[str, RefersTo.NODE]
    node_uuid: Annotated[str | None, RefersTo.NODE] = None
    force: Annotated[bool, Field("skip the confirmation prompt; also for the master", "-f")] = False

    summary_field: ClassVar[str | None] = "node_name"
    loss: ClassVar[Loss | None] = Loss(_ask_powercycle, ("force", "is_sure"))
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/nodes/{node}/powercycle", (FORCE,), summary="Restart a node's host at once"),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-node", "powercycle", (NODE,), confirming=("yes",), lines=lambda _op, said: [said],
        doc="""Restart a node at once without a shutdown. Guests that run there are lost.

        This works if the node's daemon answers, even if the node's disks do not respond.
        """,
    )  # fmt: skip


def _ask_fenced(ops: Sequence[Any]) -> str | None:
    if not ops[0].confirm:  # the job refuses it
        return None
    name = ops[0].node_name
    return (
        f"Is {name} certainly off? Its instances are started on other nodes; if {name} still writes their disks,"
        " two writers destroy the data. Confirm only what you have seen: its power is off, or its cables are out."
    )


class OpNodeFenced(OpCode, frozen=True, kw_only=True, tag="OP_NODE_FENCED"):
    """Confirm that a lost node is off, so that its instances are recovered on other nodes (D7)."""

    node_name: Annotated[str, RefersTo.NODE]
    node_uuid: Annotated[str | None, RefersTo.NODE] = None
    confirm: Annotated[bool, Field("confirm that the node is certainly off")] = False

    summary_field: ClassVar[str | None] = "node_name"
    loss: ClassVar[Loss | None] = Loss(_ask_fenced)
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/nodes/{node}/fenced", summary="Confirm that a lost node is off"),
    )
    cli: ClassVar[Command | None] = Command(
        "gnt-node", "fenced", (NODE,), confirming=("force",),
        lines=lambda _op, said: [said],
        doc="""Confirm that a lost node is off, so that automatic recovery continues without it.

        Use this command if no fencing method works: gnt-cluster ha-status shows the node as `stuck`. Also use it
        to fail over instances without protection from a node that recovery has fenced by its watchdog: they may
        still run there. Switch the node off first, or disconnect it from power. The protected instances of the
        node are then started on other nodes, and the others can be failed over. If the node is not off, both nodes
        write the same disks, and the data of the instances is lost.

        The command refuses a node that answers, and a node that has been silent for less than ten seconds. The
        job's number in gnt-cluster ha-status, and the audit log, name the person who confirmed.
        """,
    )  # fmt: skip


class OpNodeRename(OpCode, frozen=True, kw_only=True, tag="OP_NODE_RENAME"):
    """Rename a node (S93). Other objects refer to nodes by UUID, so only the node is locked."""

    node_name: Annotated[str, RefersTo.NODE]
    node_uuid: Annotated[str | None, RefersTo.NODE] = None
    new_name: Annotated[str, RefersTo.NEW_NODE]

    summary_field: ClassVar[str | None] = "node_name"
    no_loss: ClassVar[str] = "changes an entry of the configuration"
    cli: ClassVar[Command | None] = Command(
        "gnt-node", "rename", (NODE, NEW_NAME),
        doc="""Rename a node; its instances keep running.

        Change the name of the host itself separately, before or after this command.
        """,
    )  # fmt: skip
