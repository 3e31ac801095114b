"""JSON schemas of the objects that lists and single reads return, by the fields of `ganeti.clients.fields`.

A test compares the types with those of the queries (`ganeti.query.fields`), which this package does not import.
"""

from collections.abc import Mapping
from typing import Any

from ganeti.clients import fields

_TEXT, _FLAG, _NUMBER, _OBJECT = (
    {"type": kind} for kind in ("string", "boolean", "integer", "object")
)
_TEXTS = {"type": "array", "items": _TEXT}
_OBJECTS = {"type": "array", "items": _OBJECT}
_TIME = {"type": "number", "description": "seconds since the epoch"}
_MIB = {"type": "integer", "description": "MiB"}
_SIZES = {"type": "array", "items": _MIB}
_ANY: dict[str, Any] = {}


def _by_name(*rows: tuple[dict[str, Any], str]) -> Mapping[str, dict[str, Any]]:
    return {name: schema for schema, names in rows for name in names.split()}


_ALWAYS = _by_name(
    (_TEXT, "name status uuid"),
    (_TIME, "ctime mtime"),
    (_NUMBER, "id serial_no"),
    (_TEXTS, "opstatus summary tags"),
    (_OBJECTS, "ops"),
)
"""Fields that every object has; the others are null without a value, for example if a node is silent."""
_PERHAPS = _by_name(
    (_TEXT, ("admin_state alloc_policy authorities calendar description disk_template drill drill_expect encrypt error external_reservations"
            " firmware gateway gateway6 group.uuid mac_prefix map network network6 node os owner pip pnode position role sip state"
            " target time_zone url window")),
    (_FLAG, "active all_instances allow_local cloud_init drained master_candidate master_capable offline oper_state paused verify_tls vm_capable"),
    (_NUMBER, ("alert_after at_once bandwidth cnodes cnos csockets ctotal failing failures free_count gaps instance_count"
              " network_port nic_count node_cnt old oper_vcpus per_node pinst_cnt priority reserved_count running"
              " sinst_cnt spfree sptotal watermark")),
    (_MIB, "dfree disk_size disk_usage dtotal mfree mnode mtotal oper_ram size stored"),
    (_OBJECT, ("beparams custom_beparams custom_diskparams custom_hvparams custom_ipolicy custom_ndparams diskparams"
              " hvparams ipolicy keep_rules ndparams")),
    (_TEXTS, ("disk.uuids groups inst_list instance_tags instances kinds names nic.macs nic.uuids node_list object_tags pinst_list sinst_list"
             " snodes")),
    (_SIZES, "disk.sizes"),
    (_TIME, "failing_since last_success next"),
)  # fmt: skip
_COMPONENTS = {
    "instance": "Instance",
    "node": "Node",
    "group": "Group",
    "network": "Network",
    "image": "Image",
    "job": "Job",
    "filter": "JobFilter",
    "schedule": "BackupSchedule",
    "webhook": "Webhook",
    "backup-key": "BackupKey",
}
"""Kind of object -> name of its schema in the document."""
_REFERENCE = "Reference"
_REF = "#/components/schemas/{}"


def components() -> dict[str, dict[str, Any]]:
    """Return the schema of each kind of object, and that of an entry in a list of names."""
    found = {name: _object(fields.BY_KIND[kind]) for kind, name in _COMPONENTS.items()}
    more = {name: schema_of(name) for name in fields.JOB if name not in fields.JOB_BULK}
    found["Job"]["properties"] |= more  # only a single job has them
    found[_REFERENCE] = {
        "type": "object",
        "description": "an object in a list of names; jobs and filters have no name",
        "properties": {"uri": _TEXT, "id": {"type": ["string", "integer"]}, "name": _TEXT, "uuid": _TEXT},
        "required": ["uri"],
    }  # fmt: skip
    return found


def result(kind: str, form: str) -> dict[str, Any]:
    """Return the schema of an answer with one object, or with a list of them."""
    one = {"$ref": _REF.format(_COMPONENTS[kind])}
    if form == "object":
        return one
    names = {"$ref": _REF.format(_REFERENCE)}
    lists = [{"type": "array", "items": items} for items in (one, names)]
    return {"anyOf": lists, "description": "whole objects with bulk=1, otherwise their names"}


def schema_of(name: str) -> dict[str, Any]:
    """Return the schema of one field."""
    if name in _ALWAYS:
        return _ALWAYS[name]
    found = _PERHAPS.get(name, _ANY)
    return {**found, "type": [found["type"], "null"]} if found else _ANY


def _object(names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: schema_of(name) for name in names},
        "required": list(names),
    }
