"""The server's half of LUXI: requests from outside, answers to them."""

from ganeti.base.errors import InputError
from ganeti.model import wire
from ganeti.protocols.luxi import END, Answer, Request

_KEYS = frozenset(("method", "args", "version"))


def parse_request(data: bytes) -> Request:
    """A client's message, mistrusted; InputError says what is wrong with it."""
    value = wire.parse_foreign(data, what="request")
    if not isinstance(value, dict):
        raise InputError("must be an object with method and args", "request")
    if unknown := sorted(value.keys() - _KEYS):
        raise InputError(f"unknown key {unknown[0]!r:.40}", "request")
    method, args = value.get("method"), value.get("args")
    if not isinstance(method, str):
        raise InputError("must be a string", "request.method")
    if not isinstance(args, list):
        raise InputError("must be a list", "request.args")
    return Request(method, args)


def encode_answer(answer: Answer) -> bytes:
    """A whole message; `degraded` and `error` only where they are set, for clients that check the keys."""
    head = b'{"success":' + (b"true" if answer.success else b"false") + b',"result":'
    error = b',"error":' + wire.encode(answer.error) if answer.error else b""
    tail = b',"degraded":true}' if answer.degraded else b"}"
    return head + wire.encode(answer.result) + error + tail + END
