"""Answers calls about shared files: the master's versions, and their installation elsewhere.

This module decides which files may be written (F37): a few files by their names, those that
hypervisors need, files directly in the directory for shared files, and the files that this node's
administrator lists in `allowed-uploads`, one absolute path a line. A line that ends with `/` allows
files directly in that directory. The directory for shared files is created if it is missing.
Directories are opened one by one without following links. They must belong to this user or root and
be closed to other writers (A28).
"""

import asyncio
import contextlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ganeti.base import permissions
from ganeti.base.errors import ErrorCode, HostError, PrereqError
from ganeti.base.paths import Paths
from ganeti.base.users import MASTERD, ServiceUsers
from ganeti.hypervisor.interface import Hypervisor
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.files import (
    SHARED_FILES,
    WRITE_FILE,
    NodeFile,
    SharedFiles,
    SharedFilesArgs,
)
from ganeti.rpc.procedures.form import Nothing

SIZE_LIMIT = 4 * 1024 * 1024
FILES_LIMIT = 200
MODE_MASK = 0o755
"""Permitted mode bits: no file becomes writable for others, set-user-id or the like."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOR_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def handlers(paths: Paths, hypervisors: Mapping[str, Hypervisor]) -> Handlers:
    """The answers to the calls about shared files."""
    files = _Files(paths, hypervisors)
    return {SHARED_FILES.name: files.shared, WRITE_FILE.name: files.write}


@dataclass(frozen=True)
class _Files:
    paths: Paths
    hypervisors: Mapping[str, Hypervisor]

    async def shared(self, args: SharedFilesArgs, _call: Call) -> SharedFiles:
        drivers = [self.hypervisors[name] for name in args.hypervisors if name in self.hypervisors]
        needed = [path for driver in drivers for path in driver.options.shared_files]
        needed += args.named
        return await asyncio.to_thread(shared_files, self.paths, needed)

    async def write(self, args: NodeFile, _call: Call) -> Nothing:
        needed = [
            path for driver in self.hypervisors.values() for path in driver.options.shared_files
        ]
        try:
            await asyncio.to_thread(write_file, self.paths, args, needed)
        except OSError as err:
            raise HostError(f"cannot write {args.path}: {err.strerror}") from err
        return Nothing()


def _name(paths: Paths, path: Path) -> str:
    """Return the cluster's name of a path on this node."""
    return "/" + str(path.relative_to(paths.root))


def candidates_only(paths: Paths) -> tuple[Path, ...]:
    """Return the secrets that only candidates may have."""
    of_rest = (paths.rapi_certificate, paths.rapi_users, paths.rapi_openid)
    return *of_rest, paths.cluster_domain_secret


def shared_files(paths: Paths, needed: Sequence[str]) -> SharedFiles:
    """Return the files that other nodes must have in this node's version.

    `needed` are those of hypervisors. Blocks.
    """
    own_list = _name(paths, paths.distributed_files)
    listed = listed_paths(paths.distributed_files)
    secret = [_name(paths, path) for path in candidates_only(paths)]
    files, problems = [], []
    for path in dict.fromkeys([own_list, *listed, *needed, *secret][:FILES_LIMIT]):
        try:
            files.append(_read(paths, path, candidates_only=path in secret))
        except FileNotFoundError:
            if path in listed:
                problems.append(f"{path} is listed in {own_list} and does not exist")
        except (OSError, PrereqError) as err:
            why = err.strerror if isinstance(err, OSError) else err.message
            problems.append(f"{path} is not distributed: {why}")
    return SharedFiles(files=files, problems=problems)


def listed_paths(source: Path) -> list[str]:
    """Return the lines of a list of paths, without comments; empty if the list does not exist."""
    try:
        lines = source.read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    return [text for line in lines if (text := line.partition("#")[0].strip())]


