"""The OpenAPI document, and requests made from it: none is answered by a fault, no wrong one is taken."""

import contextlib
import random
from typing import Any

import pytest

from ganeti.clients import fields
from ganeti.model import wire
from ganeti.model.fields import fields_of
from ganeti.model.rest_rights import Rights
from ganeti.model.rest_users import User
from ganeti.query.execute import KINDS
from ganeti.web import object_schemas
from ganeti.web.operations import Arguments, Call, JobOf, Operation
from ganeti.web.refusals import Refusal
from ganeti.web.resources import instances, nodes
from ganeti.web.resources.every import OPERATIONS
from ganeti.web.services import Services
from ganeti.web.submission import opcode_of
from tests.support.openapi_values import DOCUMENT, STRANGE, value_of
from tests.support.openapi_values import body_schema as schema_of_body
from tests.support.predictable import FrozenClock
from tests.support.rest import RestRig
from tests.unit.query.cluster import job

UNASKED = ("/2/os", "/2/events", "/2/instances/{instance}/screenshot")
"""Operations that need a node, or that do not end."""
CASES = 20
WORDS = {"job": "1", "disk": "0"}


def call_of(operation: Operation, body: Any) -> Call:
    items = tuple(WORDS.get(kind, "a") for kind in operation.kinds)
    nobody: Any = None
    services = Services(
        nobody, nobody, nobody, nobody, nobody, nobody, nobody, nobody, clock=FrozenClock()
    )
    given = {name: ["x"] for name in ("name", "output_fields", "storage_type", "mode")}
    given = given if body is None else {}
    return Call(operation, items, Arguments(given), body, User("x", Rights()), "::1", services)


def body_schema(operation: Operation) -> Any:
    return schema_of_body(operation.path, operation.method)


OF_JOBS = [
    one for one in OPERATIONS
    if isinstance(one.does, JobOf) and one.does.make_body is None
]  # fmt: skip


