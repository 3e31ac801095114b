"""The OpenAPI 3.1 document, generated from the tables of operations and the fields of opcodes."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from ganeti import __version__
from ganeti.model.fields import fields_of
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import SUBMITTABLE_PRIORITIES
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.operation import Parameter, Value
from ganeti.web import object_schemas
from ganeti.web.operations import JobOf, Operation
from ganeti.web.sessions import COOKIE

_ITEMS: dict[str, dict[str, Any]] = {
    "job": {"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
    "disk": {"type": "integer", "minimum": 0, "maximum": 9999},
    "upload": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
}
_NAME = {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,253}$"}
_TYPES: dict[Value, dict[str, Any]] = {
    Value.FLAG: {"type": "integer", "enum": [0, 1]},
    Value.INTEGER: {"type": "integer", "minimum": 1, "maximum": 100_000},
    Value.TIME: {"type": "integer", "minimum": 0, "maximum": 2**53},
    Value.TEXT: {"type": "string"},
    Value.WORDS: {"type": "string"},
    Value.TEXTS: {"type": "array", "items": {"type": "string"}},
}
_RESULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "job": ("application/json", {"type": "integer", "description": "the number of the job"}),
    "list": ("application/json", {"type": "array"}),
    "texts": ("application/json", {"type": "array", "items": {"type": "string"}}),
    "objects": ("application/json", {"type": "array", "items": {"type": "object"}}),
    "object": ("application/json", {"type": "object"}),
    "optional": ("application/json", {"type": ["object", "null"]}),
    "word": ("application/json", {"type": "string"}),
    "value": ("application/json", {}),
    "events": ("text/event-stream", {"type": "string"}),
    "picture": ("image/png", {"type": "string", "format": "binary"}),
    "text": ("text/plain", {"type": "string"}),
    "page": ("text/html", {"type": "string"}),
}
_REFUSALS = {
    "400": "the request is invalid; `explain` names the invalid part",
    "401": "the name or the password is wrong or missing",
    "403": "the user lacks the right",
    "404": "the object or path does not exist",
    "405": "the path does not support the method; `Allow` lists its methods",
    "408": "the body arrives too slowly",
    "409": "the cluster's state does not allow it",
    "413": "the body is too long",
    "415": "the body is not JSON",
    "422": "the idempotency key was used for another request",
    "429": "too many failed logins from this address or with this name, or too many open consoles or uploads of the user",
    "501": "this server does not support the request",
    "502": "the master does not answer",
    "503": "the queue is full or drained, or too many requests wait",
    "507": "the node has no room for the upload",
}
STREAM = "application/octet-stream"
_OWN_FIELDS = frozenset(("OP_ID", "reason", "debug_level"))
_REF = "#/components/schemas/{name}"

PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>Ganeti REST interface</title>
<style>body{font-family:sans-serif;margin:2em;max-width:70em}code{background:#eee}
summary{padding:.3em}b{display:inline-block;width:5em}pre{background:#f6f6f6;padding:1em}</style>
<h1>Ganeti REST interface</h1><p>From /2/openapi.json. This page uses name and password for one request, and does not store them.</p>
<form id="login"><input id="name" placeholder="name" autocomplete="off"> <input id="password" type="password"
placeholder="password" autocomplete="off"> <button>Show</button> <span id="why"></span></form><div id="all"></div>
<script>
document.getElementById("login").addEventListener("submit", event => {
  event.preventDefault();
  const all = document.getElementById("all"), why = document.getElementById("why");
  const given = ["name", "password"].map(id => document.getElementById(id).value).join(":");
  const bytes = new TextEncoder().encode(given), login = btoa(String.fromCharCode(...bytes));
  all.textContent = why.textContent = "";
  fetch("/2/openapi.json", {credentials: "omit", headers: {Authorization: "Basic " + login}}).then(r => r.json()).then(d => {
  if (!d.paths) { why.textContent = d.explain; return; }
  for (const [path, methods] of Object.entries(d.paths))
    for (const [method, one] of Object.entries(methods)) {
      const box = document.createElement("details"), head = document.createElement("summary");
      const name = document.createElement("b"), code = document.createElement("code");
      name.textContent = method.toUpperCase(); code.textContent = path;
      head.append(name, code, " " + one.summary);
      const text = document.createElement("pre");
      text.textContent = JSON.stringify(one, null, 2);
      box.append(head, text); all.append(box);
    }
  });
});
</script></html>
"""
PAGE_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';"
    " connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
}


def document(operations: tuple[Operation, ...]) -> dict[str, Any]:
    """Return the whole document."""
    paths: dict[str, Any] = {}
    schemas, components = _schemas(operations)
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ganeti", "version": __version__, "description": "RAPI version 2"},
        "security": [{"password": []}, {"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": {**components, **object_schemas.components(), "Refusal": _refusal_schema()},
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
        },
    }


