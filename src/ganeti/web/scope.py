"""Users who are restricted to some instances: what they see of lists, and what they may do to what."""

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.errors import PrereqError
from ganeti.model.job import remote_source
from ganeti.web.operations import Call
from ganeti.web.refusals import forbidden, not_found

_OPEN = frozenset(("", "2", "version", "features", "info", "os", "openapi", "events", "docs"))
"""Resources that tell nothing of other instances, or are cut to the user's own."""
_OF_INSTANCES = "/2/instances"
_OF_JOBS = "/2/jobs"


async def check_scope(call: Call, op: Mapping[str, Any]) -> None:
    """Whether a restricted user may submit an opcode; Refusal."""
    scope = call.user.rights.scope
    if not scope.is_restricted:
        return
    if op["OP_ID"] == "OP_INSTANCE_CREATE":
        if scope.has_name(str(op["instance_name"])):
            return
    else:
        names = _instances_of(op)
        if names and all([await has_instance(call, name) for name in names]):
            return
    raise forbidden("this user may only act on some instances, and this is none of them")


def _instances_of(op: Mapping[str, Any]) -> list[str]:
    if op.get("kind") == "instance" and op["OP_ID"].startswith("OP_TAGS_"):
        # With tags of its own choice a user would widen what it may reach.
        return [str(op.get("name"))] if op["OP_ID"] == "OP_TAGS_GET" else []
    if op["OP_ID"] == "OP_INSTANCE_QUERY_DATA":
        return [str(name) for name in op["instances"]]
    return [str(op["instance_name"])] if "instance_name" in op else []


async def check_resource(call: Call) -> None:
    """Whether a restricted user may use a resource at all; Refusal."""
    if not call.user.rights.scope.is_restricted:
        return
    path = call.operation.path
    if path.startswith(_OF_INSTANCES) and path != "/2/instances-multi-alloc":
        if call.items and not await has_instance(call, call.items[0]):
            raise not_found(f"there is no instance {call.items[0]} for this user")
        return
    if path.startswith(_OF_JOBS):
        if call.items and not await has_job(call, call.items[0]):
            raise not_found(f"there is no job {call.items[0]} for this user")
        return
    if call.operation.name not in _OPEN:
        raise forbidden("this user is restricted to some instances")


async def has_instance(call: Call, name: str) -> bool:
    """Whether an instance is within the user's scope; one that is gone is known by its name."""
    try:
        rows = await call.services.master.ask("QueryInstances", [name], ["name", "tags"], False)
    except PrereqError:
        return call.user.rights.scope.has_name(name)
    return bool(rows) and call.user.rights.scope.has(rows[0][0], rows[0][1])


async def has_job(call: Call, job_id: str) -> bool:
    """Whether a job is the user's own."""
    rows = await call.services.master.ask("QueryJobs", [job_id], ["source"])
    return bool(rows) and rows[0] == [remote_source(call.user.name)]


async def visible(call: Call, names: Sequence[str]) -> list[str]:
    """The instances among `names` that the user sees."""
    scope = call.user.rights.scope
    if not scope.is_restricted or not names:
        return list(names)
    rows = await call.services.master.ask("QueryInstances", [], ["name", "tags"], False)
    allowed = {name for name, tags in rows if scope.has(name, tags)}
    return [name for name in names if name in allowed]
