"""What limited users see: their instances of lists, their own jobs, and answers that tell nothing of others.

What they may submit, the master decides (`ganeti.units.job_scope`): it learns the user's scope with each job.
"""

from collections.abc import Awaitable, Callable, Sequence

from ganeti.base.errors import PrereqError
from ganeti.model.job import remote_source
from ganeti.web.operations import Call
from ganeti.web.refusals import forbidden, not_found


async def check_resource(call: Call) -> None:
    """Refusal if a limited user may not use an operation at all, or one of the things that its path names."""
    operation = call.operation
    if not call.user.rights.scope.is_restricted:
        return
    for kind, word in zip(operation.kinds, call.items, strict=True):
        if kind in _OWN and not await _OWN[kind](call, word):
            raise not_found(f"there is no {kind} {word} for this user")
    if not (operation.is_open or operation.submits or _OWN.keys() & set(operation.kinds)):
        raise forbidden("this user is limited to some instances")


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


_OWN: dict[str, Callable[[Call, str], Awaitable[bool]]] = {
    "instance": has_instance,
    "job": has_job,
}
"""Kinds of words of a path that mean a thing of the user's own."""
