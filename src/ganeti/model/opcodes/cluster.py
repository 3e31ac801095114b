"""Opcodes about the cluster as a whole."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from ganeti.model.cluster_params import CLUSTER_PARAMS, UNKNOWN_PARAMS
from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.opcodes.base import ExpectedSerial, OpCode
from ganeti.model.operation import Argument, Command, Loss, Parameter, Rest, Right, Value
from ganeti.model.uid_ranges import UidRange


def _uids(text: str) -> Field:
    return Field(text, metavar="UID,LOW-HIGH,...", form=Form.UIDS)


class OpClusterPostInit(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_POST_INIT"):
    """Run the first job of a cluster: update the files of all nodes."""

    no_loss: ClassVar[str] = "writes files that belong to the cluster"


class OpClusterDestroy(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_DESTROY"):
    """Check that the cluster has only the master; the command then removes the master's data."""

    loss: ClassVar[Loss | None] = Loss(
        lambda _ops: "Destroying a cluster cannot be taken back.", ("is_sure",), asks=False
    )


class OpClusterQuery(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_QUERY"):
    """Return the facts of `gnt-cluster info`, as a job."""

    host_changing: ClassVar[bool] = False


class OpClusterVerify(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_VERIFY"):
    """Verify the cluster: submit one job for the configuration and one for each node group."""

    debug_simulate_errors: Annotated[
        bool, Field("report a simulated error, to test readers of the output")
    ] = False
    error_codes: Annotated[bool, Field("begin each error with its code")] = False
    skip_checks: Annotated[list[str], RefersTo.NOTHING] = []
    ignore_errors: Annotated[list[str], Field(
        "show this error as a warning; may be repeated", "-I", "CODE", form=Form.REPEATED
    ), RefersTo.NOTHING] = []  # fmt: skip
    verbose: bool = False
    group_name: Annotated[
        str | None, Field("check one group only", "! -g --node-group", "GROUP"), RefersTo.GROUP
    ] = None
    verify_clutter: Annotated[
        bool, Field("ignored; kept for compatibility with Ganeti 3", "! --verify-ssh-clutter")
    ] = False

    host_changing: ClassVar[bool] = False
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/verify", right=Right.OPERATE, summary="Verify the cluster"),
    )


class OpClusterDoctor(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_DOCTOR"):
    """Examine the hosts of nodes: findings about host, network, time, storage and virtualisation."""

    nodes: Annotated[list[str], RefersTo.NODE] = []
    """Names of nodes; default: all online nodes."""

    host_changing: ClassVar[bool] = False
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("GET", "/2/doctor", (
            Parameter("node", Value.TEXTS, "name of a node; may be repeated", "nodes"),
        ), right=Right.READ, summary="Examine the hosts of nodes", has_body=False),
    )  # fmt: skip


class OpClusterVerifyConfig(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_VERIFY_CONFIG"):
    """Verify the configuration; the result is True if it is consistent."""

    debug_simulate_errors: bool = False
    error_codes: bool = False
    ignore_errors: Annotated[list[str], RefersTo.NOTHING] = []
    verbose: bool = False

    host_changing: ClassVar[bool] = False


class OpClusterVerifyGroup(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_VERIFY_GROUP"):
    """Verify the nodes and instances of one group; the result is True without errors."""

    group_name: Annotated[str, RefersTo.GROUP]
    debug_simulate_errors: bool = False
    error_codes: bool = False
    skip_checks: Annotated[list[str], RefersTo.NOTHING] = []
    ignore_errors: Annotated[list[str], RefersTo.NOTHING] = []
    verbose: bool = False
    verify_clutter: bool = False

    summary_field: ClassVar[str | None] = "group_name"
    host_changing: ClassVar[bool] = False


if TYPE_CHECKING:

    class OpClusterSetParams(OpCode, frozen=True):
        """The fields of the struct below."""

        def __init__(self, **fields: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

else:
    OpClusterSetParams = msgspec.defstruct(
        "OpClusterSetParams",
        [
            *(
                (name, Annotated[param.given | None, param.field, param.refers_to], None)
                for name, param in CLUSTER_PARAMS.items()
            ),
            (
                "add_uids",
                Annotated[
                    list[UidRange] | None,
                    _uids("user ids to add to the pool"),
                    RefersTo.CLUSTER,
                ],
                None,
            ),
            (
                "remove_uids",
                Annotated[
                    list[UidRange] | None,
                    _uids("user ids to remove from the pool"),
                    RefersTo.CLUSTER,
                ],
                None,
            ),
            ("force", bool, False),
            ("expected_serial", ExpectedSerial, None),
            # Clients of upstream Ganeti send all fields that they know, with null; other values are refused.
            *(
                (one.request, Annotated[Any, RefersTo.CLUSTER], None)
                for one in UNKNOWN_PARAMS
                if one.request
            ),
        ],
        bases=(OpCode,),
        namespace={
            "__doc__": """Change the cluster's parameters; None keeps the present value.

            A dictionary changes only the keys that it contains; the value None restores the default.
    """,
            "no_loss": "changes parameters, and keeps the disks",
            "rest": (
                Rest("PUT", "/2/modify", name="cluster_modify", forbidden=("compression_tools",)),
            ),
        },
        module=__name__,
        frozen=True,
        kw_only=True,
        tag="OP_CLUSTER_SET_PARAMS",
    )


class OpClusterRedistConf(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_REDIST_CONF"):
    """Copy the ssconf files and the files that all nodes need to every node (S65-S69)."""

    renewed: Annotated[list[str], RefersTo.PATH] = []
    """Paths of files that were just renewed on the master; the master's content is now the valid one."""

    no_loss: ClassVar[str] = "writes files that belong to the cluster"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/redistribute-config", summary="Copy the cluster's files to all nodes again", name="redist_config"),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-cluster", "redist-conf",
        doc="""Copy the cluster's facts (ssconf) and the files that all nodes need to every node.

        The files are those that the cluster itself needs, /etc/ganeti/distributed-files on the master, and the
        files that it lists, one a line. Each node accepts files in /etc/ganeti/shared and the files
        that its /etc/ganeti/allowed-uploads lists.
        """,
    )  # fmt: skip


class OpClusterActivateMasterIp(
    OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_ACTIVATE_MASTER_IP"
):
    """Configure the cluster's address on the master."""

    no_loss: ClassVar[str] = "configures an address"
    cli: ClassVar[Command | None] = Command(
        "gnt-cluster", "activate-master-ip",
        doc="Configure the cluster's address on the master, unless another host answers at it.",
    )  # fmt: skip


class OpClusterDeactivateMasterIp(
    OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_DEACTIVATE_MASTER_IP"
):
    """Remove the cluster's address from the master."""

    no_loss: ClassVar[str] = (
        "removes an address; the command asks because clients lose their connections"
    )
    cli: ClassVar[Command | None] = Command(
        "gnt-cluster", "deactivate-master-ip", confirming=("yes",),
        question=lambda _op: "Remove the cluster's address?",
        doc="Remove the cluster's address from the master; clients that use it lose their connections.",
    )  # fmt: skip


class OpClusterRenewCrypto(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_RENEW_CRYPTO"):
    """Renew the certificates of nodes and the key of confd; the result lists the nodes without new ones."""

    node_certificates: Annotated[
        bool, Field("create a new key and certificate for each node", "! --new-node-certificates")
    ] = False
    cluster_certificate: Annotated[
        bool,
        Field(
            "create a new authority, and new certificates that it signs",
            "! --new-cluster-certificate",
        ),
    ] = False
    confd_key: Annotated[
        bool, Field("create a new HMAC key for confd", "! --new-confd-hmac-key")
    ] = False
    # Clients of upstream Ganeti send these; this implementation has no ssh keys.
    renew_ssh_keys: bool = False
    ssh_key_type: Annotated[str | None, RefersTo.NOTHING] = None
    ssh_key_bits: int | None = None
    verbose: bool = False
    debug: bool = False

    no_loss: ClassVar[str] = (
        "old keys remain valid until all nodes have the new ones; the command asks"
    )


class OpClusterRename(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_RENAME"):
    """Rename the cluster, and change its address to that of the new name."""

    name: Annotated[str, RefersTo.CLUSTER]
    ip: Annotated[str | None, Field(
        "address of the cluster; default: the address of its name", "! --master-ip", "ADDRESS"
    ), RefersTo.NOTHING] = None  # fmt: skip

    summary_field: ClassVar[str | None] = "name"
    no_loss: ClassVar[str] = (
        "changes a name and an address; the command asks because clients lose their connections"
    )
    cli: ClassVar[Command | None] = Command(
        "gnt-cluster", "rename", (Argument("name", "the new name of the cluster"),), confirming=("force",),
        question=lambda op: f"Rename the cluster to {op.name}?",
        doc="""Rename the cluster, and change its address to that of the new name.

        Nodes, instances and jobs are not affected. Clients that use the cluster's address lose their
        connections if the address changes.
        """,
    )  # fmt: skip
