"""What the watcher keeps between its runs: `/var/lib/ganeti/watcher.data`, a whole file or none."""

from pathlib import Path

import msgspec

from ganeti.base.files import write_atomically
from ganeti.watcher.facts import Memory


def read_memory(path: Path) -> Memory:
    """What was written last; nothing if there is none, or none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Memory)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return Memory()


def write_memory(path: Path, memory: Memory) -> None:
    """Keep it durably; OSError."""
    write_atomically(path, msgspec.json.encode(memory) + b"\n")
