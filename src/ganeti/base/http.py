"""aiohttp, without the files that its import reads: a tenth of the start of each daemon.

It would load the certificates of all system authorities, and a table of file types. A cluster
trusts only its own authority; code that needs the system's calls `ssl.create_default_context()`.
"""

import mimetypes
import ssl
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _nothing_is_read() -> Iterator[None]:
    load, known = ssl.SSLContext.load_default_certs, mimetypes.knownfiles
    ssl.SSLContext.load_default_certs = lambda *_args: None  # type: ignore[method-assign]  # for the imports only
    mimetypes.knownfiles = []
    try:
        yield
    finally:
        ssl.SSLContext.load_default_certs = load  # type: ignore[method-assign]  # what it was before
        mimetypes.knownfiles = known


with _nothing_is_read():
    import aiohttp
    from aiohttp import web
    from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
    from aiohttp.streams import StreamReader
    from aiohttp.web_protocol import RequestHandler

__all__ = ["HttpProcessingError", "LineTooLong", "RequestHandler", "StreamReader", "aiohttp", "web"]
