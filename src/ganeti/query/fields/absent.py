"""Fields of kinds of things that this version does not have yet: their lists are empty."""

from typing import Any

from ganeti.query.fields.field import Field, ValueKind
from ganeti.query.fields.field import field_table as table

_TEXT, _OTHER, _NUMBER = ValueKind.TEXT, ValueKind.OTHER, ValueKind.NUMBER


def _nothing(_row: Any) -> None:
    return None


def _declared(*fields: tuple[str, str, ValueKind, str]) -> dict[str, Field[Any]]:
    return table([Field(name, title, kind, doc, _nothing) for name, title, kind, doc in fields])


NETWORK_FIELDS = _declared(
    ("name", "Network", _TEXT, "Name of the network"),
    ("uuid", "UUID", _TEXT, "UUID of the network"),
    ("network", "Subnet", _TEXT, "IPv4 subnet"),
    ("network6", "Subnet6", _OTHER, "IPv6 subnet"),
    ("gateway", "Gateway", _OTHER, "IPv4 gateway"),
    ("gateway6", "Gateway6", _OTHER, "IPv6 gateway"),
    ("mac_prefix", "MacPrefix", _OTHER, "First three bytes of its MAC addresses"),
    ("free_count", "FreeCount", _NUMBER, "How many addresses are free"),
    ("reserved_count", "ReservedCount", _NUMBER, "How many addresses are taken"),
    ("map", "Map", _TEXT, "One character for each address: free or taken"),
    ("external_reservations", "ExternalReservations", _TEXT, "Addresses that others use"),
    ("group_list", "GroupList", _OTHER, "Connected groups, with mode and link"),
    ("group_cnt", "NodeGroups", _NUMBER, "How many groups are connected"),
    ("inst_list", "InstanceList", _OTHER, "Instances with an interface in the network"),
    ("inst_cnt", "Instances", _NUMBER, "How many instances have an interface in the network"),
    ("serial_no", "SerialNo", _NUMBER, "How often the network was changed"),
    ("ctime", "CTime", ValueKind.TIMESTAMP, "When the network was made"),
    ("mtime", "MTime", ValueKind.TIMESTAMP, "When the network was changed last"),
    ("tags", "Tags", _OTHER, "Tags of the network"),
)

EXPORT_FIELDS = _declared(
    ("node", "Node", _TEXT, "Node that holds the export"),
    ("export", "Export", _TEXT, "Name of the export"),
)

FILTER_FIELDS = _declared(
    ("uuid", "UUID", _OTHER, "UUID of the filter"),
    ("watermark", "Watermark", _OTHER, "Highest job id when the filter was added"),
    ("priority", "Priority", _OTHER, "Order among filters"),
    ("predicates", "Predicates", _OTHER, "Which jobs the filter is about"),
    ("action", "Action", _OTHER, "What is done with those jobs"),
    ("reason_trail", "ReasonTrail", _OTHER, "Why the filter was added"),
)
