"""Remove leftovers of unfinished work on a node; each function returns the actions that it took."""

import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from ganeti.base.paths import Paths

DAY_S = 24 * 3600.0
"""The validity of a transfer's certificate, and the longest time to write a file."""
_TEMPORARY = re.compile(r"[.].+[.][0-9a-f]{16}", re.ASCII)
"""The pattern of unfinished files of `base.files.AtomicFile`."""


def forget_old_keys(paths: Paths, now: float) -> list[str]:
    """Remove the keys of transfers whose certificates have expired (S219).

    A move's first step makes one on the instance's node; if the step that uses it never comes, no job removes it. The
    instance at the destination belongs to that cluster's job, which waits for the same time at most.
    """
    done = []
    for key in _old(paths.transfer_keys, now):
        shutil.rmtree(key, ignore_errors=True)
        done.append(f"removed {key.name}, the key of an unfinished transfer")
    return done


def forget_temporary_files(paths: Paths, now: float) -> list[str]:
    """Remove files whose writer died."""
    done = []
    for place in (paths.data, paths.etc):
        for path in _old(place, now):
            if _TEMPORARY.fullmatch(path.name) and stat.S_ISREG(path.lstat().st_mode):
                path.unlink()
                done.append(f"removed {path}, whose writer died")
    return done


def forget_image_work(paths: Paths, now: float) -> list[str]:
    """Remove images of machines that were being written to disks when this host went down."""
    done = []
    for work in _old(paths.image_work, now):
        if all(now - file.lstat().st_mtime > DAY_S for file in work.rglob("*")):
            shutil.rmtree(work, ignore_errors=True)
            done.append(f"removed {work}, an image that was not written completely")
    return done


def forget_uploads(paths: Paths, now: float) -> list[str]:
    """Remove images that clients uploaded while this node was the master, and that no job has imported since."""
    if not paths.image_uploads.is_dir():
        return []
    from ganeti.images.uploads import UploadDirectory  # noqa: PLC0415 - heavy, and only for nodes with uploads

    directory = UploadDirectory.open(paths.image_uploads)
    try:
        gone = directory.remove_stale(now)
    finally:
        directory.close()
    return [f"removed upload {ident}, which had not changed for a day" for ident in gone]


def _old(place: Path, now: float) -> Iterator[Path]:
    """Yield entries that have not changed for a day, without links."""
    try:
        found = sorted(place.iterdir())
    except FileNotFoundError:
        return
    for path in found:
        if not path.is_symlink() and now - path.stat().st_mtime > DAY_S:
            yield path
