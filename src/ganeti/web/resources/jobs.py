"""Jobs, queries, and job filters."""

from typing import Any

from ganeti.clients import fields
from ganeti.model import wire
from ganeti.model.job import remote_source
from ganeti.model.operation import Parameter, Right, Value
from ganeti.web.lists import Encoded, page, recent, tagged
from ganeti.web.operations import BULK, PAGES, Call, Operation, read
from ganeti.web.refusals import bad_request, not_found

WAIT_S = 10
NO_CHANGE = "nochange"
FIELDS = Parameter("fields", Value.TEXT, "names of fields, separated by commas")
_FILTER_FIELDS = ("priority", "predicates", "action", "reason")
_OF_STATE = frozenset(("instance", "node", "group", "network"))
"""Kinds of objects whose changes change the state's number, so that clients can share answers."""


async def _jobs(call: Call) -> Encoded:
    names = fields.JOB_BULK if call.arguments.flag("bulk") else ("id",)
    rows = await call.services.master.ask("QueryJobs", [], [*names, "source"])
    if call.user.rights.scope.is_restricted:
        own = remote_source(call.user.name)
        rows = [row for row in rows if row and row[-1] == own]
    found = page(call, sorted((row[:-1] for row in rows if row), key=_id), _id)
    if names is fields.JOB_BULK:
        return tagged(wire.encode([dict(zip(names, row, strict=True)) for row in found]))
    return tagged(wire.encode([{"id": row[0], "uri": f"/2/jobs/{row[0]}"} for row in found]))


def _id(row: list[Any]) -> int:
    return int(row[0])


async def _job(call: Call) -> Encoded:
    rows = await call.services.master.ask("QueryJobs", [call.items[0]], list(fields.JOB))
    row = rows[0] if rows else None
    if row is None or row[fields.JOB.index("status")] is None:
        raise not_found(f"there is no job {call.items[0]}")
    return tagged(wire.encode(dict(zip(fields.JOB, row, strict=True))))


async def _cancel(call: Call) -> Any:
    return await call.services.master.act("CancelJob", call.items[0])


async def _priority(call: Call) -> Any:
    """Change the priority of a job; return whether that was possible, and why not."""
    body = call.object_body()
    priority = body.get("priority")
    if set(body) != {"priority"} or isinstance(priority, bool) or not isinstance(priority, int):
        raise bad_request('the body must be {"priority": N}, a whole number from -20 (first) to 19')
    return await call.services.master.act("ChangeJobPriority", call.items[0], priority)


async def _wait(call: Call) -> Any:
    """Return the changes of a job, or null after ten seconds without a change."""
    body = call.object_body()
    wanted, previous = body.get("fields"), body.get("previous_job_info")
    serial = body.get("previous_log_serial")
    if not isinstance(wanted, list):
        raise bad_request("The 'fields' parameter should be a list")
    if previous is not None and not isinstance(previous, list):
        raise bad_request("The 'previous_job_info' parameter should be a list")
    if serial is not None and (isinstance(serial, bool) or not isinstance(serial, int)):
        raise bad_request("The 'previous_log_serial' parameter should be a number")
    answer = await call.services.master.wait(
        "WaitForJobChange", call.items[0], wanted, previous, serial, WAIT_S
    )
    if answer == NO_CHANGE:
        return None
    info, entries = answer
    return {"job_info": info, "log_entries": entries}


async def _query(call: Call) -> Any:
    body = call.object_body() if call.operation.method == "PUT" else {}
    wanted = body.get("fields")
    if wanted is None:
        wanted = _split(call.arguments.needed("fields"))
    if not isinstance(wanted, list):
        raise bad_request("'fields' must be a list of names")
    filter_ = body.get("qfilter")
    if filter_ is None:
        filter_ = body.get("filter")
    kind = call.items[0]

    async def ask() -> Any:
        return await call.services.master.ask("Query", kind, wanted, filter_)

    if kind not in _OF_STATE:
        return await ask()

    async def encoded() -> bytes:
        return wire.encode(await ask())

    # All pages of the console request the same rows after an event.
    asked = wire.encode([kind, wanted, filter_])
    return await recent(call, ("query", asked), encoded)


async def _fields(call: Call) -> Any:
    given = call.arguments.text("fields")
    wanted = None if given is None else _split(given)
    return await call.services.master.ask("QueryFields", call.items[0], wanted)


def _split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


