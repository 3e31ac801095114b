"""LUXI: one JSON document per message, ended by the byte 0x03; strictly request and answer.

Bytes in, messages out. Requests are `{"method", "args"}` and perhaps `version`, answers
`{"success", "result"}`; an answer's `degraded` is set while writes have one copy only (R6).
A failure's result is a sentence, or `[name of the error, its arguments]`.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from ganeti.base.errors import ErrorCode, GanetiError, InputError, PrereqError, ProtocolError
from ganeti.model import wire

END = b"\x03"
MESSAGE_LIMIT = 64 * 1024 * 1024
"""Bytes of one message, without its end (guarantees.md, limits)."""
VERSION = 3_000_000
"""What clients of version 3 send; other versions are accepted as well (peer.md)."""
NO_CHANGE = "nochange"
"""The answer of WaitForJobChange to a client that is to go on waiting (S195)."""


class MessageTooLongError(ProtocolError):
    """The peer sent MESSAGE_LIMIT bytes and no end."""


class MessageBuffer:
    """Cuts a stream of bytes into messages, in time linear in their length."""

    def __init__(self, limit: int = MESSAGE_LIMIT) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of the message that is not complete yet."""
        return self._size

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that `data` completes; MessageTooLongError beyond the limit."""
        *ends, rest = data.split(END)
        messages = []
        for end in ends:
            self._add(end)
            messages.append(b"".join(self._parts))
            self._parts, self._size = [], 0
        self._add(rest)
        return messages

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            raise MessageTooLongError(f"a message is longer than {self._limit} bytes")
        if part:
            self._parts.append(part)


class Request(msgspec.Struct, frozen=True):
    """A method and its arguments, not yet looked at."""

    method: str
    args: list[Any]


class Answer(msgspec.Struct, frozen=True):
    """What the master says: a result, or (no success) an error in its wire form."""

    success: bool
    result: Any
    degraded: bool = False


def encode_request(method: str, args: list[Any]) -> bytes:
    """A whole message."""
    body = wire.encode({"method": method, "args": args, "version": VERSION})
    return body + END


def parse_request(data: bytes) -> Request:
    """A client's message, mistrusted; InputError says what is wrong with it."""
    value = wire.parse_foreign(data, what="request")
    if not isinstance(value, dict):
        raise InputError("must be an object with method and args", "request")
    unknown = sorted(value.keys() - {"method", "args", "version"})
    if unknown:
        raise InputError(f"unknown key {unknown[0]!r:.40}", "request")
    method, args = value.get("method"), value.get("args")
    if not isinstance(method, str):
        raise InputError("must be a string", "request.method")
    if not isinstance(args, list):
        raise InputError("must be a list", "request.args")
    return Request(method, args)


def encode_answer(answer: Answer) -> bytes:
    """A whole message; `degraded` only where it is set, for clients that check the keys."""
    head = b'{"success":' + (b"true" if answer.success else b"false") + b',"result":'
    tail = b',"degraded":true}' if answer.degraded else b"}"
    return head + wire.encode(answer.result) + tail + END


def parse_answer(data: bytes) -> Answer:
    """The master's message; ProtocolError if it is none."""
    try:
        return wire.decode(data, Answer, what="answer")
    except InputError as err:
        raise ProtocolError(f"the master's answer cannot be read: {err.message}") from err


class RemoteError(GanetiError):
    """An error for which there is no class here; `name` is what the master called it."""

    def __init__(self, message: str, name: str = "GenericError") -> None:
        super().__init__(message)
        self.name = name


def error_to_wire(err: GanetiError) -> list[Any]:
    """`[name, arguments]`, which clients raise again by name."""
    return [err.wire_name, err.wire_args()]


def is_wire_error(value: Any) -> bool:
    """Whether `value` has the form `[name, arguments]`."""
    match value:
        case [str(), [*_]]:
            return True
    return False


def error_from_wire(value: Any) -> GanetiError:
    """The error that an answer or a job's result describes; a sentence becomes a RemoteError."""
    match value:
        case ["OpPrereqError", [str(message), str(code), *_]] if code in _CODES:
            return PrereqError(message, ErrorCode(code))
        case [str(name), [*args]]:
            message = ", ".join(str(arg) for arg in args)
            kind = _SIMPLE_ERRORS.get(name)
            return kind(message) if kind else RemoteError(message, name)
    return RemoteError(str(value))


def _subclasses(kind: type[GanetiError]) -> Iterator[type[GanetiError]]:
    for below in kind.__subclasses__():
        yield below
        yield from _subclasses(below)


_CODES = frozenset(str(code) for code in ErrorCode)

# Classes that are made of one sentence, by the name that they brought to the wire.
_SIMPLE_ERRORS: dict[str, type[GanetiError]] = {
    kind.wire_name: kind
    for kind in _subclasses(GanetiError)
    if "wire_name" in vars(kind) and "__init__" not in vars(kind)
}