def checksums_of(paths: Paths, wanted: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of the present files. Blocks."""
    import hashlib  # noqa: PLC0415 - rarely needed

    found = {}
    for path in wanted:
        with contextlib.suppress(OSError, PrereqError):
            content = _read(paths, path).content
            found[path] = hashlib.sha256(content).hexdigest()
    return found


def _read(paths: Paths, path: str, *, candidates_only: bool = False) -> NodeFile:
    _check_path(path)
    descriptor = os.open(paths.below(path), _FOR_READING)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PrereqError(f"{path} is not a regular file", ErrorCode.ENVIRONMENT)
        if status.st_size > SIZE_LIMIT:
            raise PrereqError(f"{path} has more than {SIZE_LIMIT} bytes", ErrorCode.ENVIRONMENT)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(SIZE_LIMIT)
    finally:
        os.close(descriptor)
    mode = stat.S_IMODE(status.st_mode) & MODE_MASK
    return NodeFile(path=path, content=content, mode=mode, candidates_only=candidates_only)


def _check_path(path: str) -> None:
    """Raise InputError for anything but a plain absolute path of a file."""
    parts = path.split("/")
    if not path.startswith("/") or path.endswith("/") or not path.isprintable():
        raise PrereqError(f"{path!r:.200} is not an absolute path", ErrorCode.WRONG_INPUT)
    if any(part in ("", ".", "..") for part in parts[1:]):
        raise PrereqError(f"{path!r:.200} is not a plain path", ErrorCode.WRONG_INPUT)


def is_allowed(paths: Paths, path: str, needed: Sequence[str]) -> bool:
    """Return whether the master may write this file here."""
    ours = (paths.distributed_files, *candidates_only(paths))
    if path in needed or path in [_name(paths, one) for one in ours]:
        return True  # files that this node's own programs name
    pure = PurePosixPath(path)
    if str(pure.parent) == _name(paths, paths.shared_files):
        return True
    own = [PurePosixPath(_name(paths, one)) for one in (paths.data, paths.run, paths.log)]
    lists = [_name(paths, one) for one in (paths.allowed_uploads, paths.file_storage_paths)]
    if path in lists or any(pure.is_relative_to(one) for one in own):
        return False  # even if it is listed: the file would grant further rights on this node
    allowed = listed_paths(paths.allowed_uploads)
    return path in allowed or f"{pure.parent}/" in allowed


def write_file(paths: Paths, file: NodeFile, needed: Sequence[str]) -> None:
    """Replace a file with the master's, synced; PrereqError if this node does not allow it."""
    _check_path(file.path)
    if len(file.content) > SIZE_LIMIT:
        raise PrereqError(f"{file.path} has more than {SIZE_LIMIT} bytes", ErrorCode.WRONG_INPUT)
    if not is_allowed(paths, file.path, needed):
        raise PrereqError(
            f"this node does not allow the master to write {file.path}: keep the file in"
            f" {_name(paths, paths.shared_files)}, which every node accepts, or list its path in"
            f" {_name(paths, paths.allowed_uploads)} on this node",
            ErrorCode.WRONG_STATE,
        )
    if paths.below(file.path).parent == paths.shared_files:
        paths.shared_files.mkdir(mode=0o755, exist_ok=True)
    users = ServiceUsers.of_node(paths)
    names = file.path.strip("/").split("/")
    with _opened(paths.root, names[:-1], _trusted(users)) as directory:
        _replace(directory, names[-1], file)
    if users is not None:
        permissions.repair(paths, users, [paths.below(file.path)])


def _trusted(users: ServiceUsers | None) -> frozenset[int]:
    """Return the trusted owners of directories: root, this user, and the master daemon's user."""
    masters = {users.accounts[MASTERD].uid} if users else set()
    return frozenset((0, os.geteuid(), *masters))


@contextlib.contextmanager
def _opened(root: Path, names: Sequence[str], trusted: frozenset[int]) -> Iterator[int]:
    """Open the directory that `names` lead to from `root`, following no link; a missing one is refused."""
    descriptor = os.open(root, _DIRECTORY)
    try:
        for name in names:
            below = os.open(name, _DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
            status = os.fstat(descriptor)
            if status.st_uid not in trusted or status.st_mode & 0o022:
                raise PrereqError(
                    f"other users can write to the directory {name}, so no file is written there",
                    ErrorCode.ENVIRONMENT,
                )
        yield descriptor
    finally:
        os.close(descriptor)


def _replace(directory: int, name: str, file: NodeFile) -> None:
    with contextlib.suppress(FileNotFoundError):
        there = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISREG(there.st_mode):
            raise PrereqError(
                f"{file.path} is not a regular file on this node", ErrorCode.ENVIRONMENT
            )
    temporary = f".{name[:100]}.{secrets.token_hex(8)}"
    descriptor = os.open(temporary, _NEW_FILE, 0o600, dir_fd=directory)
    try:
        with open(descriptor, "wb") as new:  # noqa: PTH123 - a descriptor
            new.write(file.content)
            new.flush()
            os.fchmod(descriptor, file.mode & MODE_MASK)
            os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise
    os.fsync(directory)
