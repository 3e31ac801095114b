"""`gnt-backup mount`: shows the disks of a backup on this node by NBD, until it is interrupted.

Two processes: the first one opens the images and the socket, waits, and removes the socket. The second one has these
open files, no privileges and a user of its own; it alone reads what clients and images contain.
"""

import argparse
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from ganeti import uidpool
from ganeti.base.errors import ErrorCode, GanetiError, PrereqError
from ganeti.base.paths import Paths
from ganeti.base.sizes import format_mib
from ganeti.base.terminal import say
from ganeti.images.convert import UIDS
from ganeti.node.backups.decrypt import read_keyring
from ganeti.node.backups.directory import Contents, allowed_targets, entered
from ganeti.node.backups.images import Chain, open_chain
from ganeti.node.backups.nbd_server import KEPT_PIECES, NbdServer
from ganeti.node.backups.rights import drop_rights
from ganeti.protocols.backup_encryption import NO_KEYS, BackupKeyring
from ganeti.protocols.backup_manifest import Manifest
from ganeti.storage.confinement import DirectoryMissing
from ganeti.uidpool import ReleaseUid, RequestUnusedUid

MIB = 1 << 20
ENDED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def chosen(contents: Contents, point: str) -> Manifest:
    """Return the named backup, or the last one; PrereqError."""
    if point:
        return contents.find(point)
    if contents.last is None:
        why = "; ".join(f"{name}: {problem}" for name, problem in contents.problems.items())
        raise PrereqError(
            f"there is no usable backup; {why}".rstrip("; "), ErrorCode.UNKNOWN_ENTITY
        )
    return contents.last


def place_of(paths: Paths, instance: str, given: str) -> tuple[str, str]:
    """Return the directory of this node with backups of the instance, and its full name; PrereqError."""
    allowed = allowed_targets(paths)
    targets = [given] if given else list(allowed.entries)
    for target in targets:
        with contextlib.suppress(DirectoryMissing):
            names = [
                name
                for name in allowed.directories(target)
                if name == instance or name.startswith(f"{instance}.")
            ]
            if len(names) > 1 and instance not in names:
                raise PrereqError(
                    f"{instance} can be {', '.join(sorted(names))}; pass the full name",
                    ErrorCode.WRONG_INPUT,
                )
            if names:
                return target, instance if instance in names else names[0]
    raise PrereqError(
        f"this node has no backups of {instance} in {', '.join(targets) or 'any directory'}; run the command on the node"
        " that 'gnt-backup points' shows on the master",
        ErrorCode.UNKNOWN_ENTITY,
    )


@contextlib.contextmanager
def opened_disks(
    paths: Paths, target: str, instance: str, point: str, keys: BackupKeyring = NO_KEYS
) -> Iterator[tuple[Manifest, Mapping[str, Chain]]]:
    """Open the images of a backup; the names of the disks are their numbers."""
    with contextlib.ExitStack() as files:
        directory = files.enter_context(entered(paths, target, instance, keys=keys))
        with directory.locked():
            contents = directory.complete()
            found = chosen(contents, point)
            chains = {
                str(number): files.enter_context(
                    open_chain(
                        directory.descriptor,
                        found,
                        image.disk,
                        contents.points,
                        keys=keys,
                        kept=KEPT_PIECES,
                    )
                )
                for number, image in enumerate(found.disks)
            }
        yield found, chains


@contextlib.contextmanager
def listening() -> Iterator[tuple[Path, socket.socket]]:
    """Listen at a socket that only this user can reach; it is removed at the end."""
    place = Path(tempfile.mkdtemp(prefix="ganeti-backup-"))
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place / "nbd"))
            listener.listen()
            yield place / "nbd", listener
    finally:
        shutil.rmtree(place)


@contextlib.contextmanager
def own_user(paths: Paths) -> Iterator[int]:
    """Reserve an unused user id; the present one if this is not root."""
    if os.getuid():
        yield os.getuid()
        return
    locked = RequestUnusedUid(UIDS, directory=uidpool.lock_directory(paths))
    try:
        yield int(locked)
    finally:
        ReleaseUid(locked)


def serve(uid: int, chains: Mapping[str, Chain], listener: socket.socket) -> NoReturn:
    """Drop all privileges and serve, as the second process."""
    status = 1
    try:
        drop_rights(uid)
        NbdServer(chains, lambda why: say(f"damaged: {why}", file=sys.stderr)).run(listener)
        status = 0
    finally:
        os._exit(status)


def told(point: Manifest, path: Path, chains: Mapping[str, Chain]) -> list[str]:
    """Return what the user needs to know."""
    uri = f"nbd+unix:///0?socket={path}"
    return [
        f"Backup {point.point} of {point.instance} can be read here until you press Ctrl-C:",
        *(
            f"  disk {name}, {format_mib(chain.size // MIB)}: nbd+unix:///{name}?socket={path}"
            for name, chain in chains.items()
        ),
        "Files, without trust in the file systems of the guest (package libguestfs-tools):",
        f"  guestmount --ro --format=raw -a '{uri}' -i /mnt",
        "By the kernel of this node (package nbd-client):",
        f"  nbd-client -unix {path} /dev/nbd0 -name 0 -readonly && mount -o ro /dev/nbd0p1 /mnt",
        "A whole disk:",
        f"  qemu-img convert -p -O raw '{uri}' disk.raw",
    ]


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT, SIGTERM or the end of the second process."""
    paths = Paths.from_environment()
    target, instance = place_of(paths, args.instance, args.target)
    keys = read_keyring(args.key_file, instance) if args.key_file else NO_KEYS
    with (
        opened_disks(paths, target, instance, args.point, keys) as (point, chains),
        listening() as (path, listener),
        own_user(paths) as uid,
    ):
        signal.pthread_sigmask(signal.SIG_BLOCK, (*ENDED_BY, signal.SIGCHLD))
        child = os.fork()
        if not child:
            serve(uid, chains, listener)
        listener.close()
        say(*told(point, path, chains), sep="\n")
        sys.stdout.flush()
        is_asked = signal.sigwait((*ENDED_BY, signal.SIGCHLD)) in ENDED_BY
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    return 0 if is_asked else abs(os.waitstatus_to_exitcode(status)) or 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; `gnt-backup mount` has the help."""
    parser = argparse.ArgumentParser(prog="gnt-backup mount")
    parser.add_argument("instance")
    parser.add_argument("--point", default="")
    parser.add_argument("--target", default="")
    parser.add_argument("--key-file", default="")
    try:
        return run(parser.parse_args(argv))
    except (GanetiError, OSError) as err:
        say(f"Failure: {err}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
