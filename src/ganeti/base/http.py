"""aiohttp, without the files that its import reads: a tenth of the start of each daemon.

It would load the certificates of all system authorities, and a table of file types. A cluster
trusts only its own authority; code that needs the system's calls `ssl.create_default_context()`.
"""

import mimetypes
import ssl
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nothing_is_read() -> Iterator[None]:
    """Import parts of aiohttp in this context."""
    load, known = ssl.SSLContext.load_default_certs, mimetypes.knownfiles
    ssl.SSLContext.load_default_certs = lambda *_args: None  # type: ignore[method-assign]  # for the imports only
    mimetypes.knownfiles = []
    try:
        yield
    finally:
        ssl.SSLContext.load_default_certs = load  # type: ignore[method-assign]  # what it was before
        mimetypes.knownfiles = known


with nothing_is_read():
    import aiohttp

__all__ = ["aiohttp"]