async def _filters(call: Call) -> Any:
    names = fields.FILTER if call.arguments.flag("bulk") else ("uuid",)
    rows = await call.services.master.ask("QueryFilters", None, list(names))
    if names is fields.FILTER:
        return [dict(zip(names, row, strict=True)) for row in rows]
    return [{"uuid": row[0], "uri": f"/2/filters/{row[0]}"} for row in sorted(rows)]


async def _filter(call: Call) -> Any:
    rows = await call.services.master.ask("QueryFilters", [call.items[0]], list(fields.FILTER))
    if not rows or rows[0] is None:
        raise not_found(f"there is no filter {call.items[0]}")
    return dict(zip(fields.FILTER, rows[0], strict=True))


async def _replace_filter(call: Call) -> Any:
    body = call.object_body()
    if unknown := body.keys() - set(_FILTER_FIELDS):
        raise bad_request(f"Invalid body parameters: filter rule doesn't support the parameter"
                          f" {min(unknown)!r:.60}")  # fmt: skip
    priority, predicates = body.get("priority", 0), body.get("predicates", [])
    reason = body.get("reason", [])
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise bad_request("the parameter 'priority' must be a whole number")
    if not isinstance(predicates, list) or not isinstance(reason, list):
        raise bad_request("'predicates' and 'reason' must be lists")
    uuid = call.items[0] if call.items else None
    return await call.services.master.act(
        "ReplaceFilter", uuid, priority, predicates, body.get("action", "CONTINUE"), reason
    )


async def _delete_filter(call: Call) -> Any:
    return await call.services.master.act("DeleteFilter", call.items[0])


WAIT_BODY: dict[str, Any] = {
    "type": "object",
    "required": ["fields"],
    "properties": {
        "fields": {"type": "array", "items": {"type": "string"}},
        "previous_job_info": {"type": ["array", "null"]},
        "previous_log_serial": {"type": ["integer", "null"]},
    },
}
PRIORITY_BODY: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["priority"],
    "properties": {"priority": {"type": "integer", "minimum": -20, "maximum": 19}},
}
QUERY_BODY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "fields": {"type": "array", "items": {"type": "string"}},
        "qfilter": {"type": ["array", "null"], "description": 'as ["=", "name", "web1"]'},
        "filter": {"type": ["array", "null"], "description": "the same, for old clients"},
    },
}
FILTER_BODY: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "priority": {"type": "integer", "default": 0},
        "predicates": {"type": "array", "items": {"type": "array"}},
        "action": {"description": 'ACCEPT, PAUSE, REJECT, CONTINUE or ["RATE_LIMIT", n]'},
        "reason": {"type": "array"},
    },
}
_JOB, _FILTER, _QUERY = "/2/jobs/{job}", "/2/filters/{filter}", "/2/query/{resource}"

OPERATIONS: tuple[Operation, ...] = (
    read("/2/jobs", "jobs", "List all jobs that are not archived", _jobs, BULK, *PAGES, result="list",
         shows="job", is_open=True),
    read(_JOB, "jobs_id", "Return one job", _job, shows="job"),
    Operation("DELETE", _JOB, "jobs_id", "Cancel a job", Right.OPERATE, _cancel, result="list",
              permission="job_cancel"),
    Operation("PUT", f"{_JOB}/priority", "jobs_id_priority", "Change the priority of a job", Right.OPERATE, _priority,
              (), PRIORITY_BODY, "list", permission="job_change_priority"),
    Operation("GET", f"{_JOB}/wait", "jobs_id_wait", "Wait for a change of a job", Right.OPERATE, _wait,
              (), WAIT_BODY, "optional"),
    read(_QUERY, "query", "Query fields of objects", _query, FIELDS, right=Right.READ),
    Operation("PUT", _QUERY, "query", "Query fields of objects that match a filter", Right.READ,
              _query, (FIELDS,), QUERY_BODY, "object"),
    read(f"{_QUERY}/fields", "query_fields", "List the fields of a kind of object", _fields, FIELDS),
    read("/2/filters", "filters", "List all job filters", _filters, BULK, result="list", shows="filter"),
    read(_FILTER, "filters_uuid", "Return one job filter", _filter, shows="filter"),
    Operation("POST", "/2/filters", "filters", "Create a job filter", Right.WRITE,
              _replace_filter, (), FILTER_BODY, "value", permission="filter_replace"),
    Operation("PUT", _FILTER, "filters_uuid", "Replace a job filter", Right.WRITE,
              _replace_filter, (), FILTER_BODY, "value", permission="filter_replace"),
    Operation("DELETE", _FILTER, "filters_uuid", "Remove a job filter", Right.WRITE,
              _delete_filter, result="value", permission="filter_delete"),
)  # fmt: skip
