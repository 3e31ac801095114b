"""Users of this interface, and the audit log."""

from collections.abc import Sequence
from typing import Any

from ganeti.base.audit_file import AuditQuery, merged, shown_user
from ganeti.base.errors import ConfigurationError
from ganeti.model import wire
from ganeti.model.operation import Parameter, Right, Value
from ganeti.model.rest_users import User
from ganeti.web.openid import PREFIX
from ganeti.web.operations import Call, Operation
from ganeti.web.refusals import bad_request
from ganeti.web.sessions import Session

RECORDS, RECORDS_LIMIT = 100, 1000
"""Number of records without `limit`, and the greatest limit."""

_AUDIT = (
    Parameter("limit", Value.INTEGER, f"number of records: {RECORDS} by default, at most {RECORDS_LIMIT}"),
    Parameter("user", Value.TEXT, "only records of this user"),
    Parameter("since", Value.INTEGER, "only records since this time, in seconds since the epoch"),
    Parameter("job", Value.INTEGER, "only records of this job"),
    Parameter("about", Value.TEXT, "only records about the object of this name"),
)  # fmt: skip


async def _audit(call: Call) -> list[dict[str, Any]]:
    """Return the newest records of this server's log and the master's, the newest first."""
    given = call.arguments
    limit = given.integer("limit", RECORDS)
    if not 0 < limit <= RECORDS_LIMIT:
        raise bad_request(f"the limit must be between 1 and {RECORDS_LIMIT}")
    query = AuditQuery(
        limit,
        given.text("user"),
        given.integer("since") if "since" in given else None,
        given.integer("job") if "job" in given else None,
        given.text("about"),
    )
    of_master = await call.services.master.ask("QueryAudit", wire.plain(query))
    try:
        own = await call.services.audit.latest(query)
    except ConfigurationError:
        own = []  # the daemon's log has the reason
    found = merged((own, of_master), limit)
    return [{**one, "user": shown_user(one)} for one in found]


async def _users(call: Call) -> list[dict[str, Any]]:
    """Return the users of the users file, and others with a session; never a password or its digest."""
    sessions = await call.services.sessions.by_name()
    found = [
        _shown(one.user, "file", sessions.pop(one.user.name, ()), is_token=one.is_token)
        for one in call.services.logins.entries()
    ]
    for name, own in sessions.items():
        user = call.services.sessions.user_of(own[0])
        if user is not None:
            kind = "openid" if name.startswith(PREFIX) else "link"
            found.append(_shown(user, kind, own))
    return found


def _shown(
    user: User, source: str, sessions: Sequence[Session], *, is_token: bool = False
) -> dict[str, Any]:
    rights = user.rights
    scope = rights.scope
    return {
        "name": user.name,
        "source": source,
        "is_token": is_token,
        "rights": [one.value for one in Right if one in rights.rights],
        "more": sorted(rights.more),
        "less": sorted(rights.less),
        "names": list(scope.names),
        "tags": sorted(scope.tags),
        "others": [f"{kind}={pattern}" for kind, pattern in scope.others],
        "until": rights.until and rights.until.isoformat(),
        "sessions": len(sessions),
        "last_used": max((one.used for one in sessions), default=None),
    }


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/2/audit", "audit", "List requests for changes, and the changes of jobs", Right.WRITE, _audit,
              _AUDIT, result="objects", permission="audit_read"),
    Operation("GET", "/2/users", "users", "List the users of this interface, their rights and sessions", Right.WRITE,
              _users, result="objects", permission="users_read"),
)  # fmt: skip
