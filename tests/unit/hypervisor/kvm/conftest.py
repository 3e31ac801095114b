"""What tests of the kvm driver share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Short enough for the names of sockets, which have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="gnt-") as name:
        yield Path(name)
