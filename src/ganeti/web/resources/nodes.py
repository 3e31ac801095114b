"""Nodes."""

from typing import Any

from ganeti.clients import fields
from ganeti.model.opcodes.node import ROLE_CHANGES
from ganeti.model.operation import Right
from ganeti.web.lists import Listed
from ganeti.web.operations import BULK, LOCK, PAGES, Call, Operation, read
from ganeti.web.refusals import bad_request
from ganeti.web.resources.tags import tags_of

_ROLES = {
    "M": "master",
    "C": "master-candidate",
    "R": "regular",
    "D": "drained",
    "O": "offline",
}


def _with_alias(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "secondary_ip": node["sip"]}


NODES = Listed("QueryNodes", fields.NODE, "/2/nodes", is_live=True)
ONE_NODE = Listed("QueryNodes", fields.NODE, "/2/nodes", change=_with_alias, is_live=True)


async def _role(call: Call) -> str:
    rows = await call.services.master.ask("QueryNodes", [call.items[0]], ["role"], False)
    return _ROLES[rows[0][0]]


async def _impact(call: Call) -> dict[str, Any]:
    found: dict[str, Any] = await call.services.master.ask("QueryImpact", call.items[0])
    return found


async def _impacts(call: Call) -> list[dict[str, Any]]:
    found = await call.services.master.ask("QueryImpact")
    nodes: list[dict[str, Any]] = found["nodes"]
    return nodes


def _requested_role(call: Call) -> dict[str, Any]:
    if not isinstance(call.body, str):
        raise bad_request('Body contents: pass a role as a JSON string, for example "drained"')
    if call.body not in ROLE_CHANGES:
        raise bad_request(f"Can't set {call.body!r:.40} role; known: {', '.join(ROLE_CHANGES)}")
    return dict(ROLE_CHANGES[call.body])


def _migration(call: Call) -> dict[str, Any]:
    """Return the body; old clients send its fields in the query."""
    given = [name for name in ("live", "mode") if name in call.arguments]
    if not given:
        return dict(call.object_body())
    if len(given) > 1:
        raise bad_request("Only one of 'live' and 'mode' should be passed")
    if given == ["live"]:
        return {"mode": "live" if call.arguments.flag("live", default=True) else "non-live"}
    return {"mode": call.arguments.text("mode")}


def _storage_changes(call: Call) -> dict[str, Any]:
    if "allocatable" not in call.arguments:
        return {"changes": {}}
    return {"changes": {"allocatable": call.arguments.flag("allocatable", default=True)}}


_NODE = "/2/nodes/{node}"

OPERATIONS: tuple[Operation, ...] = (
    read("/2/nodes", "nodes", "List all nodes", NODES.collection(), BULK, LOCK, *PAGES, result="list",
         shows="node"),
    read(_NODE, "nodes_name", "Return one node", ONE_NODE.one(), LOCK, shows="node"),
    read(f"{_NODE}/role", "nodes_name_role", "Return a node's role", _role, LOCK, result="word"),
    read(f"{_NODE}/impact", "nodes_name_impact", "Return what the loss of a node would mean for its instances",
         _impact, right=Right.READ),
    read("/2/impact", "impact", "Return how many instances the loss of each node would move, stop or lose", _impacts,
         right=Right.READ, result="objects"),
    tags_of("node", f"{_NODE}/tags", "nodes_name_tags"),
)  # fmt: skip

BODIES = {
    "put_nodes_name_role": _requested_role,
    "post_nodes_name_migrate": _migration,
    "put_nodes_name_storage_modify": _storage_changes,
}
"""Converters of requests that do not have the fields of an opcode in their body."""