def test_the_document_has_every_operation_and_refers_only_to_what_it_has() -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    found = {(path, method.upper()) for path, all_ in DOCUMENT["paths"].items() for method in all_}
    assert found == {(one.path, one.method) for one in OPERATIONS}
    text = wire.encode(DOCUMENT).decode()
    for name in set(text.split('"$ref":"#/components/schemas/')[1:]):
        assert name.partition('"')[0] in DOCUMENT["components"]["schemas"]
    ids = [one["operationId"] for all_ in DOCUMENT["paths"].values() for one in all_.values()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("operation", OF_JOBS, ids=lambda one: f"{one.method} {one.path}")
def test_the_body_has_the_fields_of_the_opcode(operation: Operation) -> None:
    does, schema = operation.does, body_schema(operation)
    assert isinstance(does, JobOf)
    if not does.route.has_body:
        assert schema is None
        return
    names = {new: old for old, new in does.route.renamed.items()}
    hidden = {*does.fixed, *does.route.forbidden, "reason", "debug_level"}
    kind = does.opcode
    wanted = {names.get(name, name) for name in kind.__struct_fields__ if name not in hidden}
    assert set(schema["properties"]) - {"__version__"} == wanted
    helps = {name: field.help for name, (field, _) in fields_of(kind).items() if field.help}
    for name, text in helps.items():
        if name not in hidden:
            assert schema["properties"][names.get(name, name)]["description"] == text


def test_every_body_in_another_form_belongs_to_a_declared_operation() -> None:
    ids = {f"{one.method.lower()}_{one.name}" for one in OPERATIONS if isinstance(one.does, JobOf)}
    assert {*nodes.BODIES, *instances.BODIES} <= ids


async def test_what_the_schema_allows_is_taken_and_what_it_does_not_is_refused() -> None:
    chance = random.Random(18)
    for operation in OF_JOBS:
        does, schema = operation.does, body_schema(operation)
        assert isinstance(does, JobOf)
        for _ in range(CASES if schema else 1):
            body = value_of(schema, chance) if schema else None
            op = await opcode_of(call_of(operation, body), does)
            assert isinstance(op, does.opcode)
            if body is None:
                continue
            for wrong in broken(body, schema, chance):
                with pytest.raises(Refusal) as refused:
                    await opcode_of(call_of(operation, wrong), does)
                assert refused.value.status in (400, 403), (operation.path, wrong)


def broken(body: dict[str, Any], schema: Any, chance: random.Random) -> list[Any]:
    """The body with one thing that the schema does not allow."""
    found: list[Any] = [
        {**body, "no_such_field": 1},
        [body],
        "x",
        {**body, "OP_ID": "OP_TEST_DELAY"},
    ]
    found += [
        {key: value for key, value in body.items() if key != name}
        for name in schema.get("required", ())
    ]
    plain = {
        name: one["type"]
        for name, one in schema["properties"].items()
        if isinstance(one.get("type"), str)
    }
    for name in chance.sample(sorted(plain), min(3, len(plain))):
        other = {"string": 7, "integer": "7", "boolean": "yes", "array": {}, "object": []}
        found.append({**body, name: other.get(plain[name], object)})
    return [one for one in found if object not in (one.values() if isinstance(one, dict) else ())]


@pytest.mark.requirement("A12", "G26")
async def test_strange_values_never_are_a_fault() -> None:
    chance = random.Random(12)
    for operation in OPERATIONS:
        does = operation.does
        if not isinstance(does, JobOf):
            continue
        schema = body_schema(operation) or {"properties": {"x": {}}}
        for _ in range(CASES):
            names = sorted(schema.get("properties", {"x": {}}))
            body: Any = {chance.choice(names): chance.choice(STRANGE) for _ in range(3)}
            body = chance.choice([body, {**body, "__version__": 1}, chance.choice(STRANGE)])
            with contextlib.suppress(Refusal):
                await opcode_of(call_of(operation, body), does)


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_two_thousand_requests_an_operation_are_no_fault(rig: RestRig) -> None:
    chance = random.Random(2000)
    for operation in OPERATIONS:
        if operation.is_public or operation.path in UNASKED:  # guesses wait
            continue
        path = operation.path
        for kind in operation.kinds:
            path = path.replace("{" + kind + "}", WORDS.get(kind, "web1"))
        schema = body_schema(operation)
        for _ in range(2000):
            body = chance.choice(
                [value_of(schema, chance) if schema else None, chance.choice(STRANGE)]
            )
            names = [one.name for one in operation.arguments]
            query = "&".join(
                f"{name}={chance.choice(['1', 'x', '-3', ''])}"
                for name in names
                if chance.random() < 0.3
            )
            answer = await rig.ask(operation.method, f"{path}?{query}", body)
            assert answer.status < 500 or answer.status in (501, 503), (path, body, answer.body)
        rig.master.queue.submitted.clear()
        rig.master.queue.keys.clear()
        rig.master.queue.live.clear()


def test_the_document_has_every_status_that_refuses() -> None:
    wanted = {400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 501, 502, 503, 507}
    for path, methods in DOCUMENT["paths"].items():
        for method, one in methods.items():
            assert {int(code) for code in one["responses"]} == {200} | wanted, (method, path)
            assert "reason" in {each["name"] for each in one["parameters"]}


KINDS_OF_VALUES = {
    "text": "string",
    "bool": "boolean",
    "number": "integer",
    "unit": "integer",
    "timestamp": "number",
}


@pytest.mark.parametrize("kind", sorted(fields.BY_KIND))
def test_types_of_objects_are_those_of_queries(kind: str) -> None:
    declared = KINDS[kind].fields
    for name in fields.BY_KIND[kind]:
        wanted = KINDS_OF_VALUES.get(declared[name].kind.value)
        found = object_schemas.schema_of(name).get("type")
        assert wanted is None or wanted in (found if isinstance(found, list) else [found]), name


async def test_lists_and_objects_have_the_fields_of_the_document(rig: RestRig) -> None:
    schemas = DOCUMENT["components"]["schemas"]
    kinds = {"instances": "Instance", "nodes": "Node", "groups": "Group"}
    rig.master.queue.live.append(job(1))
    for path, one in {**kinds, "jobs": "Job"}.items():
        listed = (await rig.ask("GET", f"/2/{path}?bulk=1")).json
        assert listed, path
        for found in listed:
            assert set(schemas[one]["required"]) == set(found), path
            for name, value in found.items():
                check(value, schemas[one]["properties"][name], f"{path} {name}")


def check(value: Any, schema: Any, what: str) -> None:
    """Fail unless the value has the type of the schema."""
    types: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
             "null": type(None)}  # fmt: skip
    kinds = schema.get("type", list(types))
    kinds = kinds if isinstance(kinds, list) else [kinds]
    assert any(isinstance(value, types[kind]) for kind in kinds), (what, value)
    for item in value if isinstance(value, list) and "items" in schema else ():
        check(item, schema["items"], what)


async def test_the_document_and_its_page_are_served(rig: RestRig) -> None:
    served = await rig.ask("GET", "/2/openapi.json")
    assert served.json == DOCUMENT
    page = await rig.ask("GET", "/2/docs")
    assert page.headers["content-type"].startswith("text/html")
