"""Lists of objects, and single ones: whole or as names, in pages, with tags by which a client sees a change."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
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
    """An answer that is JSON already; clients may ask whether it is still the same."""

    body: bytes
    etag: str = ""
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Listed:
    """One kind of objects: how the master lists it, and how clients see it."""

    method: str
    """The LUXI method: names, fields, locking."""
    fields: tuple[str, ...]
    uri: str
    """Of one object, with its name after it."""
    id_field: str = "id"
    """What lists of names call the name."""
    change: Change | None = None
    """Made with each object."""
    is_live: bool = False
    """Whether nodes are asked for some of the fields, so that an answer changes by itself."""

    def collection(self) -> Handler:
        """Answers `GET` of the collection."""
        return lambda call: _collection(self, call)

    def one(self) -> Handler:
        """Answers `GET` of one object."""
        return lambda call: _one(self, call)

    def shown(self, fields: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
        """A row of values as clients see it."""
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


async def recent(call: Call, asked: Any, make: Callable[[], Awaitable[bytes]]) -> Encoded:
    """An answer that was made a moment ago in the same state of the cluster, or a new one.

    The state is that of the configuration and of all calls that changed a node, as for the master's own
    shared rounds, so a list after a job shows what the job did.
    """
    begun = call.services.clock.monotonic()
    state = await call.services.master.ask(STATE)
    body = call.services.answers.get(asked, state, begun)
    if body is None:
        body = await make()
        call.services.answers.put(asked, state, begun, body)
    return tagged(body)


async def positioned(call: Call, asked: Any, make: Callable[[], Awaitable[bytes]]) -> Encoded:
    """An answer that the configuration alone makes: its tag is the position of that, and what was asked.

    So who has it already costs one question to the master. Another position may make the same answer.
    """
    begun = call.services.clock.monotonic()
    position = str(await call.services.master.ask(STATE)).partition(".")[0]
    digest = hashlib.sha256(repr((asked, call.user.name)).encode()).hexdigest()[:16]
    etag = f'"{position}-{digest}"'
    if has_already(call, etag):
        return Encoded(b"", etag)
    body = call.services.answers.get(asked, position, begun)
    if body is None:
        body = await make()
        call.services.answers.put(asked, position, begun, body)
    return Encoded(body, etag)


def has_already(call: Call, etag: str) -> bool:
    """Whether the client has said that it has the answer with this tag."""
    return bool(etag) and etag in call.headers.get("If-None-Match", "").split(", ")


def tagged(body: bytes) -> Encoded:
    """An answer with the tag of its content."""
    return Encoded(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _page_arguments(call: Call) -> tuple[int | None, str | None]:
    limit = call.arguments.integer("limit") if "limit" in call.arguments else None
    if limit is not None and not 1 <= limit <= PAGE_LIMIT:
        raise bad_request(f"'limit' must be from 1 to {PAGE_LIMIT}")
    return limit, call.arguments.text("after")


def page(call: Call, ordered: Sequence[Any], key: Callable[[Any], Any]) -> list[Any]:
    """Of what is in the order of `key`, the page that `limit` and `after` name; all without them."""
    limit, after = _page_arguments(call)
    if after is not None:
        number = int(after) if after.isascii() and after.isdecimal() else None
        ordered = [
            one
            for one in ordered
            if (key(one) > after if isinstance(key(one), str) else key(one) > (number or 0))
        ]
    return list(ordered[:limit])
