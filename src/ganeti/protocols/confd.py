"""Datagrams of confd (S57-S62, X23): `plj0`, then a JSON object with `msg`, `salt` and `hmac`. Pure.

A query's salt is the client's unix time; an answer's is the `rsalt` that the query asks for. The HMAC is
that of SHA-1 over salt and message. A client with the key gets answers; others get none.
"""

import enum
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

MAGIC = b"plj0"
PROTOCOL = 1
PACKET_LIMIT = 61_440
"""The limit of a datagram in bytes, in either direction."""
WINDOW_S = 300
"""The allowed difference between a query's time and the server's (S54)."""
RSALT_LIMIT = 256

_SALT = re.compile(r"(?:0|[1-9][0-9]{0,18})", re.ASCII)
_HMAC = re.compile(r"[0-9a-f]{40}", re.ASCII)


class QueryType(enum.IntEnum):
    """Types of queries; those from 100 on are additions of this implementation."""

    PING = 0
    NODE_ROLE_BY_NAME = 1
    NODE_IP_BY_INSTANCE_IP = 2
    MASTER = 3
    NODE_IPS = 4
    CANDIDATE_IPS = 5
    INSTANCE_IPS = 6
    NODE_DRBD = 7
    NODE_INSTANCES = 8
    INSTANCE_DISKS = 9
    CONFIG_VALUE = 10
    DATA_COLLECTORS = 11
    CANDIDATES = 100
    OFFLINE_NODES = 101
    INSTANCES = 102
    INSTANCE_PRIMARY_NODE = 103


class NodeRole(enum.IntEnum):
    """The role of a node (S61)."""

    MASTER = 0
    CANDIDATE = 1
    OFFLINE = 2
    DRAINED = 3
    REGULAR = 4


class Status(enum.IntEnum):
    """The kind of an answer."""

    OK = 0
    ERROR = 1
    NOT_IMPLEMENTED = 2


class ErrorDetail(enum.IntEnum):
    """The answer to a failed query, without details."""

    UNKNOWN_ENTRY = 0
    INTERNAL = 1
    ARGUMENT = 2


class QueryKey(enum.StrEnum):
    """The keys of a query that is an object."""

    LINK = "0"
    IP = "1"
    IPS = "2"
    FIELDS = "3"


class MasterField(enum.IntEnum):
    """The values of `QueryKey.FIELDS` about the master."""

    NAME = 0
    CLUSTER_IP = 1
    NODE_IP = 2


Scalar = str | int | None
Query = Scalar | dict[str, Scalar | list[Scalar]]


class Request(msgspec.Struct, frozen=True):
    """The inner message of a query."""

    protocol: int
    type: int
    rsalt: str
    query: Query = None


class Answer(msgspec.Struct, frozen=True):
    """The inner message of an answer; `serial` is the position of the state from which it was read."""

    protocol: int
    status: int
    answer: Any
    serial: int


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    msg: str
    salt: str
    hmac: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A query that gets an answer."""

    request: Request
    key: bytes
    """The key that signed it, which also signs the answer."""
    fingerprint: str
    """The query's HMAC: a repeated query has the same."""


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_REQUEST = msgspec.json.Decoder(Request)
_ANSWER = msgspec.json.Decoder(Answer)
_encode = msgspec.json.encode


def signature(key: bytes, salt: str, message: str) -> str:
    """Return HMAC-SHA1 in hexadecimal, as `openssl dgst -sha1 -hmac` prints it."""
    return hmac.digest(key, (salt + message).encode(), "sha1").hex()


def pack(key: bytes, salt: str, message: bytes) -> bytes:
    """Return the datagram of a message."""
    text = message.decode()
    return MAGIC + _encode(_Envelope(text, salt, signature(key, salt, text)))


def pack_request(key: bytes, request: Request, now: float) -> bytes:
    """Return a query sent at this time."""
    return pack(key, str(int(now)), _encode(request))


def pack_answer(asked: Asked, status: Status, answer: Any, serial: int) -> bytes:
    """Return an answer; one that is too long for a datagram becomes an error."""
    packet = _packed(asked, Answer(PROTOCOL, status, answer, serial))
    if len(packet) > PACKET_LIMIT:
        text = "the answer is too long for a datagram: request less at once, or query the master"
        packet = _packed(asked, Answer(PROTOCOL, Status.ERROR, text, serial))
    return packet


def _packed(asked: Asked, answer: Answer) -> bytes:
    return pack(asked.key, asked.request.rsalt, _encode(answer))


def parse_request(
    packet: bytes | memoryview, keys: Sequence[bytes], now: float, tolerance_s: float = WINDOW_S
) -> Asked | None:
    """Return the query of a datagram, if one of `keys` has signed it in time; None gets no answer.

    The clocks of client and server may differ by `tolerance_s`.
    """
    opened = _opened(packet, keys)
    if opened is None:
        return None
    envelope, key = opened
    if not _SALT.fullmatch(envelope.salt) or abs(now - int(envelope.salt)) > tolerance_s:
        return None
    try:
        request = _REQUEST.decode(envelope.msg)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if request.protocol != PROTOCOL or not 0 < len(request.rsalt) <= RSALT_LIMIT:
        return None
    return Asked(request, key, envelope.hmac)


def parse_answer(packet: bytes, key: bytes, rsalt: str) -> Answer | None:
    """Return the answer of a datagram, if the key has signed it for exactly this query (S55); else None."""
    opened = _opened(packet, (key,))
    if opened is None or opened[0].salt != rsalt:
        return None
    try:
        answer = _ANSWER.decode(opened[0].msg)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return answer if answer.protocol == PROTOCOL else None


def _opened(packet: bytes | memoryview, keys: Sequence[bytes]) -> tuple[_Envelope, bytes] | None:
    """Return the content of a datagram, and the key that signed it."""
    if packet[:4] != MAGIC or len(packet) > PACKET_LIMIT:
        return None
    try:
        envelope = _ENVELOPE.decode(packet[4:])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if not _HMAC.fullmatch(envelope.hmac):
        return None
    for key in keys:
        if hmac.compare_digest(signature(key, envelope.salt, envelope.msg), envelope.hmac):
            return envelope, key
    return None
