"""The table of limits in docs/rules.md shows the bounds that the code has."""

import re
from pathlib import Path

import pytest

from ganeti.api import luxi_server
from ganeti.base import http_server, identifiers
from ganeti.model import wire
from ganeti.model.limits import MANY_LIVE_JOBS, MAX_DISKS, MAX_LIVE_JOBS, MAX_NICS, MAX_TAGS
from ganeti.protocols import confd, luxi
from ganeti.rpc import server as rpc_server
from ganeti.web import bodies, delays, operations

TOP = Path(__file__).resolve().parents[3]
REST, LUXI = http_server.Limits(), luxi_server.Limits()


def mib(size: int) -> str:
    return f"{size >> 20} MiB"


def kib(size: int) -> str:
    return f"{size >> 10} KiB"


def spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


BOUNDS = {
    "TLS handshake time": f"{REST.handshake_s:.0f} s",
    "request line / one header / all headers / count": f"{kib(REST.line_bytes)} / {kib(REST.line_bytes)}"
    f" / {kib(REST.headers_bytes)} / {REST.headers}",
    "time to complete headers / body": f"{REST.headers_s:.0f} s / {bodies.BODY_S:.0f} s,"
    f" minimum {kib(bodies.LEAST_RATE)}/s",
    "RAPI body": mib(operations.BODY_LIMIT),
    "REST connections total / per address (configurable) / unauthenticated idle": f"{REST.connections:,}"
    f" / {REST.connections_of_address} by default / {REST.headers_s:.0f} s",
    "failed logins": f"delay {delays.FIRST_S:g}→{delays.LONGEST_S:g} s",
    "JSON depth": f"{wire.DEPTH_LIMIT}",
    "LUXI message / clients": f"{mib(luxi.MESSAGE_LIMIT)}, ≤ {LUXI.message_s:.0f} s to complete"
    f" / {LUXI.clients:,}",
    "node RPC body (compressed bodies are refused)": mib(rpc_server.BODY_LIMIT),
    "confd packet": f"≤ {spaced(confd.PACKET_LIMIT)} B",
    "names": f"≤ {identifiers.NAME_LIMIT}; tags ≤ 128, ≤ {spaced(MAX_TAGS)} per object",
    "disks / NICs": f"{MAX_DISKS} / {MAX_NICS}",
    "live jobs": f"{spaced(MANY_LIVE_JOBS)} soft warning, {spaced(MAX_LIVE_JOBS)} refuse",
}


@pytest.mark.parametrize("item", BOUNDS)
def test_table_of_limits_has_the_bound_of_the_code(item: str) -> None:
    page = (TOP / "docs" / "rules.md").read_text()
    row = re.search(rf"^\| {re.escape(item)} \| (.+?) \|", page, re.MULTILINE)
    assert row is not None
    assert BOUNDS[item] in row[1]
