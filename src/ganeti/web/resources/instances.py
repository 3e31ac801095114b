"""Instances: lists, creation and reinstallation."""

from http import HTTPStatus
from typing import Any

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.clients import fields
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.operation import Parameter, Right, Value
from ganeti.web.lists import Listed
from ganeti.web.operations import BULK, LOCK, PAGES, REASON, Call, Operation, read
from ganeti.web.refusals import Refusal, bad_request, not_found
from ganeti.web.resources.tags import tags_of
from ganeti.web.submission import parsed, renamed, submit_opcodes

REQUEST_VERSION = "__version__"
_DISK_DIGITS = 4
INSTANCE = "/2/instances/{instance}"


INSTANCES = Listed(
    "QueryInstances", fields.INSTANCE, "/2/instances", change=fields.with_memory, is_live=True
)


def _creation(call: Call) -> dict[str, Any]:
    body = dict(call.object_body())
    version = body.pop(REQUEST_VERSION, 0)
    if version == 0:
        raise bad_request("Instance creation request version 0 is no longer supported: say"
                          f' "{REQUEST_VERSION}": 1')  # fmt: skip
    if version != 1 or isinstance(version, bool):
        raise bad_request(f"Unsupported request data version {version!r:.40}")
    return body


def _several(call: Call) -> dict[str, Any]:
    body = dict(call.object_body())
    if not isinstance(body.get("instances"), list):
        raise bad_request("Request is missing required 'instances' field in body")
    body["instances"] = [_nested(one) for one in body["instances"]]
    return body


def _nested(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise bad_request("'instances' must be a list of objects")
    fields_ = renamed(given, OpInstanceCreate.rest[0].renamed)
    return {**fields_, "OP_ID": "OP_INSTANCE_CREATE"}


def _replacement(call: Call) -> dict[str, Any]:
    """Return the body; old clients send its fields in the query, and disks as `1,2`."""
    body = dict(call.object_body())
    if not body:
        given = (one for one in call.operation.arguments if one.name in call.arguments)
        body = {one.name: call.arguments.value(one) for one in given if one is not REASON}
    disks = body.pop("disks", None)
    if isinstance(disks, str) and disks:
        disks = [_disk(part.strip()) for part in disks.split(",")]
    return {**body, "disks": disks} if disks else body


def _disk(word: str) -> int:
    if not (word.isascii() and word.isdecimal() and len(word) <= _DISK_DIGITS):
        raise bad_request(f"Invalid disk index passed: {word!r:.40}")
    return int(word)


async def _reinstall(call: Call) -> int:
    """Submit one job that shuts the instance down, installs it and starts it."""
    in_query = [name for name in ("os", "nostartup") if name in call.arguments]
    if call.body and in_query:
        raise bad_request("Can't combine query and body parameters")
    body = dict(call.object_body())
    if not body and in_query:
        body = {"os": call.arguments.text("os"), "start": not call.arguments.flag("nostartup")}
    start = body.pop("start", True)
    if not isinstance(start, bool):
        raise bad_request("the parameter 'start' must be true or false")
    install = renamed(body, {"os": "os_type"})
    if unknown := install.keys() - {"os_type", "osparams"}:
        raise bad_request(f"unknown parameter {min(unknown)!r:.60}")
    name = {"instance_name": call.items[0]}
    ops: list[OpCode] = [
        parsed(call, {"OP_ID": "OP_INSTANCE_SHUTDOWN", **name}),
        parsed(call, {"OP_ID": "OP_INSTANCE_REINSTALL", **_without_none(install), **name}),
    ]
    if start:
        ops.append(parsed(call, {"OP_ID": "OP_INSTANCE_STARTUP", **name}))
    return await submit_opcodes(call, ops)


def _without_none(fields_: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields_.items() if value is not None}


async def _console(call: Call) -> Any:
    """Return the address of the console; Refusal (503) for an instance that does not run."""
    console, runs = await _one_row(call, ["console", "oper_state"])
    if not runs or not isinstance(console, dict):
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "Instance console unavailable")
    return console


async def _one_row(call: Call, fields_: list[str]) -> list[Any]:
    """Return some fields of the request's instance; Refusal (404) if it does not exist."""
    try:
        rows = await call.services.master.ask("QueryInstances", [call.items[0]], fields_, False)
    except PrereqError as err:
        if err.code is ErrorCode.UNKNOWN_ENTITY:
            raise not_found(err.message) from err
        raise
    found: list[Any] = rows[0]
    return found


async def _snapshots(call: Call) -> Any:
    """Return the snapshots of an instance, the oldest first."""
    return (await _one_row(call, ["snapshots"]))[0]


REINSTALL_BODY: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "os": {"type": ["string", "null"], "description": "another OS definition"},
        "start": {"type": "boolean", "default": True, "description": "start it afterwards"},
        "osparams": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
    },
}

OPERATIONS: tuple[Operation, ...] = (
    read("/2/instances", "instances", "List all instances", INSTANCES.collection(), BULK, LOCK, *PAGES,
         result="list", shows="instance", is_open=True),
    read(INSTANCE, "instances_name", "Return one instance", INSTANCES.one(), LOCK, shows="instance"),
    read(f"{INSTANCE}/console", "instances_name_console", "Return the address of an instance's console",
         _console, right=Right.READ),
    read(f"{INSTANCE}/snapshots", "instances_name_snapshots", "List the snapshots of an instance's disks",
         _snapshots, result="objects"),
    Operation("POST", f"{INSTANCE}/reinstall", "instances_name_reinstall",
              "Reinstall an instance", Right.WRITE, _reinstall,
              (Parameter("os", Value.TEXT, "for old clients, which send no body"),
               Parameter("nostartup", Value.FLAG, "the same")),
              REINSTALL_BODY, "job", permission="instance_reinstall"),
    tags_of("instance", f"{INSTANCE}/tags", "instances_name_tags"),
)  # fmt: skip

BODIES = {
    "post_instances": _creation,
    "post_instances_multi_alloc": _several,
    "post_instances_name_replace_disks": _replacement,
}
"""Converters of requests that do not have the fields of an opcode in their body."""
