"""Lists of objects and single objects: in full or as names, in pages, with entity tags that show a change."""

import hashlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.model import wire
from ganeti.web.operations import Call, Handler
from ganeti.web.refusals import bad_request, not_found
from ganeti.web.scope import visible

STATE = "QueryStateNumber"
PAGE_LIMIT = 100_000

Change = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Encoded:
    """An encoded answer with an entity tag; clients can ask whether it is still the same."""

    body: bytes
    etag: str = ""
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Listed:
    """One kind of object: the master's list, and the form for clients."""

    method: str
    """LUXI method that lists the objects by names and fields."""
    fields: tuple[str, ...]
    uri: str
    """Path of one object without its name."""
    id_field: str = "id"
    """Key of the name in lists of names."""
    change: Change | None = None
    """Function that completes each object."""
    is_live: bool = False
    """True if nodes report some of the fields, so that an answer can change without a job."""

    def collection(self) -> Handler:
        """Answer `GET` of the collection."""
        return lambda call: _collection(self, call)

    def one(self) -> Handler:
        """Answer `GET` of one object."""
        return lambda call: _one(self, call)

    def shown(self, fields: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
        """Return a row of values in the form for clients."""
        found = dict(zip(fields, row, strict=True))
        return self.change(found) if self.change else found


async def _one(listed: Listed, call: Call) -> Any:
    name = call.items[0]

    async def whole() -> bytes:
        return wire.encode(await _found(listed, call, name))

    if listed.is_live:
        return tagged(await whole())
    return await positioned(call, ("one", listed.method, listed.uri, name), whole)


async def _found(listed: Listed, call: Call, name: str) -> dict[str, Any]:
    try:
        rows = await call.services.master.ask(listed.method, [name], list(listed.fields), False)
    except PrereqError as err:
        if err.code is ErrorCode.UNKNOWN_ENTITY:
            raise not_found(err.message) from err
        raise
    if not rows:
        raise not_found(f"there is no {name}")
    return listed.shown(listed.fields, rows[0])


async def _collection(listed: Listed, call: Call) -> Any:
    asked = (listed.method, call.user.rights.scope, *_page_arguments(call))

    async def names_only() -> bytes:
        rows = await call.services.master.ask(listed.method, [], ["name"], False)
        names = await _of_scope(listed, call, sorted(row[0] for row in rows))
        chosen = page(call, names, lambda name: name)
        found = [{listed.id_field: name, "uri": f"{listed.uri}/{name}"} for name in chosen]
        return wire.encode(found)

    async def whole() -> bytes:
        rows = await call.services.master.ask(listed.method, [], list(listed.fields), False)
        objects = [listed.shown(listed.fields, row) for row in rows]
        allowed = set(await _of_scope(listed, call, [str(one["name"]) for one in objects]))
        objects = [one for one in objects if one["name"] in allowed]
        if "limit" in call.arguments or "after" in call.arguments:
            objects = page(call, sorted(objects, key=_name), _name)
        return wire.encode(objects)

    if not call.arguments.flag("bulk"):
        return await positioned(call, ("names", *asked), names_only)
    return await (recent if listed.is_live else positioned)(call, asked, whole)


def _name(one: dict[str, Any]) -> str:
    return str(one["name"])


async def _of_scope(listed: Listed, call: Call, names: list[str]) -> list[str]:
    return await visible(call, names) if listed.method == "QueryInstances" else names


async def recent(call: Call, asked: Any, make: Callable[[], Coroutine[Any, Any, bytes]]) -> Encoded:
    """Return a recent answer of the same state of the cluster, or a new one.

    The state covers the configuration and all calls that changed a node, as for the master's own
    shared rounds. So a list after a job shows the changes of the job.
    """
    begun = call.services.clock.monotonic()
    state = await call.services.master.ask(STATE)
    return tagged(await call.services.answers.answer(asked, state, begun, make))


async def positioned(
    call: Call, asked: Any, make: Callable[[], Coroutine[Any, Any, bytes]]
) -> Encoded:
    """Return an answer that depends only on the configuration; its tag is the position and the request.

    So a client that has the answer already causes only one request to the master. Different positions can have
    the same answer.
    """
    begun = call.services.clock.monotonic()
    position = str(await call.services.master.ask(STATE)).partition(".")[0]
    digest = hashlib.sha256(repr((asked, call.user.name)).encode()).hexdigest()[:16]
    etag = f'"{position}-{digest}"'
    if has_already(call, etag):
        return Encoded(b"", etag)
    return Encoded(await call.services.answers.answer(asked, position, begun, make), etag)


def has_already(call: Call, etag: str) -> bool:
    """Return True if the client has the answer with this tag."""
    return bool(etag) and etag in call.headers.get("If-None-Match", "").split(", ")


def tagged(body: bytes) -> Encoded:
    """Return an answer with the tag of its content."""
    return Encoded(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _page_arguments(call: Call) -> tuple[int | None, str | None]:
    limit = call.arguments.integer("limit") if "limit" in call.arguments else None
    if limit is not None and not 1 <= limit <= PAGE_LIMIT:
        raise bad_request(f"'limit' must be from 1 to {PAGE_LIMIT}")
    return limit, call.arguments.text("after")


def page(call: Call, ordered: Sequence[Any], key: Callable[[Any], Any]) -> list[Any]:
    """Return the page of `limit` and `after` from objects in the order of `key`; all objects by default."""
    limit, after = _page_arguments(call)
    if after is not None:
        number = int(after) if after.isascii() and after.isdecimal() else None
        ordered = [
            one
            for one in ordered
            if (key(one) > after if isinstance(key(one), str) else key(one) > (number or 0))
        ]
    return list(ordered[:limit])
