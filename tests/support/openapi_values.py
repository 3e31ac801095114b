"""Values that the schemas of the OpenAPI document allow."""

import random
from typing import Any

from ganeti.web.openapi import document
from ganeti.web.resources.every import OPERATIONS

DOCUMENT = document(OPERATIONS)
STRANGE: list[Any] = [
    None,
    True,
    -1,
    2**63,
    1.5,
    "",
    "x",
    "\u202e",
    [],
    [[]],
    {},
    {"": None},
    "x" * 300,
]


def schema_of(reference: Any) -> Any:
    """A schema with its reference followed."""
    if isinstance(reference, dict) and "$ref" in reference:
        return DOCUMENT["components"]["schemas"][reference["$ref"].rpartition("/")[2]]
    return reference


def value_of(schema: Any, chance: random.Random, depth: int = 0) -> Any:
    """A value that the schema allows."""
    schema = schema_of(schema)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return chance.choice(schema["enum"])
    if "anyOf" in schema:
        return value_of(chance.choice(schema["anyOf"]), chance, depth)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = chance.choice(kind)
    if kind == "object":
        names = schema.get("properties", {})
        wanted = [
            name for name in names if name in schema.get("required", ()) or chance.random() < 0.3
        ]
        return {name: value_of(names[name], chance, depth + 1) for name in wanted}
    if kind == "array":
        if "prefixItems" in schema:
            return [value_of(one, chance, depth + 1) for one in schema["prefixItems"]]
        items = schema.get("items", {})
        return [
            value_of(items, chance, depth + 1)
            for _ in range(chance.randrange(3) if depth < 4 else 0)
        ]
    simple: dict[str, list[Any]] = {"string": ["a", "web1.example.com", "\u00fc"], "integer": [0, 1, 512], "number": [0.5],
              "boolean": [True, False], "null": [None]}  # fmt: skip
    found: Any = chance.choice(simple.get(str(kind), STRANGE))
    return min(found, schema["maximum"]) if "maximum" in schema else found


def body_schema(path: str, method: str) -> Any:
    """The schema of the body of an operation; None without one."""
    described = DOCUMENT["paths"][path][method.lower()]
    content = described.get("requestBody", {}).get("content", {})
    return content.get("application/json", {}).get("schema")
