"""Requests of webhooks: the body, its signature, and the addresses that are refused. Pure.

A receiver verifies a request with the secret of its rule: `X-Ganeti-Signature` is `sha256=` and the HMAC-SHA256, in hex,
of `X-Ganeti-Timestamp`, a full stop and the body.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from ganeti.base.errors import InputError
from ganeti.model import wire

URL_LIMIT = 2000
SECRET_MIN, SECRET_MAX = 16, 512
VERSION = 1
_SCHEMES = {"http": 80, "https": 443}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_IPV4 = 0xFFFFFFFF
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Happened(NamedTuple):
    """One event of the event stream."""

    number: str
    kind: str
    content: Mapping[str, Any]


def body(cluster: str, webhook: str, events: Sequence[Happened]) -> bytes:
    """Return the body of one request."""
    return wire.encode(
        {
            "version": VERSION,
            "cluster": cluster,
            "webhook": webhook,
            "events": [
                {"number": one.number, "kind": one.kind, "content": one.content} for one in events
            ],
        }
    )


def headers(
    webhook: str, delivery: str, timestamp: int, secret: str, content: bytes
) -> dict[str, str]:
    """Return the headers of a request; `delivery` is the same for each attempt."""
    return {
        "Content-Type": "application/json",
        "User-Agent": "ganeti-webhook/1",
        "X-Ganeti-Webhook": webhook,
        "X-Ganeti-Delivery": delivery,
        "X-Ganeti-Timestamp": str(timestamp),
        "X-Ganeti-Signature": f"sha256={signature(secret, timestamp, content)}",
    }


def signature(secret: str, timestamp: int, content: bytes) -> str:
    """Return the signature of a request in hex."""
    signed = f"{timestamp}.".encode() + content
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def check_url(text: str) -> SplitResult:
    """Return the parts of an address; InputError for one to which nothing is sent."""
    if len(text) > URL_LIMIT or not text.isascii() or not text.isprintable() or " " in text:
        raise InputError(
            f"must have at most {URL_LIMIT} printable ASCII characters and no space", "url"
        )
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as err:
        raise InputError(f"is not an address: {err}", "url") from err
    if parts.scheme not in _SCHEMES:
        raise InputError("must begin with https:// or http://", "url")
    if not parts.hostname or port == 0 or "%" in parts.netloc:
        raise InputError("must name a host, as in https://hooks.example.com/ganeti", "url")
    if parts.username is not None or parts.password is not None:
        raise InputError(
            "must not contain a password: receivers verify the signature instead", "url"
        )
    if parts.fragment:
        raise InputError("must not contain '#'", "url")
    return parts


def check_secret(secret: str) -> None:
    """Raise InputError for a secret that is too short, too long, or not printable ASCII."""
    if not SECRET_MIN <= len(secret) <= SECRET_MAX:
        raise InputError(f"must have from {SECRET_MIN} to {SECRET_MAX} characters", "secret")
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        raise InputError("must consist of printable ASCII characters without spaces", "secret")


def refusal_of(address: str, *, allow_local: bool) -> str | None:
    """Return why no request goes to an IP address; None if one may.

    Private networks are allowed: receivers are usually there. Loopback and link-local addresses reach services that trust
    their own host, such as this node's daemons and the metadata service of a cloud.
    """
    try:
        found = _embedded(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return f"{address:.60} is not an IP address"
    if found.is_unspecified or found.is_multicast or (found.is_reserved and not found.is_loopback):
        return f"{address} is not the address of a host"
    if (found.is_loopback or found.is_link_local) and not allow_local:
        return (
            f"{address} is a loopback or link-local address; to allow it, on the master:"
            " gnt-cluster webhook modify NAME --allow-local=yes"
        )
    return None


def _embedded(address: Address) -> Address:
    """Return the IPv4 address inside an IPv6 address that only carries one."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address in _NAT64 or (int(address) >> 32 == 0 and int(address) > 1):
            return ipaddress.IPv4Address(int(address) & _IPV4)
    return address
