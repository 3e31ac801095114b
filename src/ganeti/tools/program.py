"""The common exit path of tools."""

import sys
from collections.abc import Callable
from pathlib import Path

from ganeti.base.errors import GanetiError, HostError
from ganeti.base.terminal import say


def ended(prog: str, work: Callable[[], int]) -> int:
    """Return the exit status of `work`; 1 for an error, which is printed."""
    try:
        return work()
    except GanetiError as err:
        say(f"{prog}: {err}", file=sys.stderr)
    except OSError as err:
        say(f"{prog}: {err.filename or ''}: {err.strerror}", file=sys.stderr)
    return 1


def read(path: Path) -> bytes:
    """Return the content of a file; HostError says why it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as err:
        raise HostError(f"cannot read {path}: {err.strerror}") from err
