"""Files of images that clients upload: a directory of their own on the node that receives them.

`ID.part` is unfinished, `ID` is complete, and `ID.json` describes it. All of them are opened from the directory's
descriptor and without following links, so the receiver needs no right to the directories above. The node daemon reads
complete uploads as root, and believes nothing that it finds there.
"""

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ganeti.base.errors import HostError
from ganeti.base.files import is_full

LIFE_S = 24 * 3600.0
"""Time after its last change after which an upload is stale."""
KEPT_FREE = 20
"""Uploads leave this part of the file system free: one twentieth."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_NAMES = re.compile(r"([0-9a-f]{32})(?:|[.]part|[.]json|[.]new)", re.ASCII)
_PART, _FACTS, _NEW_FACTS = ".part", ".json", ".new"
_FACTS_LIMIT = 64 * 1024
_CHUNK = 1 << 20


class Hasher(Protocol):
    """A digest of hashlib."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """What a client has declared about one upload."""

    id: str
    user: str
    begun: float
    size: int
    digest: str = ""
    """The expected SHA-256 or SHA-512; '' for any."""
    request: dict[str, Any] = {}
    """Fields of the opcode that imports the image."""
    job: int | None = None
    """The job that imports the image."""


def new_id() -> str:
    """Return the name of a new upload, which cannot be guessed."""
    return secrets.token_hex(16)


@dataclass(frozen=True)
class UploadDirectory:
    """The directory, by its descriptor; all methods block, and raise OSError."""

    descriptor: int

    @classmethod
    def open(cls, path: Path) -> "UploadDirectory":
        """Create the directory if it is missing, and open it; HostError."""
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
            return cls(os.open(path, _DIRECTORY))
        except OSError as err:
            raise HostError(f"the directory of uploads {path} is unusable: {err.strerror}") from err

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)

    def room(self) -> int:
        """Return the bytes that uploads may fill."""
        space = os.fstatvfs(self.descriptor)
        kept = space.f_blocks * space.f_frsize // KEPT_FREE
        return max(0, space.f_bavail * space.f_frsize - kept)

    def begin(self, upload: Upload) -> None:
        """Create the empty file of an upload, and its description."""
        os.close(os.open(upload.id + _PART, _NEW, 0o600, dir_fd=self.descriptor))
        self.describe(upload)

    def describe(self, upload: Upload) -> None:
        """Replace the description of an upload."""
        new = upload.id + _NEW_FACTS
        self._unlink(new)
        descriptor = os.open(new, _NEW, 0o600, dir_fd=self.descriptor)
        try:
            _write_at(descriptor, msgspec.json.encode(upload), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(new, upload.id + _FACTS, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def uploads(self) -> list[Upload]:
        """Return all uploads with a description, in the order of their beginning."""
        found = []
        for ident in self._idents():
            with contextlib.suppress(OSError, HostError, msgspec.MsgspecError):
                upload = self._described(ident)
                if upload.id == ident:
                    found.append(upload)
        return sorted(found, key=lambda one: (one.begun, one.id))

    def _described(self, ident: str) -> Upload:
        descriptor = os.open(ident + _FACTS, _OLD & ~os.O_RDWR, dir_fd=self.descriptor)
        try:
            _check_regular(descriptor)
            return msgspec.json.decode(os.pread(descriptor, _FACTS_LIMIT, 0), type=Upload)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def writing(self, ident: str) -> Iterator[int]:
        """Open the unfinished file of an upload; FileNotFoundError if it is complete or removed."""
        descriptor = os.open(ident + _PART, _OLD, dir_fd=self.descriptor)
        try:
            _check_regular(descriptor)
            yield descriptor
        finally:
            os.close(descriptor)

    def length(self, ident: str) -> int:
        """Return the number of bytes that the upload has, complete or not."""
        for name in (ident + _PART, ident):
            with contextlib.suppress(FileNotFoundError):
                return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_size
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), ident)

    def is_complete(self, ident: str) -> bool:
        """Return whether the upload has its last byte and the right digest."""
        return os.access(ident, os.F_OK, dir_fd=self.descriptor, follow_symlinks=False)

    def complete(self, ident: str) -> None:
        """Give the file the name under which a node reads it."""
        with self.writing(ident) as descriptor:
            os.fsync(descriptor)
        os.rename(ident + _PART, ident, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        os.fsync(self.descriptor)

    def remove(self, ident: str) -> None:
        """Remove an upload; idempotent."""
        for ending in (_PART, "", _NEW_FACTS, _FACTS):
            self._unlink(ident + ending)

    def remove_stale(
        self, now: float, *, keep: Callable[[str], bool] = lambda _ident: False
    ) -> list[str]:
        """Remove uploads that have not changed for a day, except those to `keep`; return their names."""
        gone = []
        for ident in self._idents():
            if not keep(ident) and now - self._changed(ident) > LIFE_S:
                self.remove(ident)
                gone.append(ident)
        return gone

    def _changed(self, ident: str) -> float:
        latest = 0.0
        for ending in (_PART, "", _FACTS):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(ident + ending, dir_fd=self.descriptor, follow_symlinks=False)
                latest = max(latest, status.st_mtime)
        return latest

    def _idents(self) -> list[str]:
        with os.scandir(self.descriptor) as entries:
            found = [_NAMES.fullmatch(one.name) for one in entries]
        return sorted({one[1] for one in found if one})

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)


def write_piece(descriptor: int, data: bytes, offset: int) -> None:
    """Write a piece at its offset; after an error the file ends where the piece began."""
    try:
        _write_at(descriptor, data, offset)
    except OSError:
        os.ftruncate(descriptor, offset)
        raise


def _write_at(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(descriptor, view, offset)
        view, offset = view[count:], offset + count


def digest_rest(descriptor: int, hasher: Hasher, offset: int) -> int:
    """Add the content after an offset to a digest; return the length of the file."""
    while data := os.pread(descriptor, _CHUNK, offset):
        hasher.update(data)
        offset += len(data)
    return offset


def open_complete(path: Path, ident: str) -> int:
    """Open a complete upload for reading; HostError unless it is a plain file of root or of the directory's owner."""
    if not _ID.fullmatch(ident):
        raise HostError(f"upload {ident!r:.60} does not exist")
    try:
        directory = os.open(path, _DIRECTORY)
    except OSError as err:
        raise _missing(ident, err) from err
    try:
        owners = {0, os.fstat(directory).st_uid}
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(ident, flags, dir_fd=directory)
    except OSError as err:
        raise _missing(ident, err) from err
    finally:
        os.close(directory)
    try:
        _check_regular(descriptor, owners)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _missing(ident: str, err: OSError) -> HostError:
    if err.errno != errno.ENOENT:
        return HostError(f"upload {ident} cannot be read: {err.strerror}")
    return HostError(
        f"upload {ident} does not exist on this node: it is incomplete, or was removed a day after its last byte;"
        " upload the image again"
    )


