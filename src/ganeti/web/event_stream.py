"""The answer to a client that follows events: a stream until the client hangs up."""

from contextlib import aclosing
from http import HTTPStatus

from ganeti.base.errors import GanetiError
from ganeti.base.http_web import web
from ganeti.model.names import EVENT_KINDS
from ganeti.web.events import SUBSCRIBERS_LIMIT, is_number, seen_by
from ganeti.web.operations import Call
from ganeti.web.refusals import Refusal, bad_request


async def stream(call: Call, request: web.BaseRequest) -> web.StreamResponse:
    """Write events to a client until it hangs up."""
    hub = call.services.events
    if hub is None or hub.subscribers >= SUBSCRIBERS_LIMIT:
        why = "too many subscribers"
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, why, {"Retry-After": "30"})
    last = call.headers.get("Last-Event-ID") or call.arguments.text("after")
    if last is not None and not is_number(last):
        raise bad_request(
            "the number of an event must be EPOCH-SERIAL-N, copied from an event of this stream"
        )
    given = call.arguments.text("kinds")
    kinds = given.split(",") if given else list(EVENT_KINDS)
    if unknown := set(kinds) - set(EVENT_KINDS):
        raise bad_request(
            f"unknown kind {min(unknown)!r:.40}; the kinds are {', '.join(EVENT_KINDS)}"
        )
    is_seen = seen_by(call.user, kinds)
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
    )
    await response.prepare(request)
    hub.subscribers += 1
    try:
        await response.write(b": welcome\n\n")
        async with aclosing(hub.events(last)) as batches:  # type: ignore[type-var] # it is a generator
            async for batch in batches:
                data = b"".join(encoded for event, encoded in batch if is_seen(event))
                await response.write(data or b": \n\n")
    except (ConnectionError, GanetiError, Refusal):
        response.force_close()
    finally:
        hub.subscribers -= 1
    return response
