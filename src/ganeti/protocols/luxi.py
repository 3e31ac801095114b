"""LUXI: one JSON document per message, ended by the byte 0x03; strictly request and answer.

Bytes in, messages out: framing for both ends, and the client's half; the server's half, which
checks untrusted requests, is in `luxi_requests.py`. Commands import this at their start, so it imports little.

Requests are `{"method", "args"}` and optionally `version`, answers
`{"success", "result"}`; an answer's `degraded` is set while writes have one copy only (R6).
A failure's result is a sentence, or `[name of the error, its arguments]`. The name is one that upstream's clients know;
if this implementation has a more precise one, the answer's `error` carries it for its own clients.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from ganeti.base.errors import ErrorCode, GanetiError, HooksAbort, PrereqError, ProtocolError

END = b"\x03"
MESSAGE_LIMIT = 64 * 1024 * 1024
"""Bytes of one message, without its end (docs/rules.md, limits)."""
VERSION = 3_000_000
"""What clients of version 3 send; other versions are accepted as well."""
NO_CHANGE = "nochange"
"""The answer of WaitForJobChange to a client that should keep waiting (S195)."""
UPSTREAM_ERRORS = frozenset({
    *("GenericError", "OpPrereqError", "OpExecError", "HooksAbort", "ConfigurationError", "LockError"),
    *("JobLost", "JobCanceled", "JobQueueFull", "JobQueueDrainError"),
})  # fmt: skip
"""The errors that upstream's clients raise again by name. """
FAILED = "OpExecError"
"""The name of any other error. Upstream's jobs use it for failures on a node."""


class MessageTooLongError(ProtocolError):
    """The peer sent MESSAGE_LIMIT bytes and no end."""


class MessageBuffer:
    """Splits a stream of bytes into messages, in time linear in their length."""

    def __init__(self, limit: int = MESSAGE_LIMIT) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def pending_bytes(self) -> int:
        """The number of bytes of the incomplete message."""
        return self._size

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages that `data` completes; MessageTooLongError beyond the limit."""
        if not self._parts and data.find(END) == len(data) - 1 < self._limit:
            return [data[:-1]]
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


class Request(NamedTuple):
    """An unchecked method and its arguments."""

    method: str
    args: list[Any]


class Answer(NamedTuple):
    """The master's answer: a result, or (no success) an error in its wire form."""

    success: bool
    result: Any
    degraded: bool = False
    error: str = ""
    """This implementation's name of the error, if the result has another."""


def refusal(err: GanetiError, *, degraded: bool = False) -> Answer:
    """Return the answer to a request that failed."""
    result = error_to_wire(err)
    return Answer(False, result, degraded, "" if result[0] == err.wire_name else err.wire_name)


def encode_request(method: str, args: list[Any]) -> bytes:
    """Return a complete message, of plain values."""
    value = {"method": method, "args": args, "version": VERSION}
    return json.dumps(value, separators=(",", ":")).encode() + END


def parse_answer(data: bytes) -> Answer:
    """Parse the master's message; ProtocolError if it is malformed."""
    try:
        value = json.loads(data)
        degraded, error = value.get("degraded") is True, str(value.get("error", ""))
        return Answer(bool(value["success"]), value["result"], degraded, error)
    except (ValueError, LookupError, TypeError, AttributeError) as err:
        raise ProtocolError(f"the master's answer cannot be read: {err}") from err


class RemoteError(GanetiError):
    """An error without a class here; `name` is the master's name for it."""

    def __init__(self, message: str, name: str = "GenericError") -> None:
        super().__init__(message)
        self.name = name


def error_to_wire(err: GanetiError) -> list[Any]:
    """Return `[name, arguments]`, which clients raise again by name; upstream's clients know each name."""
    return [err.wire_name if err.wire_name in UPSTREAM_ERRORS else FAILED, err.wire_args()]


def error_of(answer: Answer) -> GanetiError:
    """Return the error that an answer without success carries."""
    if answer.error and is_wire_error(answer.result):
        return error_from_wire([answer.error, answer.result[1]])
    return error_from_wire(answer.result)


def is_wire_error(value: Any) -> bool:
    """Return whether `value` has the form `[name, arguments]`."""
    match value:
        case [str(), [*_]]:
            return True
    return False


def error_from_wire(value: Any) -> GanetiError:
    """Return the error that an answer or a job's result describes; a sentence becomes a RemoteError."""
    match value:
        case ["OpPrereqError", [str(message), str(code), *_]] if code in _CODES:
            return PrereqError(message, ErrorCode(code))
        case ["HooksAbort", [[*refusals]]] if all(_is_refusal(one) for one in refusals):
            return HooksAbort([(node, script, output) for node, script, output in refusals])
        case [str(name), [*args]]:
            message = ", ".join(str(arg) for arg in args)
            kind = _SIMPLE_ERRORS.get(name)
            return kind(message) if kind else RemoteError(message, name)
    return RemoteError(str(value))


def _is_refusal(value: Any) -> bool:
    """Return whether `value` is `[node, script, output]`, the wire form of `HooksAbort`."""
    match value:
        case [str(), str(), str()]:
            return True
    return False


def _subclasses(kind: type[GanetiError]) -> Iterator[type[GanetiError]]:
    for below in kind.__subclasses__():
        yield below
        yield from _subclasses(below)


_CODES = frozenset(str(code) for code in ErrorCode)

# Classes that hold one sentence, by their names on the wire.
_SIMPLE_ERRORS: dict[str, type[GanetiError]] = {
    kind.wire_name: kind
    for kind in _subclasses(GanetiError)
    if "wire_name" in vars(kind) and "__init__" not in vars(kind)
}
