"""Upstream's cluster descriptions and messages, which are kept beside the project, not in it."""

import os
from pathlib import Path

import pytest

from ganeti.placement.description import Cluster
from ganeti.placement.load.text import parse
from ganeti.placement.state import State

TOP = Path(__file__).resolve().parents[2]


def fixture_path(name: str, folder: str = "htools") -> Path:
    """The file of that name; skips the test, saying so, where the folder is absent."""
    given = os.environ.get("GANETI_FIXTURES")
    places = [Path(given)] if given else [TOP.parent / "shared" / "fixtures"]
    for place in places:
        path = place / folder / name
        if path.exists():
            return path
    pytest.skip(f"no fixture {name}: set GANETI_FIXTURES to the folder that has {folder}/")


def fixture_cluster(name: str) -> Cluster:
    """A cluster description."""
    return parse(fixture_path(name).read_text())


def fixture_state(name: str) -> State:
    """A cluster as arrays."""
    return State(fixture_cluster(name))
