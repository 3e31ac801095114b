"""Opcodes about networks: pools of addresses for interfaces of instances."""

from typing import Annotated, ClassVar

from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.opcodes.base import ExpectedSerial, OpCode
from ganeti.model.operation import DRY_RUN, NETWORK, NEW_NAME, Command, Rest

Addresses = Annotated[list[str] | None, Field(
    "reserve these addresses for other uses; a range is FIRST-LAST", metavar="ADDRESS,...",
    form=Form.WORDS
), RefersTo.NOTHING]  # fmt: skip


class OnNetwork(OpCode, frozen=True, kw_only=True):
    """Fields of every opcode about one network."""

    network_name: Annotated[str, RefersTo.NETWORK]

    summary_field: ClassVar[str | None] = "network_name"


class NetworkParams(OnNetwork, frozen=True, kw_only=True):
    """Parameters of a network; None keeps the present value."""

    gateway: Annotated[str | None, Field(
        "router; interfaces cannot use its address; 'none' removes it", metavar="ADDRESS"
    ), RefersTo.NOTHING] = None  # fmt: skip
    network6: Annotated[str | None, Field(
        "IPv6 subnet in which guests configure themselves; 'none' removes it", metavar="SUBNET"
    ), RefersTo.NOTHING] = None  # fmt: skip
    gateway6: Annotated[
        str | None,
        Field("IPv6 router; 'none' removes it", metavar="ADDRESS"),
        RefersTo.NOTHING,
    ] = None
    mac_prefix: Annotated[str | None, Field(
        "first three bytes of new MAC addresses; 'none' uses the cluster's", "-m", "PREFIX"
    ), RefersTo.NOTHING] = None  # fmt: skip
    add_reserved_ips: Addresses = None


class OpNetworkAdd(NetworkParams, frozen=True, kw_only=True, tag="OP_NETWORK_ADD"):
    """Create a network that is not connected to a group."""

    network_name: Annotated[str, RefersTo.NEW_NETWORK]
    network: Annotated[
        str,
        Field("addresses for interfaces, for example 192.0.2.0/24", metavar="SUBNET"),
        RefersTo.NOTHING,
    ]
    conflicts_check: Annotated[bool, Field(
        "do not reserve the addresses of nodes and of the cluster",
        "! --no-conflicts-check", form=Form.OFF
    )] = True  # fmt: skip
    tags: Annotated[
        list[str], Field("tags of the network", metavar="TAG,...", form=Form.WORDS), RefersTo.TAG
    ] = []
    null_is_default: ClassVar[tuple[str, ...]] = (*OpCode.null_is_default, "tags")
    no_loss: ClassVar[str] = "adds an entry to the configuration"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/networks", (DRY_RUN,), renamed={"name": "network_name"}),
    )
    cli: ClassVar[Command | None] = Command(
        "gnt-network", "add", (NETWORK,),
        doc="""Create a network; 'gnt-network connect' lets the instances of a group use it.

        The network reserves the first and last address of the subnet, the gateway, and the addresses of the nodes
        and the cluster. Interfaces never get reserved addresses.
        """,
    )  # fmt: skip


class OpNetworkRemove(OnNetwork, frozen=True, kw_only=True, tag="OP_NETWORK_REMOVE"):
    """Remove a network that is not connected to a group; `force` disconnects it first."""

    force: bool = False

    no_loss: ClassVar[str] = "removes a network that no instance uses"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("DELETE", "/2/networks/{network}", (DRY_RUN,), summary="Remove a network"),
    )
    cli: ClassVar[Command | None] = Command(
        "gnt-network", "remove", (NETWORK,), confirming=("force",),
        doc="""Remove a network that is not connected to a group; --force disconnects it first.

        A network cannot be removed while an instance has an interface in it.
        """,
    )  # fmt: skip


class OpNetworkSetParams(NetworkParams, frozen=True, kw_only=True, tag="OP_NETWORK_SET_PARAMS"):
    """Change a network; the subnet cannot change."""

    remove_reserved_ips: Annotated[list[str] | None, Field(
        "release these addresses for interfaces; a range is FIRST-LAST", metavar="ADDRESS,...",
        form=Form.WORDS
    ), RefersTo.NOTHING] = None  # fmt: skip
    expected_serial: ExpectedSerial = None

    no_loss: ClassVar[str] = "changes an entry of the configuration"
    rest: ClassVar[tuple[Rest, ...]] = (Rest("PUT", "/2/networks/{network}/modify"),)
    cli: ClassVar[Command | None] = Command(
        "gnt-network", "modify", (NETWORK,), needs_option=True,
        doc="""Change a network's gateway, IPv6 subnet, MAC prefix and reserved addresses.

        The subnet cannot change; create another network instead.
        """,
    )  # fmt: skip


class OpNetworkRename(OnNetwork, frozen=True, kw_only=True, tag="OP_NETWORK_RENAME"):
    """Rename a network."""

    new_name: Annotated[str, RefersTo.NEW_NETWORK]

    no_loss: ClassVar[str] = "changes an entry of the configuration"
    rest: ClassVar[tuple[Rest, ...]] = (Rest("PUT", "/2/networks/{network}/rename", (DRY_RUN,)),)
    cli: ClassVar[Command | None] = Command("gnt-network", "rename", (NETWORK, NEW_NAME))


class OpNetworkConnect(OnNetwork, frozen=True, kw_only=True, tag="OP_NETWORK_CONNECT"):
    """Connect a network to a group: its instances can use it by interfaces of this mode, link and VLAN."""

    group_name: Annotated[str, RefersTo.GROUP]
    network_mode: Annotated[str, RefersTo.NOTHING]
    network_link: Annotated[str, RefersTo.LINK]
    network_vlan: Annotated[str, RefersTo.LINK] = ""
    conflicts_check: Annotated[bool, Field(
        "ignore instances that use addresses of the network without being in it",
        "! --no-conflicts-check", form=Form.OFF
    )] = True  # fmt: skip

    no_loss: ClassVar[str] = "changes an entry of the configuration"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/networks/{network}/connect", (DRY_RUN,), summary="Connect a network to a node group"),
    )  # fmt: skip


class OpNetworkDisconnect(OnNetwork, frozen=True, kw_only=True, tag="OP_NETWORK_DISCONNECT"):
    """Disconnect a network from a group where no instance uses it."""

    group_name: Annotated[str, RefersTo.GROUP]

    no_loss: ClassVar[str] = (
        "removes the mode and link of a group where no instance uses the network"
    )
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/networks/{network}/disconnect", (DRY_RUN,), summary="Disconnect a network from a node group"),
    )  # fmt: skip
