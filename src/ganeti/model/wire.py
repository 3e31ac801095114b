"""The conversion between structs and bytes, in this one module."""

import json
import math
import re
from typing import Any, NoReturn, TypeVar

import msgspec

from ganeti.base.errors import InputError

T = TypeVar("T")

DEPTH_LIMIT = 64
"""The limit of nesting in a document from outside (docs/rules.md, limits)."""

_BRACKET_OR_STRING = re.compile(rb'"(?:[^"\\\\]|\\\\.)*+"?|[\[\]{}]', re.DOTALL)
_DEPTH_STEP = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_INT64_DIGITS = 20
"""A sign and the digits of the greatest 64-bit integer."""

_ENCODER = msgspec.json.Encoder(order="deterministic")


def encode(value: object) -> bytes:
    """Return `value` as JSON, keys in a fixed order, without spaces."""
    return _ENCODER.encode(value)


def plain(value: object) -> Any:
    """Return `value` in the types of JSON: dicts, lists, strings, numbers, booleans, None."""
    return msgspec.to_builtins(value)


def decode(data: bytes | str, kind: type[T], *, what: str = "message") -> T:
    """Decode JSON as a `kind`; for documents that we wrote ourselves. InputError names the wrong field."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        _refuse(err, what)


def convert(value: object, kind: Any, *, what: str = "message", strict: bool = True) -> Any:
    """Convert values of JSON's types to a `kind` (a type, or a union of types). InputError names the wrong field."""
    try:
        return msgspec.convert(value, type=kind, strict=strict)
    except (msgspec.ValidationError, RecursionError) as err:
        _refuse(err, what)


def parse_foreign(data: bytes, *, what: str = "message") -> Any:
    """Return a document from outside as plain values.

    Refuses what `json` would accept: duplicate keys, NaN and infinities, integers beyond
    64 bits, lone surrogates, NUL characters, and nesting beyond DEPTH_LIMIT (A11).
    """
    value = _plainly_decoded(data)
    if value is not None:
        return value
    _check_depth(data, what)
    try:
        value = _foreign.decode(data.decode("utf-8"))
    except InputError as err:
        raise InputError(err.message, what) from err
    except (ValueError, RecursionError) as err:
        _refuse(err, what)
    return value


def _plainly_decoded(data: bytes) -> dict[str, Any] | None:
    """Return a document of one flat object, which cannot contain any of that; None for any other.

    It has no escapes, no long numbers, one opening brace, and as many colons as keys.
    """
    if (
        b"\\" in data
        or data.count(b"{") != 1
        or data.count(b"[") >= DEPTH_LIMIT
        or not data.isascii()
        or _LONG_NUMBER in data.translate(_DIGITS)
    ):
        return None
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) and len(value) == data.count(b":") else None


_LONG_NUMBER = b"0" * 18
_DIGITS = bytes.maketrans(b"123456789", b"000000000")


def _check_depth(data: bytes, what: str) -> None:
    """Count brackets outside strings; a recursive parser must not get a deep document."""
    if data.count(b"[") + data.count(b"{") <= DEPTH_LIMIT:
        return
    depth = 0
    for found in _BRACKET_OR_STRING.finditer(data):
        depth += _DEPTH_STEP.get(found[0], 0)
        if depth > DEPTH_LIMIT:
            raise InputError(f"nested deeper than {DEPTH_LIMIT} levels", what)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InputError("an object has the same key twice")
    for key, value in pairs:
        _clean_text(key)
        if isinstance(value, str):
            _clean_text(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, str):
                    _clean_text(item)
    return found


def _clean_text(text: str) -> None:
    if "\0" in text:
        raise InputError("a string contains a NUL character")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise InputError("a string contains half of a surrogate pair") from None


def _no_constant(name: str) -> NoReturn:
    raise InputError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InputError(f"{text:.40} is too large")
    return value


def _bounded(text: str) -> int:
    if len(text) > _INT64_DIGITS or not -(2**63) <= (value := int(text)) < 2**63:
        raise InputError(f"{text:.40} is not a 64-bit integer")
    return value


_foreign = json.JSONDecoder(
    object_pairs_hook=_without_duplicates,
    parse_constant=_no_constant,
    parse_float=_finite,
    parse_int=_bounded,
)


def _refuse(err: Exception, what: str) -> NoReturn:
    """Turn msgspec's `... - at `$[0].disks[1].size`` into an error with that path."""
    text = str(err) if not isinstance(err, RecursionError) else "nested too deeply"
    message, _, where = text.partition(" - at `")
    path = where.rstrip("`").removeprefix("$").lstrip(".")
    joined = what if not path else f"{what}{path}" if path.startswith("[") else f"{what}.{path}"
    raise InputError(message, joined) from err
