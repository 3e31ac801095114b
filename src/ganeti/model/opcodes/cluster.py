"""Opcodes about the cluster as a whole."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from ganeti.model.cluster_params import CLUSTER_PARAMS, UNKNOWN_PARAMS
from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.opcodes.base import OpCode
from ganeti.model.operation import Argument, Command, Loss, Rest
from ganeti.model.uid_ranges import UidRange


def _uids(text: str) -> Field:
    return Field(text, metavar="UID,LOW-HIGH,...", form=Form.UIDS)


class OpClusterPostInit(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_POST_INIT"):
    """The first job of a cluster: bring every node's files up to date."""

    no_loss: ClassVar[str] = "writes files that belong to the cluster"


class OpClusterDestroy(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_DESTROY"):
    """Refuse unless only the master is left; the command then removes its data."""

    loss: ClassVar[Loss | None] = Loss(
        lambda _ops: "Destroying a cluster cannot be taken back.", ("is_sure",), asks=False
    )


class OpClusterQuery(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_QUERY"):
    """What `gnt-cluster info` shows, as a job."""

    host_changing: ClassVar[bool] = False


class OpClusterVerify(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_VERIFY"):
    """Check everything: submits one job for the configuration and one for each node group."""

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


class OpClusterVerifyConfig(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_VERIFY_CONFIG"):
    """Check the configuration against itself; the result is True if it is sound."""

    debug_simulate_errors: bool = False
    error_codes: bool = False
    ignore_errors: Annotated[list[str], RefersTo.NOTHING] = []
    verbose: bool = False

    host_changing: ClassVar[bool] = False


class OpClusterVerifyGroup(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_VERIFY_GROUP"):
    """Check the nodes and instances of one group; the result is True if all is well."""

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
                (name, Annotated[param.given | None, param.field, RefersTo.CLUSTER], None)
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
            # Clients of Ganeti name all that they know, without values; what has one is refused.
            *(
                (one.request, Annotated[Any, RefersTo.CLUSTER], None)
                for one in UNKNOWN_PARAMS
                if one.request
            ),
        ],
        bases=(OpCode,),
        namespace={
            "__doc__": """Change the cluster's parameters; None leaves a thing as it is.

    Of dictionaries only the given names change; None as a value takes the default again.
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
    """Give every node the ssconf files and the files that all nodes must have (S65-S69)."""

    renewed: Annotated[list[str], RefersTo.PATH] = []
    """Paths of those that were just renewed on the master: what it has of them counts from now on."""

    no_loss: ClassVar[str] = "writes files that belong to the cluster"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/redistribute-config", summary="Give all nodes the cluster's files again", name="redist_config"),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-cluster", "redist-conf",
        doc="""Give all nodes the cluster's facts (ssconf) and the files that they must have.

        Besides files that the cluster itself needs, these are the files named in
        /etc/ganeti/distributed-files on the master, one a line, and that list. Each node accepts files in
        /etc/ganeti/shared, and those that its /etc/ganeti/allowed-uploads names.
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
    """Take the cluster's address from the master."""

    no_loss: ClassVar[str] = (
        "removes an address; the command asks because clients lose their connections"
    )
    cli: ClassVar[Command | None] = Command(
        "gnt-cluster", "deactivate-master-ip", confirming=("yes",),
        question=lambda _op: "Take the cluster's address away?",
        doc="Take the cluster's address from the master; clients that use it lose their connections.",
    )  # fmt: skip


class OpClusterRenewCrypto(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_RENEW_CRYPTO"):
    """Give all nodes new certificates, candidates a new key of confd; the result names who has none yet."""

    node_certificates: Annotated[
        bool, Field("create a new key and certificate for each node", "! --new-node-certificates")
    ] = False
    cluster_certificate: Annotated[
        bool,
        Field(
            "create a new authority and certificates signed by it", "! --new-cluster-certificate"
        ),
    ] = False
    confd_key: Annotated[
        bool, Field("create a new HMAC key for confd", "! --new-confd-hmac-key")
    ] = False
    # What Ganeti's clients send: there are no ssh keys here.
    renew_ssh_keys: bool = False
    ssh_key_type: Annotated[str | None, RefersTo.NOTHING] = None
    ssh_key_bits: int | None = None
    verbose: bool = False
    debug: bool = False

    no_loss: ClassVar[str] = "old keys are valid until the new ones are; the command asks"


class OpClusterRename(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_RENAME"):
    """Give the cluster another name, and the address of that name."""

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
        question=lambda op: f"Call the cluster {op.name}?",
        doc="""Give the cluster another name, and the address of that name.

        Nodes, instances and jobs are not touched. Whoever reaches the cluster by its address loses the
        connection if that changes.
        """,
    )  # fmt: skip
