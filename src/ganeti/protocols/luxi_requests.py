"""The server's half of LUXI: requests from outside, and their answers."""

from collections.abc import Iterator
from typing import Any

from ganeti.base.errors import InputError
from ganeti.model import wire
from ganeti.protocols.luxi import END, Answer, Request

PART_BYTES = 64 * 1024
"""An answer of many rows is encoded in parts of this size, each in a fraction of a millisecond."""
ROWS_AT_ONCE = 50
"""An answer with fewer rows is encoded as a whole."""
_KEYS = frozenset(("method", "args", "version"))


def parse_request(data: bytes) -> Request:
    """Parse a client's message without trust; InputError names the fault."""
    value = wire.parse_foreign(data, what="request")
    if not isinstance(value, dict):
        raise InputError("must be an object with method and args", "request")
    if not value.keys() <= _KEYS:
        raise InputError(f"unknown key {min(value.keys() - _KEYS)!r:.40}", "request")
    method, args = value.get("method"), value.get("args")
    if not isinstance(method, str):
        raise InputError("must be a string", "request.method")
    if not isinstance(args, list):
        raise InputError("must be a list", "request.args")
    return Request(method, args)


def encode_answer(answer: Answer) -> bytes:
    """Return a complete message; `degraded` and `error` only if they are set, for clients that check the keys."""
    head, tail = _frame(answer)
    return head + wire.encode(answer.result) + tail


def answer_parts(answer: Answer) -> Iterator[bytes]:
    """Yield the same message in parts, each encoded on demand; a part is longer only if one row is."""
    result = answer.result
    lists = result.values() if isinstance(result, dict) else (result,)
    if not any(isinstance(one, list) and len(one) > ROWS_AT_ONCE for one in lists):
        yield encode_answer(answer)
        return
    head, tail = _frame(answer)
    part = bytearray(head)
    for piece in _pieces(result):
        part += piece
        if len(part) >= PART_BYTES:
            yield bytes(part)
            part.clear()
    yield bytes(part) + tail


def _frame(answer: Answer) -> tuple[bytes, bytes]:
    """Return the bytes before the result, and after it."""
    head = b'{"success":' + (b"true" if answer.success else b"false") + b',"result":'
    error = b',"error":' + wire.encode(answer.error) if answer.error else b""
    tail = b',"degraded":true}' if answer.degraded else b"}"
    return head, error + tail + END


def _pieces(value: Any) -> Iterator[bytes]:
    """Yield a result, a row at a time: a list of rows, or a dictionary that contains such lists."""
    if isinstance(value, dict):
        yield b"{"
        for number, (key, inner) in enumerate(sorted(value.items())):
            yield (b"," if number else b"") + wire.encode(key) + b":"
            yield from _pieces(inner) if isinstance(inner, list) else (wire.encode(inner),)
        yield b"}"
    elif isinstance(value, list):
        yield b"["
        for number, row in enumerate(value):
            yield (b"," if number else b"") + wire.encode(row)
        yield b"]"
    else:
        yield wire.encode(value)
