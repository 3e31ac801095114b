"""Reads jobs that another version has stored (G28), after an upgrade or a downgrade.

An unknown field of an opcode is dropped if it is null, false, 0 or empty, like an unused field.
With any other value the job could have another meaning without the field, so it is rejected.
"""

import re
from typing import Any, TypeVar

import msgspec

from ganeti.base.errors import InputError
from ganeti.model import wire

T = TypeVar("T")

_UNKNOWN = re.compile(r"unknown field `([^`]+)`")


def read_stored(data: bytes, kind: type[T], *, what: str) -> T:
    """Return the stored or archived job; InputError names the unknown part."""
    try:
        return wire.decode(data, kind, what=what)
    except InputError as err:
        unknown = err
    if not _UNKNOWN.search(unknown.message):
        raise unknown
    plain = msgspec.json.decode(data)
    while (found := _UNKNOWN.search(unknown.message)) and _left_out(plain, found[1]):
        try:
            converted: T = wire.convert(plain, kind, what=what)
        except InputError as err:
            unknown = err
        else:
            return converted
    raise InputError(
        f"{unknown.message}: it may have been written by a newer version; start that version"
    )


def _left_out(plain: Any, name: str) -> bool:
    """Drop an unused field everywhere; return whether it occurred."""
    inner = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ()
    was_there = 0
    for one in inner:
        was_there += _left_out(one, name)
    if isinstance(plain, dict) and name in plain and not plain[name]:
        del plain[name]
        was_there += 1
    return was_there > 0
