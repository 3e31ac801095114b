"""The view of limited users: their instances and their own jobs.

The master decides which jobs they may submit (`ganeti.units.job_scope`). Each job carries the user's scope.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from ganeti.base.errors import PrereqError
from ganeti.model.job import remote_source
from ganeti.model.rest_rights import Rights
from ganeti.web.operations import Call, Operation
from ganeti.web.refusals import forbidden, not_found


async def check_resource(call: Call) -> None:
    """Raise Refusal if a limited user may not use an operation, or an object that its path names."""
    operation = call.operation
    if not call.user.rights.scope.is_restricted:
        return
    for kind, word in zip(operation.kinds, call.items, strict=True):
        if kind in _OWN and not await _OWN[kind](call, word):
            raise not_found(f"{kind} {word} does not exist for this user")
    if not is_open_to_limited(operation):
        raise forbidden("this user is limited to some instances")


def is_open_to_limited(operation: Operation) -> bool:
    """Return True if limited users may use the operation on objects of theirs."""
    return operation.is_open or operation.submits or bool(_OWN.keys() & set(operation.kinds))


def allowed(operations: Iterable[Operation], rights: Rights) -> list[str]:
    """Return the names of the operations that a user with these rights may call on objects of the user's."""
    is_limited = rights.scope.is_restricted
    return [
        one.id
        for one in operations
        if rights.may(one.right, one.permission) and (not is_limited or is_open_to_limited(one))
    ]


async def has_instance(call: Call, name: str) -> bool:
    """Return True if an instance is within the user's scope; a removed instance is matched by its name."""
    try:
        rows = await call.services.master.ask("QueryInstances", [name], ["name", "tags"], False)
    except PrereqError:
        return call.user.rights.scope.has_name(name)
    return bool(rows) and call.user.rights.scope.has(rows[0][0], rows[0][1])


async def has_job(call: Call, job_id: str) -> bool:
    """Return True if the user submitted the job."""
    rows = await call.services.master.ask("QueryJobs", [job_id], ["source"])
    return bool(rows) and rows[0] == [remote_source(call.user.name)]


async def visible(call: Call, names: Sequence[str]) -> list[str]:
    """Return the instances among `names` that the user may see; removed ones are matched by their names."""
    scope = call.user.rights.scope
    if not scope.is_restricted or not names:
        return list(names)
    rows = await call.services.master.ask("QueryInstances", [], ["name", "tags"], False)
    tags_of = dict(rows)
    return [name for name in names if scope.has(name, tags_of.get(name, ()))]


_OWN: dict[str, Callable[[Call, str], Awaitable[bool]]] = {
    "instance": has_instance,
    "job": has_job,
}
"""Kinds of variable parts of a path that name an object of the user."""
