"""The messages of both ends before and after the frames. Pure.

sender -> receiver   the greeting, one line of JSON: version, token of this transfer, form of the data, a new key
sender -> receiver   the frames
receiver -> sender   one line of JSON: the seal, once everything is synced, or an error; lines that say "wait" may
come before
"""

import hmac
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from ganeti.base.errors import HostError
from ganeti.node.carrier.frames import KEY_BYTES

MAGIC = "ganeti-stream-2"
"""The version of the greeting and of the frames."""
RAW, SCRIPT, DUMP = "raw", "script", "dump"
IN_FRAMES = "frames"
"""The name of the frame-by-frame compression."""
LINE_LIMIT = 4096
WAIT = b'{"wait": true}\n'


class Greeting(NamedTuple):
    """The sender's first message; `form` is raw, script or dump, `pack` the compression in transit."""

    form: str
    pack: str
    key: bytes
    """The key of the seal, for one stream only.

    Empty without a seal: the receiver has the digest of the data.
    """


def greeting_line(token: str, said: Greeting) -> bytes:
    """Return the sender's first line."""
    line = {
        "magic": MAGIC,
        "token": token,
        "form": said.form,
        "pack": said.pack,
        "key": said.key.hex(),
    }
    return json.dumps(line).encode() + b"\n"


def check_greeting(line: bytes, token: str, *, has_digest: bool) -> Greeting:
    """Return the greeting of this transfer's sender; HostError for any other line.

    A greeting without a key is refused unless the receiver has the digest of the data, because
    nothing else proves that the data is complete.
    """
    found = object_of(line)
    if found.get("magic") != MAGIC:
        raise HostError("the caller did not send a Ganeti stream")
    check_token(found, token)
    try:
        key = bytes.fromhex(str(found.get("key")))
    except ValueError:
        key = b"none"
    if len(key) != KEY_BYTES and (key or not has_digest):
        raise HostError("the sender does not name a key for its seal")
    return Greeting(str(found.get("form")), str(found.get("pack")), key)


def check_token(found: dict[str, Any], token: str) -> None:
    """Raise HostError unless a greeting has the token of this transfer."""
    if not hmac.compare_digest(str(found.get("token", "")).encode(), token.encode()):
        raise HostError("the sender does not know the token of this disk")


def check_form(theirs: Greeting, form: str, unpack: str) -> None:
    """Raise HostError unless both ends use the same data format.

    Only the master, which has seen both ends, knows the format of a dump.
    """
    if DUMP in (form, theirs.form) or (theirs.form, theirs.pack) == (form, unpack):
        return
    if theirs.form != form or theirs.pack != IN_FRAMES:
        raise HostError(
            f"the sender's data has a different format ({theirs.form:.20}, compression {theirs.pack:.20}) than what is"
            f" read here ({form}, {unpack}): both need the same scripts of the OS and the same compression"
        )


def object_of(line: bytes) -> dict[str, Any]:
    """Return the object of a JSON line; HostError."""
    try:
        found = json.loads(line)
    except ValueError as err:
        raise HostError("the peer sent a line that cannot be read") from err
    if not isinstance(found, dict):
        raise HostError("the peer sent a line that is not an object")
    return found


def answer_line(**answer: str) -> bytes:
    """Return the receiver's last line: the seal or an error."""
    return json.dumps(answer).encode() + b"\n"


def read_answer(read: Callable[[int], bytes]) -> dict[str, Any]:
    """Return the receiver's last line; HostError if it is missing.

    `read` returns up to so many bytes, b'' at the end.
    """
    while True:
        line = b""
        while not line.endswith(b"\n"):
            line = longer(line, read(1))
        answer = object_of(line)
        if "wait" not in answer:
            return answer


def longer(line: bytes, byte: bytes) -> bytes:
    """Return the line with one more byte; HostError at its end or if it is too long."""
    if not byte or len(line) >= LINE_LIMIT:
        raise HostError("the connection ended before the peer had sent a complete line")
    return line + byte
