"""The program that runs a script of an OS definition on disks in images.

`python -m ganeti.node.image_scripts DISKS PROGRAM ...` is a task of the node. A script needs the bytes of a disk at a
path, so each image gets a raw copy beside it, sparse, for the time of the script. If the script succeeds, each changed
copy becomes a new image, and these replace the old ones. So a script that fails or is interrupted changes no disk.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ganeti.base.errors import GanetiError
from ganeti.base.files import sync_directory
from ganeti.base.terminal import say
from ganeti.model import wire
from ganeti.node.carrier.ends import open_sink, open_source
from ganeti.node.carrier.flow import own_environment, text_of
from ganeti.node.carrier.order import EndOrder
from ganeti.storage.image_files import new_image, raw_copy, write_empty_image

_ENDED_BY_SIGNAL = 128


class ImageOfScript(msgspec.Struct, frozen=True):
    """An image and the bytes of its disk."""

    path: str
    size: int

    @property
    def raw(self) -> str:
        """The path that the script gets."""
        return raw_copy(self.path)


def command(images: Sequence[ImageOfScript]) -> list[str]:
    """Return the words before those of a script; none if it needs no copies."""
    if not images:
        return []
    return [sys.executable, "-m", __name__, wire.encode(list(images)).decode()]


def discard(images: Sequence[ImageOfScript]) -> None:
    """Remove what a script has left that was killed together with this program."""
    for image in images:
        for path in (image.raw, new_image(image.path)):
            Path(path).unlink(missing_ok=True)


def run(images: Sequence[ImageOfScript], argv: Sequence[str]) -> int:
    """Run a script; return its exit status. GanetiError or OSError if a disk cannot be copied."""
    try:
        discard(images)
        for image in images:
            raw = EndOrder(path=image.raw, makes_file=True)
            _copy(EndOrder(path=image.path, is_image=True), raw, image.size)
            os.utime(image.raw, (0, 0))  # any write of the script sets another time
        status = subprocess.run(
            argv, check=False, env=own_environment(), close_fds=False
        ).returncode
        if not status:
            _keep([image for image in images if Path(image.raw).stat().st_mtime_ns])
        return status if status >= 0 else _ENDED_BY_SIGNAL - status
    finally:
        discard(images)


def _keep(images: Sequence[ImageOfScript]) -> None:
    """Let the raw copies replace their images."""
    for image in images:
        new = new_image(image.path)
        with open(new, "xb") as file:  # noqa: PTH123 - the names are text
            write_empty_image(file.fileno(), image.size)
            for name in os.listxattr(image.path):
                if name.startswith("user."):
                    os.setxattr(file.fileno(), name, os.getxattr(image.path, name))
        _copy(EndOrder(path=image.raw), EndOrder(path=new, is_image=True), image.size)
    for image in images:
        Path(new_image(image.path)).rename(image.path)
        sync_directory(Path(image.path).parent)


def _copy(source: EndOrder, sink: EndOrder, size: int) -> None:
    try:
        with open_source(source, size, {}) as data, open_sink(sink, {}) as target:
            for zeros, piece in data.pieces():
                target.take(zeros, piece)
            data.finish()
            target.finish()
    except OSError as err:
        raise GanetiError(text_of(sink.path, err)) from err


def main(argv: Sequence[str]) -> int:
    """Run a script; return the exit status, and print errors to standard error."""
    try:
        return run(wire.decode(argv[0], list[ImageOfScript], what="images"), argv[1:])
    except (GanetiError, OSError) as err:
        say(str(err), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
