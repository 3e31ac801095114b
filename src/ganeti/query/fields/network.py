"""Fields of networks."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ganeti.model.address_pool import AddressPool, ranges_as_text
from ganeti.model.objects import Network
from ganeti.query.context import QueryContext
from ganeti.query.fields.field import UNAVAILABLE, Field, ValueKind
from ganeti.query.fields.field import field_table as table
from ganeti.query.fields.stored import stored_fields

_TEXT, _OTHER, _NUMBER = ValueKind.TEXT, ValueKind.OTHER, ValueKind.NUMBER


@dataclass
class NetworkRow:
    """One network in its context; expensive values are computed once."""

    context: QueryContext
    network: Network

    @cached_property
    def pool(self) -> AddressPool:
        return AddressPool(self.network)

    @cached_property
    def reserved(self) -> list[int]:
        """The numbers of addresses that no interface can have."""
        return self.pool.reserved()

    @property
    def taken(self) -> list[str]:
        """The addresses of interfaces."""
        users = self.context.network_users.get(self.network.uuid, ())
        return [nic.ip for _instance, nic in users if nic.ip]

    @property
    def reserved_count(self) -> int:
        return len(self.reserved) + len(self.taken)

    @property
    def instances(self) -> list[str]:
        users = self.context.network_users.get(self.network.uuid, ())
        return sorted({instance.name for instance, _nic in users})

    @property
    def groups(self) -> list[list[str]]:
        """The name, mode, link and VLAN of each group."""
        found = [
            [group.name, params.get("mode", ""), params.get("link", ""), params.get("vlan", "")]
            for group in self.context.snapshot.groups.values()
            if (params := group.networks.get(self.network.uuid)) is not None
        ]
        return sorted(found)


def _known(value: str | None) -> Any:
    return UNAVAILABLE if value is None else value


_FIELDS: tuple[Field[NetworkRow], ...] = (
    Field("name", "Network", _TEXT, "Name of the network", lambda r: r.network.name),
    Field("network", "Subnet", _TEXT, "Subnet of its pool", lambda r: r.network.network),
    Field("gateway", "Gateway", _OTHER, "Router", lambda r: _known(r.network.gateway)),
    Field("network6", "IPv6Subnet", _OTHER, "IPv6 subnet", lambda r: _known(r.network.network6)),
    Field("gateway6", "IPv6Gateway", _OTHER, "IPv6 router", lambda r: _known(r.network.gateway6)),
    Field(
        "mac_prefix",
        "MacPrefix",
        _OTHER,
        "First three bytes of new MAC addresses",
        lambda r: _known(r.network.mac_prefix),
    ),
    Field(
        "free_count",
        "FreeCount",
        _NUMBER,
        "How many addresses an interface could get",
        lambda r: r.pool.size - r.reserved_count,
    ),
    Field(
        "reserved_count",
        "ReservedCount",
        _NUMBER,
        "How many addresses are reserved or taken",
        lambda r: r.reserved_count,
    ),
    Field(
        "map",
        "Map",
        _TEXT,
        "A character for each address: X reserved or taken, . free",
        lambda r: r.pool.shown(r.taken),
    ),
    Field(
        "external_reservations",
        "ExternalReservations",
        _TEXT,
        "Addresses that no interface can have",
        lambda r: ranges_as_text(r.pool, r.reserved),
    ),
    Field(
        "group_list",
        "GroupList",
        _OTHER,
        "Connected groups: name, mode, link and VLAN of each",
        lambda r: r.groups,
    ),
    Field(
        "group_cnt", "NodeGroups", _NUMBER, "How many groups are connected", lambda r: len(r.groups)
    ),
    Field(
        "inst_list",
        "InstanceList",
        _OTHER,
        "Instances with an interface in the network",
        lambda r: r.instances,
    ),
    Field(
        "inst_cnt",
        "Instances",
        _NUMBER,
        "How many instances have an interface in the network",
        lambda r: len(r.instances),
    ),
)

NETWORK_FIELDS = table(_FIELDS, stored_fields("network", lambda row: row.network))
