"""Bodies of requests: bounded in size, time and rate, and read as JSON that hides nothing (A9, A11)."""

import asyncio
import contextlib
from http import HTTPStatus
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.http import HttpProcessingError, web
from ganeti.model import wire
from ganeti.web.operations import BODY_LIMIT
from ganeti.web.refusals import Refusal, bad_request

BODY_S = 30.0
GRACE_S = 10.0
"""After that a client must have sent LEAST_RATE bytes a second."""
LEAST_RATE = 1024
THROWN_AWAY_BYTES = 64 * 1024 * 1024
PAUSE_S = 2.0
"""How much of a body that is too long is read, and how long the client may pause."""
BESIDE_BYTES = 64 * 1024
"""A longer body is parsed beside the loop."""
JSON = "application/json"


async def read_body(request: web.BaseRequest, limit: int = BODY_LIMIT) -> Any:
    """The body as plain values, None without one; Refusal (400, 408, 413, 415)."""
    if not request.body_exists and request.content.is_eof():
        return None
    asks_first = request.headers.get("Expect", "").lower() == "100-continue"
    if (request.content_length or 0) > limit:
        if not asks_first:
            await _throw_away(request)
        raise _too_long(limit)
    if asks_first:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    data = await _data(request, limit)
    if not data:
        return None
    if request.content_type.lower() != JSON:
        why = f"the body must be {JSON}"
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, why)
    try:
        if len(data) <= BESIDE_BYTES:
            return wire.parse_foreign(data, what="body")
        return await asyncio.to_thread(wire.parse_foreign, data, what="body")
    except InputError as err:
        raise bad_request(f"Error parsing JSON data: {err.message}") from err


def _too_long(limit: int) -> Refusal:
    why = f"the body of this request may have {limit} bytes"
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)


async def _throw_away(request: web.BaseRequest) -> None:
    """Read the rest of a body: a client that sends all of it first reads the refusal only then."""
    size = 0
    with contextlib.suppress(TimeoutError, web.RequestPayloadError, HttpProcessingError):
        async with asyncio.timeout(BODY_S):
            while size < THROWN_AWAY_BYTES:
                async with asyncio.timeout(PAUSE_S):
                    part = await request.content.readany()
                if not part:
                    return
                size += len(part)


async def _data(request: web.BaseRequest, limit: int) -> bytes:
    try:
        async with asyncio.timeout(BODY_S):
            return await _at_a_rate(request, limit)
    except TimeoutError:
        raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "the body comes too slowly") from None
    except (web.RequestPayloadError, HttpProcessingError) as err:
        raise bad_request("the body does not have the form that the headers promise") from err
    except RuntimeError as err:
        raise ConnectionResetError("the client hung up before its body was whole") from err


async def _at_a_rate(request: web.BaseRequest, limit: int) -> bytes:
    """All of it; TimeoutError if it comes too slowly, Refusal if it is too long."""
    loop = asyncio.get_running_loop()
    begun, parts, size = loop.time(), list[bytes](), 0
    while True:
        async with asyncio.timeout(GRACE_S):
            part = await request.content.readany()
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > limit:
            await _throw_away(request)
            raise _too_long(limit)
        taken = loop.time() - begun
        if taken > GRACE_S and size < LEAST_RATE * taken:
            raise TimeoutError
