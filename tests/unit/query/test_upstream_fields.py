"""Every field of the original is there, with its heading and its kind; what is ours comes on top."""

import json
from pathlib import Path
from typing import Any

import pytest

from ganeti.query.execute import KINDS, definitions

CAPTURE = Path(__file__).parents[4] / "shared" / "captures" / "query_fields.json"

pytestmark = pytest.mark.skipif(not CAPTURE.exists(), reason="no captures of the original")


def captured() -> dict[str, dict[str, dict[str, str]]]:
    found: dict[str, dict[str, dict[str, str]]] = json.loads(CAPTURE.read_text())
    return found


@pytest.mark.parametrize(
    "kind", ["export", "filter", "group", "instance", "job", "lock", "network", "node"]
)
def test_names_headings_and_kinds_are_those_of_upstream(kind: str) -> None:
    ours: dict[str, Any] = {
        one["name"]: {"title": one["title"], "kind": one["kind"]}
        for one in definitions(KINDS[kind], None)
    }
    theirs = captured()[kind]
    assert {name: ours.get(name) for name in theirs} == theirs
