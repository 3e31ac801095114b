"""Nodes."""

from typing import Any

from ganeti.clients import fields
from ganeti.web.lists import Listed
from ganeti.web.operations import (
    BULK,
    DRY_RUN,
    FORCE,
    LOCK,
    PAGES,
    Argument,
    Call,
    JobOf,
    Kind,
    Operation,
    flag,
    item,
    item_list,
    job,
    read,
    text,
)
from ganeti.web.refusals import bad_request
from ganeti.web.resources.tags import tag_operations
from ganeti.web.rights import Right

_ROLES = {
    "M": "master",
    "C": "master-candidate",
    "R": "regular",
    "D": "drained",
    "O": "offline",
}
_WISHES: dict[str, dict[str, bool]] = {
    "regular": {"master_candidate": False, "offline": False, "drained": False},
    "master-candidate": {"master_candidate": True},
    "drained": {"drained": True},
    "offline": {"offline": True},
}
"""What a role that is asked for changes."""


def _with_alias(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "secondary_ip": node["sip"]}


NODES = Listed("QueryNodes", fields.NODE, "/2/nodes", is_live=True)
ONE_NODE = Listed("QueryNodes", fields.NODE, "/2/nodes", change=_with_alias, is_live=True)


async def _role(call: Call) -> str:
    rows = await call.services.master.ask("QueryNodes", [call.items[0]], ["role"], False)
    return _ROLES[rows[0][0]]


def _wished_role(call: Call) -> dict[str, Any]:
    if not isinstance(call.body, str):
        raise bad_request('Body contents: give a role as a JSON string, as "drained"')
    if call.body not in _WISHES:
        raise bad_request(f"Can't set {call.body!r:.40} role; known: {', '.join(_WISHES)}")
    return dict(_WISHES[call.body])


def _migration(call: Call) -> dict[str, Any]:
    """The body; old clients say it in the query."""
    given = [name for name in ("live", "mode") if name in call.arguments]
    if not given:
        return dict(call.object_body())
    if len(given) > 1:
        raise bad_request("Only one of 'live' and 'mode' should be passed")
    if given == ["live"]:
        return {"mode": "live" if call.arguments.flag("live", default=True) else "non-live"}
    return {"mode": call.arguments.text("mode")}


def _fields_wanted(call: Call) -> list[str]:
    return call.arguments.needed("output_fields").split(",")


def _storage_changes(call: Call) -> dict[str, Any]:
    if "allocatable" not in call.arguments:
        return {}
    return {"allocatable": call.arguments.flag("allocatable", default=True)}


STORAGE_TYPE = Argument("storage_type", Kind.TEXT, "as file or lvm-vg")
STORAGE_NAME = Argument("name", Kind.TEXT, "of the storage unit")
AUTO_PROMOTE = Argument(
    "auto-promote", Kind.FLAG, "let another node become a master candidate instead"
)
_NODE = "/2/nodes/{node}"
_THIS = {"node_name": item()}
_UNIT = {
    **_THIS,
    "storage_type": text("storage_type"),
    "name": lambda call: call.arguments.needed("name"),
}

OPERATIONS: tuple[Operation, ...] = (
    read("/2/nodes", "nodes", "All nodes", NODES.collection(), BULK, LOCK, *PAGES, result="list"),
    read(_NODE, "nodes_name", "One node", ONE_NODE.one(), LOCK),
    read(f"{_NODE}/role", "nodes_name_role", "What a node is for", _role, LOCK, result="value"),
    Operation(
        "PUT", f"{_NODE}/role", "nodes_name_role", "Give a node another role", Right.WRITE,
        JobOf(
            "OP_NODE_SET_PARAMS",
            {**_THIS, "force": flag("force"), "auto_promote": flag("auto-promote")},
            make_body=_wished_role,
        ),
        (FORCE, AUTO_PROMOTE), {"type": "string", "enum": list(_WISHES)}, "job",
        permission="node_set_params",
    ),
    job("POST", f"{_NODE}/powercycle", "nodes_name_powercycle", "Restart a node's host at once",
        JobOf("OP_NODE_POWERCYCLE", {**_THIS, "force": flag("force")}), FORCE),
    job("POST", f"{_NODE}/evacuate", "nodes_name_evacuate", "Move instances away from a node",
        JobOf("OP_NODE_EVACUATE", {**_THIS, "dry_run": flag("dry-run")}), DRY_RUN),
    job("POST", f"{_NODE}/migrate", "nodes_name_migrate", "Migrate all primary instances of a node",
        JobOf("OP_NODE_MIGRATE", {**_THIS, "dry_run": flag("dry-run")}, make_body=_migration),
        Argument("live", Kind.FLAG, "the same as mode=live"),
        Argument("mode", Kind.TEXT, "live or non-live"), DRY_RUN, right=Right.OPERATE),
    job("POST", f"{_NODE}/modify", "nodes_name_modify", "Change a node's parameters",
        JobOf("OP_NODE_SET_PARAMS", _THIS)),
    job("GET", f"{_NODE}/storage", "nodes_name_storage", "List a node's storage units",
        JobOf("OP_NODE_QUERY_STORAGE",
              {"nodes": item_list(), "storage_type": text("storage_type"),
               "output_fields": _fields_wanted}, has_body=False),
        STORAGE_TYPE, Argument("output_fields", Kind.TEXT, "names of fields, with commas")),
    job("PUT", f"{_NODE}/storage/modify", "nodes_name_storage_modify", "Change a storage unit",
        JobOf("OP_NODE_MODIFY_STORAGE", {**_UNIT, "changes": _storage_changes}, has_body=False),
        STORAGE_TYPE, STORAGE_NAME,
        Argument("allocatable", Kind.FLAG, "whether space is taken from it")),
    job("PUT", f"{_NODE}/storage/repair", "nodes_name_storage_repair", "Repair a storage unit",
        JobOf("OP_REPAIR_NODE_STORAGE", _UNIT, has_body=False), STORAGE_TYPE, STORAGE_NAME),
    *tag_operations(f"{_NODE}/tags", "node", "nodes_name_tags"),
)  # fmt: skip
