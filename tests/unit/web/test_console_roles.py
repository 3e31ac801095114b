"""The roles with which the web console's tests open its pages are those of the server."""

import json
from pathlib import Path

import pytest

from ganeti.model.rest_rights import parse_options
from ganeti.web.resources.every import OPERATIONS
from ganeti.web.scope import allowed

USERS = {
    "admin": "write",
    "operator": "operator",
    "reader": "read",
    "guest": "",
    "tenant": "write,name=web1*",
    "tenant_reader": "read,name=web1*",
    "tenant_guest": "name=web1*",
}
KNOWN = json.loads((Path(__file__).parents[3] / "console/test/roles.json").read_text())["roles"]
ASKED = {operation for found in KNOWN.values() for operation in found}
"""The operations that the console's pages need."""


@pytest.mark.parametrize("role", USERS)
def test_roles_of_the_console_are_those_of_the_server(role: str) -> None:
    rights = parse_options([word for word in USERS[role].split(",") if word])
    assert set(KNOWN[role]) == ASKED & set(allowed(OPERATIONS, rights))
