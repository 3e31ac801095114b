"""The files of the web console, below `/ui/`: read once into memory, so that no path of a request reaches the disk."""

import asyncio
import gzip
import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from ganeti.base.http_web import web
from ganeti.web.refusals import Refusal, not_found

PREFIX = "/ui/"
INDEX = "index.html"
ASSETS = "assets/"
"""Names below this directory contain a digest of the content, so browsers may keep them for ever."""
FILE_LIMIT = 16 * 1024 * 1024
FILES_LIMIT = 1000
COMPRESSED_FROM = 1024
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".jpg": "image/jpeg",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_COMPRESSED = frozenset((".css", ".html", ".js", ".json", ".svg", ".txt", ".wasm", ".webmanifest"))
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob: data:; connect-src 'self'; style-src 'self';"
    " script-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Server": "Ganeti",
}
_FOR_EVER, _AGAIN = "public, max-age=31536000, immutable", "no-cache"
NOT_BUILT = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>Ganeti</title>
<h1>The web console is not installed</h1>
<p>Run <code>make console</code> in the checkout, or install a package that contains the console, then load this page
again. The <a href="/2/docs">REST interface</a> works without it.</p></html>
"""
_Version = tuple[int, int, int]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _File:
    body: bytes
    compressed: bytes | None
    content_type: str
    etag: str
    caching: str


class UiFiles:
    """The files of one directory; they are read again when its `index.html` is another file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: Mapping[str, _File] = {}
        self._seen: _Version | None = None
        self._turn = asyncio.Lock()

    async def answer(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        """Return the file of a path below `/ui/`; a page of the console itself gets the index. Refusal (404, 405)."""
        if method not in ("GET", "HEAD"):
            why = "the files of the console can only be read"
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, why, {"Allow": "GET, HEAD"})
        files = await self._current()
        name = path.removeprefix(PREFIX)
        found = files.get(name or INDEX)
        if found is None and name.startswith(ASSETS):
            raise not_found("the console has no such file; load its page again")
        found = found or files.get(INDEX)
        if found is None:
            return web.Response(
                status=503, text=NOT_BUILT, content_type="text/html",
                headers={**_HEADERS, "Cache-Control": "no-store"},
            )  # fmt: skip
        shown = {**_HEADERS, "Cache-Control": found.caching, "ETag": found.etag}
        if found.compressed is not None:
            shown["Vary"] = "Accept-Encoding"
        if found.etag in headers.get("If-None-Match", "").split(", "):
            return web.Response(status=304, headers=shown)
        body = found.body
        if found.compressed is not None and _accepts_gzip(headers.get("Accept-Encoding", "")):
            body = found.compressed
            shown["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers={**shown, "Content-Type": found.content_type})

    async def _current(self) -> Mapping[str, _File]:
        """Return the files, read again after a change."""
        if self._version() != self._seen:
            async with self._turn:
                if (version := self._version()) != self._seen:
                    self._files = await asyncio.to_thread(lambda: dict(_read(self._directory)))
                    self._seen = version
        return self._files

    def _version(self) -> _Version:
        try:
            status = (self._directory / INDEX).stat()
        except OSError:
            return 0, 0, 0
        return status.st_mtime_ns, status.st_ino, status.st_size


def is_ui(path: str) -> bool:
    """Return True for a path of the console."""
    return path.startswith(PREFIX) or path == PREFIX[:-1]


def _read(directory: Path) -> Iterator[tuple[str, _File]]:
    """Yield all ordinary files with their names; symbolic links are left out."""
    count = 0
    for place, _, names in os.walk(directory):
        for name in sorted(names):
            path = Path(place, name)
            if path.is_symlink() or not path.is_file() or path.stat().st_size > FILE_LIMIT:
                continue
            count += 1
            if count > FILES_LIMIT:
                log.error("%s has more than %d files; the rest is not served", directory, count)
                return
            yield path.relative_to(directory).as_posix(), _file(path, directory)


def _file(path: Path, directory: Path) -> _File:
    body = path.read_bytes()
    compressed = None
    if path.suffix in _COMPRESSED and len(body) >= COMPRESSED_FROM:
        compressed = gzip.compress(body, mtime=0)
    is_asset = path.relative_to(directory).as_posix().startswith(ASSETS)
    return _File(
        body,
        compressed,
        _TYPES.get(path.suffix, "application/octet-stream"),
        f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        _FOR_EVER if is_asset else _AGAIN,
    )


def _accepts_gzip(accepted: str) -> bool:
    words = (one.strip().partition(";") for one in accepted.lower().split(","))
    return any(
        name.strip() == "gzip" and quality.replace(" ", "") not in ("q=0", "q=0.0")
        for name, _, quality in words
    )
