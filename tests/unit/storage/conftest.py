"""A node with a directory for disks in files."""

from pathlib import Path

import pytest

from ganeti.base.paths import Paths

ROOT = "/srv/ganeti/file-storage"
PATH = f"{ROOT}/web1/disk0"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """The paths of the node, which may have disks below ROOT."""
    paths = Paths(tmp_path)
    paths.etc.mkdir(parents=True)
    paths.file_storage_paths.write_text(f"{ROOT}\n")
    paths.below(ROOT).mkdir(parents=True)
    return paths


@pytest.fixture
def where(paths: Paths) -> Path:
    """The file of the disk at PATH on this node."""
    return paths.below(PATH)
