"""A listening unix socket that only its owner and group can ever reach (A19)."""

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from ganeti.base.errors import ConfigurationError

BACKLOG = 1024
_UMASK = 0o117
"""Sets mode 0660 from the beginning: no other user can connect at any moment."""
_PATH_LIMIT = 107


class Listener:
    """A socket that listens at a path; it replaces the socket of a dead daemon."""

    def __init__(self, path: Path, *, group: int | None = None) -> None:
        """ConfigurationError if something else, or a live daemon, is at `path`."""
        self.path = path
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _short_name(path) as name:
                _make_room(path, name)
                _bind(self.socket, name, path)
                if group is not None:
                    os.chown(name, -1, group, follow_symlinks=False)
                self._inode = os.lstat(name).st_ino
            self.socket.listen(BACKLOG)
            self.socket.setblocking(False)
        except BaseException:
            self.socket.close()
            raise

    def close(self) -> None:
        """Stop, and remove the socket unless another process has replaced it."""
        with contextlib.suppress(OSError), _short_name(self.path) as name:
            if os.lstat(name).st_ino == self._inode:
                Path(name).unlink()
        self.socket.close()


def _bind(listener: socket.socket, name: str, path: Path) -> None:
    before = os.umask(_UMASK)
    try:
        listener.bind(name)
    except OSError as err:
        raise ConfigurationError(f"cannot listen at {path}: {err.strerror}") from err
    finally:
        os.umask(before)


def _make_room(path: Path, name: str) -> None:
    try:
        found = os.lstat(name)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid not in (os.geteuid(), 0):
        what = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "something"
        raise ConfigurationError(
            f"{what} at {path} is not a socket of this daemon; find out which program made it, "
            "remove it, and start the daemon again"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(name)
        except ConnectionRefusedError:
            Path(name).unlink()
            return
        except BlockingIOError:
            pass
    raise ConfigurationError(f"another daemon already listens at {path}")


@contextlib.contextmanager
def _short_name(path: Path) -> Iterator[str]:
    """Return a name for `path` that fits into a socket address."""
    if len(os.fsencode(path)) <= _PATH_LIMIT:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
