"""Uploads of images: who may begin one, where the next byte belongs, and the job that imports it.

The files are those of `ganeti.images.uploads`. One request at a time writes to an upload.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

import msgspec

from ganeti.base.clock import Clock
from ganeti.base.errors import GanetiError, HostError
from ganeti.base.files import is_full
from ganeti.base.run_to_completion import run_to_completion
from ganeti.images.uploads import (
    LIFE_S,
    Hasher,
    Upload,
    UploadDirectory,
    digest_rest,
    new_hasher,
    write_piece,
)
from ganeti.model.names import JobStatus
from ganeti.web.master import MasterConnections
from ganeti.web.refusals import Refusal, bad_request, not_found

UPLOADS_LIMIT, UPLOADS_OF_USER = 16, 4
SIZE_LIMIT = 64 << 40
PIECE_BYTES = 256 * 1024
"""Bytes that are collected before they are written."""
OFFSET_HEADER = "Upload-Offset"
_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-([0-9]{1,18})|[*])/([0-9]{1,18})", re.ASCII)

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass
class _Active:
    """An upload, and the digest of its first `hashed` bytes."""

    upload: Upload
    hasher: Hasher
    offset: int = 0
    hashed: int = 0
    is_complete: bool = False
    is_busy: bool = False

    def shown(self) -> dict[str, Any]:
        """Return the form for clients."""
        one = self.upload
        return {
            "id": one.id,
            "name": one.request["image_name"],
            "user": one.user,
            "size": one.size,
            "offset": self.offset,
            "digest": one.digest,
            "format": one.request["source_format"],
            "state": "complete" if self.is_complete else "receiving",
            "begun": one.begun,
            "job": one.job,
        }


class Body(Protocol):
    """The body of a request (`bodies.Incoming`)."""

    @property
    def range(self) -> str:
        """`Content-Range`."""

    @property
    def length(self) -> int | None:
        """`Content-Length`."""

    def parts(self) -> AsyncGenerator[bytes, None]: ...


class Piece:
    """The position of one body within an upload, from `Content-Range`."""

    def __init__(self, text: str, size: int, length: int | None) -> None:
        found = _RANGE.fullmatch(text)
        if found is None:
            raise bad_request(
                "the header Content-Range must be 'bytes FIRST-LAST/SIZE', or 'bytes */SIZE' without a body"
            )
        first, last, total = found.groups()
        if int(total) != size:
            raise bad_request(f"Content-Range: the upload has {size} bytes, not {int(total)}")
        self.first = None if first is None else int(first)
        self.end = 0 if last is None else int(last) + 1
        if self.first is None:
            if length:
                raise bad_request("Content-Range 'bytes */SIZE' must not have a body")
        elif not self.first < self.end <= size:
            raise bad_request("Content-Range: FIRST <= LAST < SIZE must hold")
        elif length not in (None, self.end - self.first):
            raise bad_request(
                f"the body has {length} bytes, but Content-Range has {self.end - self.first}"
            )


class Uploads:
    """All uploads to this node; `directory` may be the reason why there can be none."""

    def __init__(
        self, directory: UploadDirectory | HostError, master: MasterConnections, clock: Clock
    ) -> None:
        self._directory = directory
        self._master = master
        self._clock = clock
        self._active: dict[str, _Active] | None = None
        self._changing = asyncio.Lock()

    def _place(self) -> UploadDirectory:
        if isinstance(self._directory, HostError):
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, self._directory.message)
        return self._directory

    async def _known(self) -> dict[str, _Active]:
        """Return all uploads; those of an earlier process of this server are read once."""
        if self._active is None:
            directory = self._place()
            found = await asyncio.to_thread(directory.uploads)
            if self._active is None:
                self._active = {}
                for upload in found:
                    with contextlib.suppress(FileNotFoundError):
                        self._active[upload.id] = _Active(
                            upload,
                            new_hasher(upload.digest),
                            directory.length(upload.id),
                            is_complete=directory.is_complete(upload.id),
                        )
        return self._active

    async def of_user(self, user: str) -> list[dict[str, Any]]:
        """Return the uploads of a user, in the order of their beginning."""
        return [one.shown() for one in (await self._known()).values() if one.upload.user == user]

    async def _find(self, user: str, ident: str) -> _Active:
        found = (await self._known()).get(ident)
        if found is None or found.upload.user != user:
            raise not_found(
                f"upload {ident} does not exist; an upload ends with a change of the master, and a day after its"
                " last byte: begin it again"
            )
        return found

    async def one(self, user: str, ident: str) -> dict[str, Any]:
        """Return one upload of a user; Refusal (404)."""
        return (await self._find(user, ident)).shown()

    async def begin(self, upload: Upload) -> dict[str, Any]:
        """Begin an upload; Refusal (429, 503, 507)."""
        directory = self._place()
        async with self._changing:
            known = await self._known()
            self._check_room(directory, upload)
            await self._write(directory.begin, upload)
            known[upload.id] = _Active(upload, new_hasher(upload.digest))
        return known[upload.id].shown()

    def _check_room(self, directory: UploadDirectory, upload: Upload) -> None:
        all_ones = list((self._active or {}).values())
        of_user = sum(one.upload.user == upload.user for one in all_ones)
        if of_user >= UPLOADS_OF_USER:
            why = f"user {upload.user} has {of_user} uploads, which is the limit; finish or remove one"
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, why)
        if len(all_ones) >= UPLOADS_LIMIT:
            why = f"this node has {len(all_ones)} uploads, which is its limit; try again later"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, why, {"Retry-After": "60"})
        room = directory.room() - sum(one.upload.size - one.offset for one in all_ones)
        if upload.size > room:
            raise _no_room(
                f"the upload has {upload.size} bytes, but the node has room for {max(0, room)}"
            )

    async def append(self, user: str, ident: str, body: Body) -> Upload | None:
        """Append a piece at its offset; return the upload once it is complete.

        Refusal: 400 for a wrong range or a wrong digest, which also removes the upload; 409 with the offset of the
        next byte for another offset; 507 if the disk is full.
        """
        found = await self._find(user, ident)
        piece = Piece(body.range, found.upload.size, body.length)
        if found.is_busy:
            raise _conflict(found, "another request writes to the upload; repeat this one after it")
        found.is_busy = True
        try:
            if found.is_complete:
                return found.upload
            if piece.first is not None:
                if piece.first != found.offset:
                    raise _conflict(
                        found, f"the next byte of the upload is {found.offset}, not {piece.first}"
                    )
                await self._receive(found, piece, body)
            return await self._completed(found) if found.offset == found.upload.size else None
        finally:
            found.is_busy = False

    async def _receive(self, found: _Active, piece: Piece, body: Body) -> None:
        pieces = _collected(body.parts())
        with self._opened(found.upload.id) as descriptor:
            async with contextlib.aclosing(pieces):
                async for data in pieces:
                    if found.offset + len(data) > piece.end:
                        raise bad_request("the body is longer than its Content-Range")
                    await self._write(write_piece, descriptor, data, found.offset)
                    if found.hashed == found.offset:
                        await asyncio.to_thread(found.hasher.update, data)
                        found.hashed += len(data)
                    found.offset += len(data)

    @contextlib.contextmanager
    def _opened(self, ident: str) -> Iterator[int]:
        try:
            with self._place().writing(ident) as descriptor:
                yield descriptor
        except FileNotFoundError as err:
            raise not_found(f"upload {ident} was removed; begin it again") from err

    async def _write(self, write: Callable[..., T], *args: Any) -> T:
        try:
            return await run_to_completion(asyncio.to_thread(write, *args))
        except OSError as err:
            if is_full(err):
                raise _no_room(
                    "the disk of the node is full; repeat the request when there is room"
                ) from err
            raise

    async def _completed(self, found: _Active) -> Upload:
        directory, upload = self._place(), found.upload
        with self._opened(upload.id) as descriptor:
            found.hashed = await run_to_completion(
                asyncio.to_thread(digest_rest, descriptor, found.hasher, found.hashed)
            )
        digest = found.hasher.hexdigest()
        if found.hashed != upload.size or upload.digest not in ("", digest):
            await self._forget(upload.id)
            raise bad_request(
                f"the digest of the upload is {digest}, not {upload.digest}: the file differs or was damaged."
                " The upload was removed; begin it again"
            )
        found.upload = msgspec.structs.replace(upload, digest=digest)
        await self._write(directory.describe, found.upload)
        await self._write(directory.complete, upload.id)
        found.is_complete = True
        return found.upload

    async def imported_by(self, ident: str, job: int) -> dict[str, Any]:
        """Record the job that imports an upload."""
        found = (await self._known())[ident]
        found.upload = msgspec.structs.replace(found.upload, job=job)
        await self._write(self._place().describe, found.upload)
        return found.shown()

    async def remove(self, user: str, ident: str) -> None:
        """Remove an upload; Refusal (404, 409)."""
        found = await self._find(user, ident)
        if found.is_busy:
            raise _conflict(found, "a request writes to the upload; end it first")
        await self._forget(ident)

    async def _forget(self, ident: str) -> None:
        (await self._known()).pop(ident, None)
        await run_to_completion(asyncio.to_thread(self._place().remove, ident))

    async def _has_succeeded(self, job: int) -> bool:
        rows = await self._master.ask("QueryJobs", [str(job)], ["status"])
        return bool(rows) and rows[0] == [JobStatus.SUCCESS]

    async def look(self) -> None:
        """Remove stale uploads, and those whose import has succeeded."""
        if isinstance(self._directory, HostError):
            return
        try:
            known = await self._known()
            busy = {ident for ident, one in known.items() if one.is_busy}
            now = self._clock.time()
            gone = await run_to_completion(
                asyncio.to_thread(self._directory.remove_stale, now, keep=busy.__contains__)
            )
            for ident in gone:
                known.pop(ident, None)
                log.info("upload %s was removed: it had not changed for %d s", ident, LIFE_S)
            for ident, one in list(known.items()):
                if one.upload.job is not None and await self._has_succeeded(one.upload.job):
                    await self._forget(ident)
        except (GanetiError, Refusal, OSError) as err:
            log.warning("looking after uploads: %s", err)


def _conflict(found: _Active, why: str) -> Refusal:
    return Refusal(HTTPStatus.CONFLICT, why, {OFFSET_HEADER: str(found.offset)})


def _no_room(why: str) -> Refusal:
    return Refusal(HTTPStatus.INSUFFICIENT_STORAGE, why)


async def _collected(parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield pieces that are long enough to be written, also those before an error."""
    kept, size = list[bytes](), 0
    try:
        async with contextlib.aclosing(parts):
            async for part in parts:
                kept.append(part)
                size += len(part)
                if size >= PIECE_BYTES:
                    yield b"".join(kept)
                    kept, size = [], 0
    except (Refusal, ConnectionError):
        if kept:
            yield b"".join(kept)
        raise
    if kept:
        yield b"".join(kept)