def _refusal_schema() -> dict[str, Any]:
    texts = {name: {"type": "string"} for name in ("message", "explain")}
    return {
        "type": "object",
        "required": ["code", "message", "explain"],
        "properties": {"code": {"type": "integer"}, **texts},
    }


def _schemas(operations: Iterable[Operation]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of each opcode by its name, and all schemas to which it refers."""
    used = {one.does.opcode for one in operations if isinstance(one.does, JobOf)}
    kinds = sorted(used, key=lambda kind: kind.op_id())
    _, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    found = {}
    for kind in kinds:
        schema = components.pop(kind.__name__)
        _describe(kind, schema)
        found[kind.op_id()] = schema
    return found, components


def _describe(kind: type[OpCode], schema: dict[str, Any]) -> None:
    """Add the help of each field to the schema."""
    schema["properties"]["priority"] |= {"enum": list(SUBMITTABLE_PRIORITIES)}
    for name in kind.null_is_default:
        if "type" in (one := schema["properties"].get(name, {})):
            schema["properties"][name] = {"anyOf": [one, {"type": "null"}]}
    for name, (field, _type) in fields_of(kind).items():
        if field.help and name in schema["properties"]:
            schema["properties"][name] = {**schema["properties"][name], "description": field.help}


def _operation(one: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    content_type, result = _RESULTS[one.result]
    if one.shows:
        result = object_schemas.result(one.shows, one.result)
    found: dict[str, Any] = {
        "operationId": one.id,
        "summary": one.summary,
        "description": f"Needs the right: {one.right.value}.",
        "parameters": [_item(kind) for kind in one.kinds]
        + [_argument(argument) for argument in one.accepted],
        "responses": {
            "200": {"description": "done", "content": {content_type: {"schema": result}}},
            **{code: _refusal(text) for code, text in _REFUSALS.items()},
        },
    }
    if one.is_public:
        found["security"] = []
    if isinstance(one.does, JobOf):
        found["x-ganeti-opcode"] = one.does.opcode.op_id()
    body = _body(one, schemas)
    if body is not None:
        content = {STREAM if one.is_stream else "application/json": {"schema": body}}
        found["requestBody"] = {"content": content, "required": bool(body.get("required"))}
    if one.result == "job":
        found["parameters"].append(_idempotency())
    if one.is_stream:
        found["parameters"].append(_content_range())
    return found


def _item(kind: str) -> dict[str, Any]:
    schema = _ITEMS.get(kind, _NAME)
    return {"name": kind, "in": "path", "required": True, "schema": schema}


def _argument(one: Parameter) -> dict[str, Any]:
    return {
        "name": one.name,
        "in": "query",
        "description": one.help,
        "schema": _TYPES[one.value],
    }


def _idempotency() -> dict[str, Any]:
    text = "text that the client chooses; the same text returns the same job, even after a change of the master"
    schema = {"type": "string", "pattern": "^[!-~]{1,255}$"}
    return {"name": "Idempotency-Key", "in": "header", "description": text, "schema": schema}


def _content_range() -> dict[str, Any]:
    text = "bytes FIRST-LAST/SIZE of the body, or bytes */SIZE without a body"
    schema = {"type": "string", "pattern": "^bytes ([0-9]{1,18}-[0-9]{1,18}|[*])/[0-9]{1,18}$"}
    return {
        "name": "Content-Range",
        "in": "header",
        "required": True,
        "description": text,
        "schema": schema,
    }


def _refusal(text: str) -> dict[str, Any]:
    schema = {"$ref": _REF.format(name="Refusal")}
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _body(one: Operation, schemas: dict[str, Any]) -> dict[str, Any] | None:
    if one.body_schema is not None:
        return dict(one.body_schema)
    if not isinstance(one.does, JobOf) or not one.does.route.has_body:
        return None
    opcode, route = one.does.opcode, one.does.route
    hidden = _OWN_FIELDS | one.does.fixed | set(route.forbidden)
    found = _shown(schemas[opcode.op_id()], hidden, route.renamed)
    if opcode is OpInstanceCreate:
        found["properties"]["__version__"] = {"const": 1}
        found["required"].append("__version__")
    if nested := opcode.nested_field:
        names = OpInstanceCreate.rest[0].renamed
        items = _shown(schemas[OpInstanceCreate.op_id()], _OWN_FIELDS, names)
        found["properties"][nested] = {"type": "array", "items": items}
    return found


def _shown(
    schema: dict[str, Any], hidden: Collection[str], renamed: Mapping[str, str]
) -> dict[str, Any]:
    """Return an opcode's schema for clients: without the fields of the path, by the names that clients use."""
    names = {new: old for old, new in renamed.items()}
    return {
        "type": "object",
        "description": schema.get("description", ""),
        "properties": {
            names.get(name, name): value
            for name, value in schema["properties"].items()
            if name not in hidden
        },
        "required": [names.get(name, name) for name in schema["required"] if name not in hidden],
        "additionalProperties": False,
    }
