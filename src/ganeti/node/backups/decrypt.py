"""`gnt-backup decrypt`: writes the plain form of one instance's encrypted backups; needs a key, and no cluster.

An encrypted image is a qcow2 file in encrypted pieces, so the plain form is exactly that file. All manifests are
verified first. A piece that is damaged is reported, and what does not need its image is written nevertheless.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from ganeti.base.backup_ciphers import ImageCipher, instance_key, key_id
from ganeti.base.errors import GanetiError, HostError
from ganeti.base.terminal import say
from ganeti.model import wire
from ganeti.node.backups.ahead import all_pieces
from ganeti.node.backups.directory import NEW, BackupDirectory, opened
from ganeti.node.backups.images import ImageReader, new_image, open_image
from ganeti.node.carrier.pieces import PieceWriter
from ganeti.protocols.backup_encryption import BackupKeyring
from ganeti.protocols.backup_manifest import FORMAT, PIECE, SUFFIX, Image, Manifest
from ganeti.protocols.paper_key import parse_paper

_KEY_FILE_LIMIT = 64 << 10


def read_keyring(key_file: str, instance: str) -> BackupKeyring:
    """Return the keys for an instance's backups from a file with the text of a page, or '-'; GanetiError."""
    file = sys.stdin.fileno() if key_file == "-" else os.open(key_file, os.O_RDONLY | os.O_CLOEXEC)
    with os.fdopen(file, "rb", closefd=key_file != "-") as opened_file:
        content = opened_file.read(_KEY_FILE_LIMIT)
    key = parse_paper(content.decode("utf-8", "replace"))
    return BackupKeyring({key_id(key): instance_key(key, instance)})


def decrypt(source: BackupDirectory, target: BackupDirectory, keys: BackupKeyring) -> list[str]:
    """Write all backups of a directory to an empty one; return what could not be written, and why."""
    if target.names():
        raise HostError("the directory for the decrypted backups is not empty")
    with source.locked():
        contents = source.complete()
    problems = [f"{name}: {why}" for name, why in contents.problems.items()]
    for point in contents.points.values():
        try:
            plain = _decrypted(source, target, keys, point)
        except (HostError, OSError) as err:
            problems.append(f"{point.point}: {err}")
        else:
            target.write(plain.file, wire.encode(plain))
    return problems


def _decrypted(
    source: BackupDirectory, target: BackupDirectory, keys: BackupKeyring, point: Manifest
) -> Manifest:
    disks = tuple(
        _written(source, target, one, keys.cipher(point.key_id, one) if point.key_id else None)
        for one in point.disks
    )
    return replace(
        point, format=FORMAT, disks=disks, description=keys.description(point), key_id="", seal=""
    )


def _written(
    source: BackupDirectory, target: BackupDirectory, image: Image, cipher: ImageCipher | None
) -> Image:
    """Write the plain form of an image; return its description. HostError if a piece is damaged."""
    with contextlib.ExitStack() as files:
        descriptor = open_image(source.descriptor, image)
        files.callback(os.close, descriptor)
        reader = ImageReader(image, descriptor, cipher=cipher)
        new = new_image(target.descriptor, image.file + NEW)
        files.callback(os.close, new)
        writer = PieceWriter(new, PIECE, digests=True)
        files.callback(writer.close)
        for number, read in all_pieces(reader):
            piece, room = read.result(), writer.room()
            room[: len(piece)] = piece
            writer.put(number * PIECE, room, len(piece))
        writer.finish()
    target.rename(image.file + NEW, image.file)
    pieces = tuple(writer.found[at] for at in sorted(writer.found))
    return replace(image, pieces=pieces, key="", tags="")


def run(args: argparse.Namespace) -> int:
    """Decrypt; 1 if anything could not be written."""
    source, target = Path(args.directory).absolute(), Path(args.target).absolute()
    keys = read_keyring(args.key_file, source.name)
    target.mkdir(mode=0o700, exist_ok=True)
    with opened(source, keys) as found, opened(target) as new:
        problems = decrypt(found, new, keys)
        names = [one for one in new.names() if one.endswith(SUFFIX)]
    for name in names:
        say(f"decrypted {name.removesuffix(SUFFIX)}")
    for problem in problems:
        say(f"Failure: {problem}", file=sys.stderr)
    return 1 if problems else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; `gnt-backup decrypt` has the help."""
    parser = argparse.ArgumentParser(prog="gnt-backup decrypt")
    parser.add_argument("directory")
    parser.add_argument("target")
    parser.add_argument("--key-file", required=True)
    try:
        return run(parser.parse_args(argv))
    except (GanetiError, OSError) as err:
        say(f"Failure: {err}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
