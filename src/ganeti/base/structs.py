"""msgspec, without typing_extensions: a fifth of the start of a short command.

msgspec takes two names from typing_extensions where it is installed, and the same names from `typing` otherwise.
typing_extensions imports `inspect` and what that needs.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

OPTIONAL = "typing_extensions"


@contextmanager
def _not_installed() -> Iterator[None]:
    if "msgspec" in sys.modules or OPTIONAL in sys.modules:
        yield
        return
    sys.modules[OPTIONAL] = None  # type: ignore[assignment]  # how Python marks a module that cannot be imported
    try:
        yield
    finally:
        del sys.modules[OPTIONAL]


with _not_installed():
    import msgspec

__all__ = ["msgspec"]
