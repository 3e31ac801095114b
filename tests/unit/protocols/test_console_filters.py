"""The filter language of the web console is that of the commands: both parse the same table in the same way."""

import json
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import InputError
from ganeti.protocols.query_language import parse_filter

VECTORS = json.loads((Path(__file__).parents[3] / "console/test/filters.json").read_text())


@pytest.mark.parametrize(("text", "expected"), VECTORS, ids=[str(one[0]) for one in VECTORS])
def test_console_and_commands_parse_a_filter_alike(text: str, expected: Any) -> None:
    if expected is None:
        with pytest.raises(InputError):
            parse_filter(text)
    else:
        assert parse_filter(text) == expected
