"""TPM 2.0: a process of swtpm beside each guest with one, and its state on the node.

swtpm runs as QEMU's user, without privileges from its first instruction, and opens nothing by a path: the socket on
which it waits for QEMU and the directory of its state are inherited descriptors. It ends when QEMU ends.

The state is a directory of each instance on its node, 0700. It moves with a guest that is down (`read`, `write`); in a
live migration QEMU transfers it, and the target begins with none.
"""

import contextlib
import os
import re
import shutil
import socket
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import HypervisorError
from ganeti.base.files import sync_directory, write_atomically
from ganeti.base.paths import Paths
from ganeti.base.process import CLEAN_ENVIRONMENT
from ganeti.hypervisor.kvm.options import option
from ganeti.hypervisor.kvm.runtime import GuestFiles

PROGRAM = "swtpm"
STATE = "tpm2-00.permall"
"""swtpm's name of the persistent state, the only data to keep."""
SIZE_LIMIT = 1024 * 1024
_OWN_NAMES = re.compile(r"\.lock|tpm2-00\.[a-z]+|TMP2-00\.[a-z]+")


@dataclass(frozen=True)
class Launch:
    """The start of swtpm: its words, its user, and its inherited descriptors."""

    words: Sequence[str]
    """Its own words, which identify its process."""
    launcher: Sequence[str]
    descriptors: Sequence[int]


def missing() -> str:
    """Return the sentence for a node without swtpm; '' if it is installed."""
    return "" if _program() else "tpm: swtpm is not installed on this node; install swtpm"


def tpm_words(files: GuestFiles) -> list[str]:
    """Return the options of QEMU."""
    return [
        *("-chardev", option("socket", id="tpm-control", path=str(files.tpm))),
        *("-tpmdev", option("emulator", id="tpm0", chardev="tpm-control")),
        *("-device", option("tpm-crb", id="tpm", tpmdev="tpm0")),
    ]


@contextlib.contextmanager
def prepared(
    paths: Paths, files: GuestFiles, instance_uuid: str, owner: tuple[int, int], *, is_new: bool
) -> Iterator[Launch]:
    """Give the start of a guest's TPM, with its descriptors open for the time of a block. Blocks shortly.

    With `is_new` the TPM has no state: the incoming guest brings it. HypervisorError.
    """
    program = _program()
    if program is None:
        raise HypervisorError(missing())
    with contextlib.ExitStack() as stack:
        try:
            directory = stack.enter_context(
                _opened(_directory(paths, instance_uuid), owner, is_new=is_new)
            )
            server = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            server.bind(str(files.tpm))
            files.tpm.chmod(0o600)
            server.listen(1)
            log = stack.enter_context(files.qemu_log.open("ab"))
        except OSError as err:
            raise HypervisorError(f"the TPM of this guest is not available: {err}") from err
        words = [
            *(program, "socket", "--tpm2", "--terminate"),
            *("--tpmstate", f"dir=/proc/self/fd/{directory},mode=0600"),
            *("--ctrl", f"type=unixio,fd={server.fileno()}"),
            # It also makes the words unique to this guest's process.
            *(
                "--log",
                f"fd={log.fileno()},level=1,prefix=tpm of {files.tpm.stem} in {files.directory}: ",
            ),
        ]
        yield Launch(words, _launcher(owner), (directory, server.fileno(), log.fileno()))


def read(paths: Paths, instance_uuid: str) -> bytes | None:
    """Return the state of an instance that is down, or None if it has none here. Blocks. HypervisorError."""
    path = _directory(paths, instance_uuid) / STATE
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise HypervisorError(f"{path} cannot be read: {err.strerror}") from err
    with os.fdopen(file, "rb") as opened:
        if not _is_plain(file):
            raise HypervisorError(f"{path} is not a separate regular file; remove it for a new TPM")
        content = opened.read(SIZE_LIMIT + 1)
    if len(content) > SIZE_LIMIT:
        raise HypervisorError(
            f"{path} has more than {SIZE_LIMIT} bytes and is not the state of a TPM"
        )
    return content


def write(paths: Paths, instance_uuid: str, content: bytes) -> None:
    """Store the state of a stopped instance here, replacing any other. Blocks. HypervisorError."""
    if not 0 < len(content) <= SIZE_LIMIT:
        raise HypervisorError(f"{len(content)} bytes are not the state of a TPM")
    forget(paths, instance_uuid)
    directory = _directory(paths, instance_uuid)
    try:
        directory.mkdir(mode=0o700, parents=True)
        write_atomically(directory / STATE, content)
    except OSError as err:
        raise HypervisorError(f"{directory} cannot be written: {err.strerror}") from err


def forget(paths: Paths, instance_uuid: str) -> None:
    """Remove the state of an instance; no-op if there is none. Blocks. HypervisorError."""
    directory = _directory(paths, instance_uuid)
    try:
        if directory.exists():
            shutil.rmtree(directory)
            sync_directory(directory.parent)
    except OSError as err:
        raise HypervisorError(f"{directory} cannot be removed: {err.strerror}") from err


def _directory(paths: Paths, instance_uuid: str) -> Path:
    return paths.tpm_states / instance_uuid


@contextlib.contextmanager
def _opened(directory: Path, owner: tuple[int, int], *, is_new: bool) -> Iterator[int]:
    """Return the directory of a guest's state, which with all its content now belongs to its user."""
    if is_new and directory.exists():
        shutil.rmtree(directory)
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _give(opened, owner)
        yield opened
    finally:
        os.close(opened)


def _give(directory: int, owner: tuple[int, int]) -> None:
    """Change the owner of a directory; its former owner may have put anything there."""
    for name in os.listdir(directory):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            file = os.open(name, flags, dir_fd=directory)
        except OSError:
            file = -1
        try:
            if file >= 0 and _OWN_NAMES.fullmatch(name) and _is_plain(file):
                os.fchown(file, *owner)
            else:
                raise HypervisorError(
                    f"the directory of this guest's TPM holds {name!r:.60}, which does not belong to the TPM;"
                    " check it, and remove it"
                )
        finally:
            if file >= 0:
                os.close(file)
    os.fchown(directory, *owner)


def _is_plain(file: int) -> bool:
    """Return whether it is a file with one name."""
    status = os.fstat(file)
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _launcher(owner: tuple[int, int]) -> list[str]:
    """Return the command prefix that starts a program without privileges; only root has privileges to drop."""
    if os.geteuid() != 0:
        return []
    uid, gid = owner
    return [
        *("/usr/bin/setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups"),
        *("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--"),
    ]


def _program() -> str | None:
    return shutil.which(PROGRAM, path=CLEAN_ENVIRONMENT["PATH"])
