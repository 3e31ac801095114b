"""Instances: reading them, and making and removing them."""

from http import HTTPStatus
from typing import Any

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.clients import fields
from ganeti.model.opcodes import OpCode
from ganeti.web.lists import Listed
from ganeti.web.operations import (
    BULK,
    DRY_RUN,
    LOCK,
    PAGES,
    Argument,
    Call,
    JobOf,
    Kind,
    Operation,
    constant,
    flag,
    item,
    item_list,
    job,
    read,
)
from ganeti.web.refusals import Refusal, bad_request, not_found
from ganeti.web.resources.tags import tag_operations
from ganeti.web.rights import Right
from ganeti.web.submission import parsed, renamed, submit_opcodes

REQUEST_VERSION = "__version__"
_NAMES = {"os": "os_type", "name": "instance_name"}
INSTANCE = "/2/instances/{instance}"
THIS = {"instance_name": item()}


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
    fields_ = renamed(given, JobOf("OP_INSTANCE_CREATE", renamed=_NAMES))
    return {**fields_, "OP_ID": "OP_INSTANCE_CREATE"}


async def _reinstall(call: Call) -> int:
    """Shut down, install, start: one job."""
    in_query = [name for name in ("os", "nostartup") if name in call.arguments]
    if call.body and in_query:
        raise bad_request("Can't combine query and body parameters")
    body = dict(call.object_body())
    if not body and in_query:
        body = {"os": call.arguments.text("os"), "start": not call.arguments.flag("nostartup")}
    start = body.pop("start", True)
    if not isinstance(start, bool):
        raise bad_request("'start' parameter: give true or false")
    install = renamed(body, JobOf("OP_INSTANCE_REINSTALL", renamed={"os": "os_type"}))
    if unknown := install.keys() - {"os_type", "osparams"}:
        raise bad_request(f"there is no parameter {min(unknown)!r:.60}")
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
    """How the console is reached; 503 for an instance that does not run."""
    try:
        rows = await call.services.master.ask(
            "QueryInstances", [call.items[0]], ["console", "oper_state"], False
        )
    except PrereqError as err:
        if err.code is ErrorCode.UNKNOWN_ENTITY:
            raise not_found(err.message) from err
        raise
    console, runs = rows[0]
    if not runs or not isinstance(console, dict):
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "Instance console unavailable")
    return console


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
    read("/2/instances", "instances", "All instances", INSTANCES.collection(), BULK, LOCK, *PAGES,
         result="list", is_open=True),
    read(INSTANCE, "instances_name", "One instance", INSTANCES.one(), LOCK),
    job("GET", f"{INSTANCE}/info", "instances_name_info", "Everything about an instance, by a job",
        JobOf("OP_INSTANCE_QUERY_DATA", {"instances": item_list(), "static": flag("static")},
              has_body=False),
        Argument("static", Kind.FLAG, "do not ask the nodes"), right=Right.KNOWN),
    read(f"{INSTANCE}/console", "instances_name_console", "How an instance's console is reached",
         _console, right=Right.READ),
    job("POST", "/2/instances", "instances", "Make an instance",
        JobOf("OP_INSTANCE_CREATE", {"dry_run": flag("dry-run")}, _NAMES, make_body=_creation),
        DRY_RUN),
    job("POST", "/2/instances-multi-alloc", "instances_multi_alloc",
        "Place several instances at once, and make them",
        JobOf("OP_INSTANCE_MULTI_ALLOC", {"dry_run": flag("dry-run")}, nested_names=_NAMES, make_body=_several), DRY_RUN),
    job("DELETE", INSTANCE, "instances_name", "Remove an instance and its disks",
        JobOf("OP_INSTANCE_REMOVE",
              {**THIS, "ignore_failures": constant(False), "dry_run": flag("dry-run")}), DRY_RUN),
    Operation("POST", f"{INSTANCE}/reinstall", "instances_name_reinstall",
              "Install an instance's OS anew", Right.WRITE, _reinstall,
              (Argument("os", Kind.TEXT, "for old clients, which send no body"),
               Argument("nostartup", Kind.FLAG, "the same")),
              REINSTALL_BODY, "job", permission="instance_reinstall"),
    *tag_operations(f"{INSTANCE}/tags", "instance", "instances_name_tags"),
)  # fmt: skip
