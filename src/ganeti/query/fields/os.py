"""Fields of OS definitions on the nodes."""

from typing import Any

from ganeti.config.os_summary import summarize
from ganeti.query.context import QueryContext
from ganeti.query.fields.field import Field, Missing, ValueKind
from ganeti.query.fields.field import field_table as table

_TEXT, _BOOL, _OTHER = ValueKind.TEXT, ValueKind.BOOL, ValueKind.OTHER

_DECLARED = (
    ("name", "Name", _TEXT, "Name of the OS definition"),
    ("valid", "Valid", _BOOL, "Whether it is usable, and the same, on all nodes that answer"),
    ("hidden", "Hidden", _BOOL, "Whether lists leave it out"),
    ("blacklisted", "Blacklisted", _BOOL, "Whether new instances cannot have it"),
    ("variants", "Variants", _OTHER, "Variants that all nodes have"),
    ("api_versions", "ApiVersions", _OTHER, "Versions of the interface that it speaks"),
    ("parameters", "Parameters", _OTHER, "Parameters that it takes, with what they mean"),
    ("node_status", "NodeStatus", _OTHER, "What each node has of it"),
    ("os_hvp", "OsHypervisorParams", _OTHER, "Hypervisor parameters of its instances"),
    ("osparams", "OsParameters", _OTHER, "Parameters that the cluster sets for it"),
    ("os_version", "OsVersion", _OTHER, "Its own version, if it says one"),
    ("trusted", "Trusted", _BOOL, "Whether its scripts may run on nodes"),
)


def _field(name: str, title: str, kind: ValueKind, doc: str) -> Field[dict[str, Any]]:
    return Field(name, title, kind, doc, lambda row: row[name])


OS_FIELDS = table(_field(*one) for one in _DECLARED)


def os_rows(context: QueryContext) -> list[dict[str, Any]]:
    """Return a row for each OS of any node, by name."""
    snapshot = context.snapshot
    answers = {
        snapshot.nodes[uuid].name: found
        for uuid, found in context.live.systems.items()
        if not isinstance(found, Missing) and uuid in snapshot.nodes
    }
    return [one.values(snapshot.cluster, set(answers)) for one in summarize(answers)]