def _check_regular(descriptor: int, owners: set[int] | None = None) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise HostError("the file of an upload is not a plain file with one name; remove it")
    if owners is not None and status.st_uid not in owners:
        raise HostError(
            f"the file of an upload belongs to user {status.st_uid}, who cannot have uploaded it"
        )


def copy_in(path: Path, source: Path) -> str:
    """Return the name of a new complete upload with the content of a file of this host; HostError."""
    directory, ident = UploadDirectory.open(path), new_id()
    try:
        _copy_in(directory, ident, source)
    except BaseException:
        directory.remove(ident)
        raise
    finally:
        directory.close()
    return ident


def forget(path: Path, ident: str) -> None:
    """Remove an upload; HostError, OSError."""
    directory = UploadDirectory.open(path)
    try:
        directory.remove(ident)
    finally:
        directory.close()


def _copy_in(directory: UploadDirectory, ident: str, source: Path) -> None:
    try:
        with source.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise HostError(f"{source} is not a regular file")
            if size > (room := directory.room()):
                raise HostError(
                    f"{source} has {size} bytes, but uploads on this node may fill only {room} bytes; free some space"
                )
            target = os.open(ident + _PART, _NEW, 0o600, dir_fd=directory.descriptor)
            try:
                offset = 0
                while data := file.read(_CHUNK):
                    _write_at(target, data, offset)
                    offset += len(data)
            finally:
                os.close(target)
        directory.complete(ident)
    except OSError as err:
        why = "the disk is full" if is_full(err) else err.strerror
        raise HostError(f"{source} cannot be copied for the import: {why}") from err


def new_hasher(digits: str) -> Hasher:
    """Return the digest for an expected digest: SHA-512 for 128 digits, otherwise SHA-256."""
    return hashlib.sha512() if len(digits) == hashlib.sha512().digest_size * 2 else hashlib.sha256()
