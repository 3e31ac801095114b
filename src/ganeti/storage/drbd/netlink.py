"""Connection of a resource to its peer by netlink: every user could read a secret among words of `drbdsetup` (G23).

The message is that of `drbdsetup connect` of DRBD 8.4. Making and reading messages is pure; `ask_kernel` does the I/O.
"""

import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from ganeti.base.errors import StorageError

NETLINK_GENERIC = 16
CONTROL = 0x10
"""The family that knows the numbers of the others."""
GET_FAMILY = 3
FAMILY_ID, FAMILY_NAME = 1, 2
ERROR = 2
REQUEST = 1
FAMILY = "drbd"
CONNECT = 10
WHOLE_RESOURCE = 0xFFFFFFFF
DONE = (1, 101)
"""Success codes: a change of state, and a change of settings."""
NESTED = 0x8000
HEAD, DRBD_HEAD = 4, 12
"""Bytes before an attribute's value, and before the attributes of a message."""
REPLY, CONTEXT, NET = 1, 2, 5
"""Nested attributes: the kernel's report, the connection, and its settings."""
PROTOCOLS = {"A": 1, "B": 2, "C": 3}
AFTER_SPLIT_BRAIN = {"disconnect": 0}
ANSWER_S = 30.0

NUMBERS = {
    "protocol": 6,
    "connect-int": 7,
    "timeout": 8,
    "ping-int": 9,
    "ping-timeout": 10,
    "sndbuf-size": 11,
    "rcvbuf-size": 12,
    "ko-count": 13,
    "max-buffers": 14,
    "max-epoch-size": 15,
    "unplug-watermark": 16,
    "after-sb-0pri": 17,
    "after-sb-1pri": 18,
    "after-sb-2pri": 19,
}
"""Attributes of a connection that are numbers, by the names of `drbdsetup`."""
TEXTS = {
    "shared-secret": 1,
    "cram-hmac-alg": 2,
    "data-integrity-alg": 3,
    "verify-alg": 4,
    "csums-alg": 5,
}
TWO_PRIMARIES, DISCARD = "allow-two-primaries", "discard-my-data"
FLAGS = {TWO_PRIMARIES: 24, DISCARD: 25}


@dataclass(frozen=True)
class Connection:
    """The peer of a resource; the secret never appears in a text."""

    resource: str
    own: tuple[str, int]
    peer: tuple[str, int]
    protocol: str
    secret: str = field(repr=False)
    two_primaries: bool = False
    discard: bool = False
    """If the copies have diverged, this one is filled from the peer's."""
    options: Mapping[str, int | str] = field(default_factory=dict)
    """Further settings, by the names in NUMBERS and TEXTS."""


def attribute(kind: int, value: bytes) -> bytes:
    """Return one attribute, padded."""
    head = struct.pack("=HH", HEAD + len(value), kind)
    return head + value + bytes(-len(value) % 4)


def attributes(data: bytes) -> dict[int, bytes]:
    """Return the values of a list of attributes; the last of each kind."""
    found: dict[int, bytes] = {}
    at = 0
    while at + HEAD <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < HEAD:
            break
        found[kind & 0x3FFF] = data[at + HEAD : at + length]
        at += (length + 3) & ~3
    return found


def connect_message(connection: Connection) -> bytes:
    """Return the body of the request, after the header of netlink."""
    context = attribute(2, connection.resource.encode() + b"\0")
    context += attribute(3, _address(connection.own)) + attribute(4, _address(connection.peer))
    texts: dict[str, int | str] = {"shared-secret": connection.secret, "cram-hmac-alg": "sha256"}
    numbers: dict[str, int | str] = {"protocol": PROTOCOLS[connection.protocol]}
    numbers |= {f"after-sb-{count}pri": AFTER_SPLIT_BRAIN["disconnect"] for count in range(3)}
    net = b""
    for name, value in (texts | numbers | dict(connection.options)).items():
        if name in TEXTS:
            net += attribute(TEXTS[name], str(value).encode() + b"\0")
        else:
            net += attribute(NUMBERS[name], struct.pack("=I", int(value)))
    net += attribute(FLAGS[TWO_PRIMARIES], bytes([connection.two_primaries]))
    if connection.discard:
        net += attribute(FLAGS[DISCARD], bytes([True]))
    head = struct.pack("=BBxxII", CONNECT, 1, WHOLE_RESOURCE, 0)
    return head + attribute(NESTED | CONTEXT, context) + attribute(NESTED | NET, net)


def _address(address: tuple[str, int]) -> bytes:
    host, port = address
    if ":" in host:
        packed = socket.inet_pton(socket.AF_INET6, host)
        return struct.pack("=H", socket.AF_INET6) + struct.pack("!HI16sI", port, 0, packed, 0)
    packed = socket.inet_pton(socket.AF_INET, host)
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, packed)


def refusal(body: bytes) -> str:
    """Return the kernel's reason for a refusal, '' if it did not refuse; `body` follows the header of netlink."""
    if len(body) < DRBD_HEAD:
        return "the kernel's answer is too short"
    (code,) = struct.unpack_from("=i", body, 8)
    if code in DONE:
        return ""
    said = attributes(attributes(body[DRBD_HEAD:]).get(REPLY, b"")).get(1, b"").rstrip(b"\0")
    return f"error {code}" + (f" ({said.decode(errors='replace').strip()})" if said else "")


def family_message() -> bytes:
    """Return the query for the number of DRBD's family."""
    return struct.pack("=BBxx", GET_FAMILY, 1) + attribute(FAMILY_NAME, FAMILY.encode() + b"\0")


def family_number(body: bytes) -> int:
    """Return the number in the answer."""
    number = attributes(body[4:]).get(FAMILY_ID, b"")
    if not number:
        raise StorageError("the kernel has no DRBD 8.4; load its module: modprobe drbd")
    return int(struct.unpack_from("=H", number)[0])


def connect(connection: Connection) -> None:
    """Connect a resource to its peer; blocks; StorageError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC) as channel:
        channel.settimeout(ANSWER_S)
        channel.bind((0, 0))
        try:
            family = family_number(_ask(channel, CONTROL, family_message()))
            why = refusal(_ask(channel, family, connect_message(connection)))
        except OSError as err:
            raise StorageError(
                f"the request to connect cannot be sent to the kernel: {err.strerror or err}"
            ) from err
    if why:
        raise StorageError(
            f"{connection.resource} cannot be connected to {connection.peer[0]}: {why}"
        )


def _ask(channel: socket.socket, kind: int, body: bytes) -> bytes:
    """Return the body of the answer to one request; OSError."""
    number = int.from_bytes(os.urandom(3), "big") + 1
    channel.send(struct.pack("=IHHII", 16 + len(body), kind, REQUEST, number, 0) + body)
    while True:
        data = channel.recv(65536)
        length, answer, _flags, sequence, _pid = struct.unpack_from("=IHHII", data)
        if sequence != number:
            continue
        if answer == ERROR:
            (code,) = struct.unpack_from("=i", data, 16)
            raise OSError(-code, os.strerror(-code))
        return data[16:length]
