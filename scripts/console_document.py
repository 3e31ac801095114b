"""Write the document from which the console's types are generated: console_document.py FILE.

It is the OpenAPI document of the REST interface, with a schema of the fields of each kind of object in queries. A
field that the console uses and that is renamed or removed here fails the console's build.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ganeti.query.fields.cluster import CLUSTER_FIELDS
from ganeti.query.fields.export import EXPORT_FIELDS
from ganeti.query.fields.field import Field, ValueKind
from ganeti.query.fields.group import GROUP_FIELDS
from ganeti.query.fields.instance import INSTANCE_FIELDS
from ganeti.query.fields.job import JOB_FIELDS
from ganeti.query.fields.job_filter import FILTER_FIELDS
from ganeti.query.fields.lock import LOCK_FIELDS
from ganeti.query.fields.network import NETWORK_FIELDS
from ganeti.query.fields.node import NODE_FIELDS
from ganeti.query.fields.os import OS_FIELDS
from ganeti.web.openapi import document
from ganeti.web.resources.every import OPERATIONS

_TYPES: dict[ValueKind, dict[str, Any]] = {
    ValueKind.TEXT: {"type": "string"},
    ValueKind.BOOL: {"type": "boolean"},
    ValueKind.NUMBER: {"type": "number"},
    ValueKind.FLOAT: {"type": "number"},
    ValueKind.UNIT: {"type": "number", "description": "MiB"},
    ValueKind.TIMESTAMP: {"type": "number", "description": "seconds since the epoch"},
    ValueKind.OTHER: {},
    ValueKind.UNKNOWN: {},
}
_TABLES: dict[str, Mapping[str, Field[Any]]] = {
    "cluster": CLUSTER_FIELDS,
    "export": EXPORT_FIELDS,
    "filter": FILTER_FIELDS,
    "group": GROUP_FIELDS,
    "instance": INSTANCE_FIELDS,
    "job": JOB_FIELDS,
    "lock": LOCK_FIELDS,
    "network": NETWORK_FIELDS,
    "node": NODE_FIELDS,
    "os": OS_FIELDS,
}


def _schema(table: Mapping[str, Field[Any]]) -> dict[str, Any]:
    properties = {name: _TYPES[field.kind] for name, field in table.items()}
    return {"type": "object", "required": sorted(table), "properties": properties}


def _named_by_keys(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of all kinds as one schema, so that the generated type has them by kind."""
    return {
        "type": "object",
        "required": sorted(schema),
        "properties": schema,
    }


def main(path: Path) -> None:
    """Write the document, unless the file has it already."""
    found = document(OPERATIONS)
    kinds = {kind: _schema(table) for kind, table in _TABLES.items()}
    found["components"]["schemas"]["QueryFields"] = _named_by_keys(kinds)
    text = json.dumps(found, indent=1, sort_keys=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
