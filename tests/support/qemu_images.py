"""Images of disks as QEMU's tools read and write them."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def ran(*words: str | Path) -> None:
    """Run a program; CalledProcessError if it fails."""
    subprocess.run(words, check=True, capture_output=True)


def qemu_io(image: Path, *commands: str) -> None:
    """Let QEMU write to an image."""
    ran("qemu-io", "-f", "qcow2", *(word for one in commands for word in ("-c", one)), image)


def check(image: Path) -> None:
    """Fail unless an image is sound."""
    ran("qemu-img", "check", "-q", "-f", "qcow2", image)


def convert(source: Path, target: Path, source_format: str, target_format: str) -> None:
    """Write the disk in a file to another file, which is made anew."""
    ran("qemu-img", "convert", "-f", source_format, "-O", target_format, source, target)


def raw_of(image: Path) -> bytes:
    """Return the disk in an image, which must be sound."""
    check(image)
    raw = image.parent.parent / "raw"
    convert(image, raw, "qcow2", "raw")
    return raw.read_bytes()


@contextmanager
def in_use(image: Path) -> Iterator[None]:
    """Let QEMU use an image for the block."""
    words = ["qemu-io", "-f", "qcow2", str(image)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdin is not None
        assert user.stdout is not None
        user.stdin.write(b"length\n")
        user.stdin.flush()
        assert b"MiB" in user.stdout.readline()
        yield
        user.stdin.close()
