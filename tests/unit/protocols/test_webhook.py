"""Requests of webhooks: what a receiver verifies, and where none is sent."""

import re
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import InputError
from ganeti.protocols.webhook import (
    SECRET_MIN,
    Happened,
    body,
    check_secret,
    check_url,
    headers,
    refusal_of,
)

TOP = Path(__file__).resolve().parents[3]
SECRET = "0123456789abcdef"
CONTENT = body("c.example.com", "chat", [Happened("5-1-1", "job", {"id": 7})])
NOW = 1_800_000_000


def documented() -> Any:
    """The receiver's function, as the manual shows it."""
    page = (TOP / "docs" / "integrations.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(code[1], names)  # noqa: S102 - our own page
    return names["is_genuine"]


def test_documented_receiver_accepts_what_is_sent() -> None:
    sent = headers("chat", "u.5-1-1", NOW, SECRET, CONTENT)
    assert documented()(SECRET, sent, CONTENT, NOW + 299)
    assert CONTENT == (
        b'{"cluster":"c.example.com","events":[{"content":{"id":7},"kind":"job","number":"5-1-1"}],'
        b'"version":1,"webhook":"chat"}'
    )


@pytest.mark.parametrize("change", [
    {"X-Ganeti-Signature": "sha256=00"},
    {"X-Ganeti-Timestamp": str(NOW - 1)},
    {"X-Ganeti-Signature": ""},
])  # fmt: skip
def test_documented_receiver_refuses_an_altered_request(change: dict[str, str]) -> None:
    sent = headers("chat", "u.5-1-1", NOW, SECRET, CONTENT)
    assert not documented()(SECRET, {**sent, **change}, CONTENT, NOW)


def test_documented_receiver_refuses_another_body_secret_or_time() -> None:
    sent = headers("chat", "u.5-1-1", NOW, SECRET, CONTENT)
    assert not documented()(SECRET, sent, CONTENT + b" ", NOW)
    assert not documented()(SECRET[::-1], sent, CONTENT, NOW)
    assert not documented()(SECRET, sent, CONTENT, NOW + 301)


@pytest.mark.parametrize("url", [
    "https://hooks.example.com/ganeti", "http://192.0.2.1:8080", "https://[2001:db8::1]:8443/a?token=b",
])  # fmt: skip
def test_usual_addresses_are_accepted(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(("url", "why"), [
    ("ftp://example.com/", "must begin with"), ("file:///etc/passwd", "must begin with"), ("", "must begin with"),
    ("https://", "must name a host"), ("https:///x", "must name a host"), ("https://h:0/", "must name a host"),
    ("https://h:99999/", "is not an address"), ("https://a:b@h/", "password"), ("https://a@h/", "password"),
    ("https://h/#x", "'#'"), ("https://h/ x", "no space"), ("https://h/\r\nX: y", "printable"),
    ("https://ü.example/", "ASCII"), ("https://[fe80::1%25eth0]/", "must name a host"), ("https://[::1", "is not an address"),
    ("https://h/" + "x" * 2000, "at most 2000"),
])  # fmt: skip
def test_other_addresses_are_refused(url: str, why: str) -> None:
    with pytest.raises(InputError, match=re.escape(why)):
        check_url(url)


@pytest.mark.parametrize("address", [
    "127.0.0.1", "127.1.2.3", "::1", "169.254.169.254", "fe80::1", "fe80::1%eth0", "::ffff:127.0.0.1",
    "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "::7f00:1",
])  # fmt: skip
def test_local_addresses_need_permission(address: str) -> None:
    assert "--allow-local" in str(refusal_of(address, allow_local=False))
    assert refusal_of(address, allow_local=True) is None


@pytest.mark.parametrize("address", [
    "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1", "name.example.com", "",
])  # fmt: skip
def test_addresses_of_no_host_are_always_refused(address: str) -> None:
    assert refusal_of(address, allow_local=True)


@pytest.mark.parametrize(
    "address", ["192.0.2.1", "10.0.0.1", "192.168.1.1", "2001:db8::1", "fd00::1"]
)
def test_hosts_are_allowed(address: str) -> None:
    assert refusal_of(address, allow_local=False) is None


@pytest.mark.parametrize(
    "secret", ["", "x" * (SECRET_MIN - 1), "x" * 513, "ü" * 20, "a b" * 8, "a\n" * 9]
)
def test_weak_or_unusual_secrets_are_refused(secret: str) -> None:
    with pytest.raises(InputError) as raised:
        check_secret(secret)
    assert not secret or secret not in str(raised.value)
