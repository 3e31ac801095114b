"""Bodies of requests: bounded in size, time and rate, and parsed as strict JSON (A9, A11)."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.http_web import HttpProcessingError, web
from ganeti.model import wire
from ganeti.web.operations import BODY_LIMIT
from ganeti.web.refusals import Refusal, bad_request

BODY_S = 30.0
GRACE_S = 10.0
"""Seconds after which a client must have sent LEAST_RATE bytes a second."""
LEAST_RATE = 1024
THROWN_AWAY_BYTES = 64 * 1024 * 1024
PAUSE_S = 2.0
"""Bytes of a too long body that are read and discarded, and the longest pause of the client."""
BESIDE_BYTES = 64 * 1024
"""Bytes above which a body is parsed in a thread."""
JSON = "application/json"


async def read_body(request: web.BaseRequest, limit: int = BODY_LIMIT) -> Any:
    """Return the body as plain values, or None for an empty body; Refusal (400, 408, 413, 415)."""
    if not request.body_exists and request.content.is_eof():
        return None
    asks_first = _asks_first(request)
    if (request.content_length or 0) > limit:
        if not asks_first:
            await _throw_away(request)
        raise _too_long(limit)
    if asks_first:
        await _ask_for(request)
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
    why = f"the body is too long; its limit is {limit} bytes"
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)


async def _throw_away(request: web.BaseRequest) -> None:
    """Read the rest of a body: a client that first sends the whole body reads the refusal only afterwards."""
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
    """Return the whole body; Refusal if it arrives too slowly or is too long."""
    found, size = list[bytes](), 0
    try:
        async with asyncio.timeout(BODY_S), contextlib.aclosing(_parts(request)) as parts:
            async for part in parts:
                found.append(part)
                size += len(part)
                if size > limit:
                    await _throw_away(request)
                    raise _too_long(limit)
    except TimeoutError:
        raise _too_slow() from None
    return b"".join(found)


def _too_slow() -> Refusal:
    return Refusal(HTTPStatus.REQUEST_TIMEOUT, "the body arrives too slowly")


async def _parts(request: web.BaseRequest) -> AsyncGenerator[bytes, None]:
    """Yield the parts of a body as they arrive; Refusal (400, 408)."""
    loop = asyncio.get_running_loop()
    begun, size = loop.time(), 0
    while True:
        try:
            async with asyncio.timeout(GRACE_S):
                part = await request.content.readany()
        except TimeoutError:
            raise _too_slow() from None
        except (web.RequestPayloadError, HttpProcessingError) as err:
            raise bad_request("the body does not match the headers") from err
        except RuntimeError as err:
            raise ConnectionResetError("the client hung up before the end of the body") from err
        if not part:
            return
        yield part
        size += len(part)
        taken = loop.time() - begun
        if taken > GRACE_S and size < LEAST_RATE * taken:
            raise _too_slow()


class Incoming:
    """A body that its operation reads in parts, for as long as it arrives at a rate."""

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self.range = request.headers.get("Content-Range", "")
        self.length = request.content_length
        """None if the client does not say it."""
        self._is_awaited = _asks_first(request)

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """Yield the parts as they arrive; Refusal (400, 408)."""
        if self._is_awaited:
            await _ask_for(self._request)
            self._is_awaited = False
        async with contextlib.aclosing(_parts(self._request)) as parts:
            async for part in parts:
                yield part

    async def discard(self) -> None:
        """Discard the rest of a body, so that its client reads the refusal."""
        if not self._is_awaited and not self._request.content.is_eof():
            await _throw_away(self._request)


def _asks_first(request: web.BaseRequest) -> bool:
    return request.headers.get("Expect", "").lower() == "100-continue"


async def _ask_for(request: web.BaseRequest) -> None:
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0
