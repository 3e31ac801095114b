"""The program that merges or checks backups: `python -m ganeti.node.backups.program ACTION DIRECTORY LOG [POINT...]`.

It runs as a task of the node, and prints its result as JSON.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from ganeti.base.errors import GanetiError, HostError
from ganeti.base.terminal import say
from ganeti.model import wire
from ganeti.node.backups.ahead import all_pieces, content, read_ahead, wanted
from ganeti.node.backups.directory import NEW, BackupDirectory, Contents, opened
from ganeti.node.backups.images import (
    Chain,
    ImageReader,
    ImageWriter,
    new_image,
    open_image,
    stored_problems,
)
from ganeti.node.backups.key_pipe import received_keys
from ganeti.node.backups.proofs import record
from ganeti.node.carrier.progress import ProgressFile
from ganeti.protocols.backup_encryption import NO_KEYS
from ganeti.protocols.backup_manifest import PIECE, Image, Manifest, chain_of
from ganeti.protocols.backup_proof import with_check
from ganeti.rpc.procedures.backups import PointCheck


def prune(directory: BackupDirectory, names: Sequence[str], report: ProgressFile) -> None:
    """Remove backups, one after the other; each is removed completely, or not at all."""
    with directory.locked():
        for number, name in enumerate(names):
            contents = directory.settle()
            if contents.problems:
                raise HostError(
                    f"nothing is removed while a manifest is damaged: {'; '.join(contents.problems.values())}"
                )
            point = contents.points.get(name)
            if point is None:
                continue
            child = contents.child(name)
            if child is not None:
                part = f"merging {name} into {child.point} ({number + 1} of {len(names)})"
                _merge(directory, point, child, report, part)
            directory.remove_point(point)


def _merge(
    directory: BackupDirectory, point: Manifest, child: Manifest, report: ProgressFile, part: str
) -> None:
    """Let `child` no longer need `point`."""
    images = []
    for image in child.disks:
        below = point.image(image.disk)
        if below is None or image.backing != below.file:
            images.append(image)
        else:
            tell = partial(report.of_part, part)
            images.append(_merged(directory, child.key_id, image, below, tell))
    directory.begin_merge(child, point, images)


def _merged(
    directory: BackupDirectory,
    key_id: str,
    image: Image,
    below: Image,
    tell: Callable[[int, int], None],
) -> Image:
    """Write the new form of an image, with the blocks of the one below it; every piece that is read is checked."""
    keys = directory.keys or NO_KEYS
    with contextlib.ExitStack() as files:

        def reader(one: Image) -> ImageReader:
            descriptor = open_image(directory.descriptor, one)
            files.callback(os.close, descriptor)
            cipher = keys.cipher(key_id, one) if key_id else None
            return ImageReader(one, descriptor, cipher=cipher)

        chain = Chain([reader(image), reader(below)], image.size)
        target = new_image(directory.descriptor, image.file + NEW)
        files.callback(os.close, target)
        # A new data key: the nonces of the former one are used up.
        cipher, key = replace(keys, current=key_id).new_cipher(image.file) or (None, "")
        writer = ImageWriter(target, image.size, below.backing, cipher)
        files.callback(writer.close)
        for one, found in read_ahead(wanted(chain.extents()), chain.layers, content):
            if one.is_zero:
                writer.zeros(one.offset, one.length)
            elif found is not None:
                writer.extent(one.offset, one.length)
                writer.append(found.result())
            tell(one.offset + one.length, image.size)
        length, pieces = writer.finish()
    return msgspec.structs.replace(
        image,
        backing=below.backing,
        length=length,
        pieces=pieces,
        key=key,
        tags=writer.tags,
    )


def check(directory: BackupDirectory, report: ProgressFile) -> list[PointCheck]:
    """Read every image; return and record for each backup what is wrong with it, the oldest first."""
    with directory.locked():
        contents = directory.complete()
    problems = {
        image.file: _problems(directory, image, point.key_id, report)
        for point in contents.points.values()
        for image in point.disks
    }
    locked = _without_keys(directory)
    checks = _checked_without_keys(directory, locked, report)
    checks += [
        _recorded(directory, point, _problems_of(point, contents, problems))
        for point in contents.points.values()
    ]
    checks += [
        PointCheck(point=name, problems=[problem])
        for name, problem in contents.problems.items()
        if name not in locked.points
    ]
    return checks


def _without_keys(directory: BackupDirectory) -> Contents:
    """Return the backups whose keys are not here: their digests can be compared nevertheless."""
    if directory.keys is None:
        return Contents()
    keys, found = directory.keys.keys, replace(directory, keys=None).contents().points
    return Contents(
        {name: one for name, one in found.items() if one.key_id and one.key_id not in keys}
    )


def _stored_problems(directory: BackupDirectory, image: Image, report: ProgressFile) -> list[str]:
    """Return how the stored bytes of an image differ from the manifest, which itself cannot be verified."""
    try:
        descriptor = open_image(directory.descriptor, image)
    except HostError as err:
        return [str(err)]
    try:
        return stored_problems(image, descriptor, partial(report.of_part, image.file))
    finally:
        os.close(descriptor)


def _checked_without_keys(
    directory: BackupDirectory, locked: Contents, report: ProgressFile
) -> list[PointCheck]:
    """Compare what is stored with the digests in manifests without their keys; record nothing."""
    problems = {
        image.file: _stored_problems(directory, image, report)
        for point in locked.points.values()
        for image in point.disks
    }
    return [
        PointCheck(
            point=point.point,
            problems=_problems_of(point, locked, problems),
            unrecorded=f"backup key {point.key_id} is not here, so only the stored bytes were compared with their digests",
        )
        for point in locked.points.values()
    ]


def _recorded(directory: BackupDirectory, point: Manifest, problems: list[str]) -> PointCheck:
    """Record a result in the proof of the backup. A target that is read-only or full can be checked nevertheless."""
    unrecorded, now = "", time.time()
    try:
        record(directory, point, lambda proof, same: with_check(proof, same, now, problems))
    except (HostError, OSError) as err:
        unrecorded = str(err)
    return PointCheck(point=point.point, problems=problems, unrecorded=unrecorded)


def _problems_of(
    point: Manifest, contents: Contents, problems: Mapping[str, list[str]]
) -> list[str]:
    found = []
    for number, image in enumerate(point.disks):
        try:
            needed = chain_of(point, image.disk, contents.points)
        except HostError as err:
            found.append(f"disk {number}: {err}")
            continue
        found += [f"disk {number}: {why}" for one in needed for why in problems[one.file]]
    return found


def _problems(
    directory: BackupDirectory, image: Image, key_id: str, report: ProgressFile
) -> list[str]:
    """Return what is wrong with one image."""
    keys = directory.keys or NO_KEYS
    try:
        descriptor = open_image(directory.descriptor, image)
    except HostError as err:
        return [str(err)]
    found = []
    try:
        cipher = keys.cipher(key_id, image) if key_id else None
        reader = ImageReader(image, descriptor, cipher=cipher)
        for number, read in all_pieces(reader):
            try:
                read.result()
            except HostError as err:
                found.append(str(err))
            report.of_part(image.file, min(image.length, (number + 1) * PIECE), image.length)
        if not found:
            for _ in Chain([reader], image.size).extents():
                pass
    except (HostError, OSError) as err:
        found.append(str(err))
    finally:
        os.close(descriptor)
    return found


def main(argv: Sequence[str]) -> int:
    """Carry out an action; print the result as JSON, or an error."""
    action, path, log_path, *names = argv
    report = ProgressFile(Path(log_path))
    try:
        result = list[PointCheck]()
        with opened(path, received_keys()) as directory:
            if action == "check":
                result = check(directory, report)
            else:
                prune(directory, names, report)
    except (GanetiError, OSError) as err:
        say(str(err), file=sys.stderr)
        return 1
    say(wire.encode(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
