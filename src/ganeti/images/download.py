"""Download of a file by https, with a limit; redirects must be https as well."""

import ssl
import time
import urllib.request
from http.client import HTTPException
from typing import IO, Protocol

from ganeti.base.errors import HostError
from ganeti.model.image_source import check_url

_SILENCE_S = 60.0
_TIME_LIMIT_S = 4 * 3600.0
_CHUNK = 1 << 18


class Target(Protocol):
    """A file that is written from the beginning to the end."""

    def write(self, data: bytes, /) -> int: ...

    def flush(self) -> None: ...


def fetch(address: str, target: Target, limit: int, context: ssl.SSLContext | None = None) -> int:
    """Write the file at an address into a file; return its length. HostError gives the reason of a failure."""
    check_url(address)
    secure = urllib.request.HTTPSHandler(context=context or ssl.create_default_context())
    opener = urllib.request.OpenerDirector()
    for handler in (
        secure,
        _OnlyHttps(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    try:
        with opener.open(address, timeout=_SILENCE_S) as source:
            length = _copy(source, target, limit)
            wanted = source.headers.get("Content-Length")
    except (OSError, HTTPException, HostError) as err:
        raise HostError(f"{address} cannot be downloaded: {err}") from err
    if wanted is not None and wanted != str(length):
        raise HostError(f"{address} was truncated after {length} bytes")
    target.flush()
    return length


def _copy(source: IO[bytes], target: Target, limit: int) -> int:
    begun, length = time.monotonic(), 0
    while data := source.read(_CHUNK):
        length += len(data)
        if length > limit:
            raise HostError(f"it is longer than the limit of {limit} bytes")
        if time.monotonic() - begun > _TIME_LIMIT_S:
            raise HostError("it takes longer than four hours")
        target.write(data)
    return length


class _OnlyHttps(urllib.request.HTTPRedirectHandler):
    max_redirections = 5

    def redirect_request(  # noqa: PLR0917 - the library's signature
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: object,
        newurl: str,
    ) -> urllib.request.Request | None:
        check_url(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]  # typeshed's own name for it
