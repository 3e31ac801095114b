"""Messages between the cluster and an allocator: version 2 of the protocol (seed 004, S158-S183)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from ganeti.base.errors import InputError
from ganeti.base.identifiers import plain_name

PROTOCOL_VERSION = 2
BUILT_IN = "hail"
"""The allocator that is built into the master."""
FRAME_LENGTH_BYTES = 8
"""The process for large requests exchanges frames: the length in this number of bytes, then JSON."""
DEFAULT_ALLOCATOR = "."
"""Stands for the cluster's default in place of an allocator's name."""


YES = (True, "yes")
"""An option without a value, or with this one."""


def asks_monitoring(options: Mapping[str, Any]) -> bool:
    """Return whether an allocator's options, by name without dashes, enable reports of monitoring daemons (S181)."""
    return options.get("mond") in YES or bool(options.get("mond-data"))


class RequestType(StrEnum):
    """The types of requests; the last two are additions of this implementation (X15)."""

    ALLOCATE = "allocate"
    RELOCATE = "relocate"
    NODE_EVACUATE = "node-evacuate"
    CHANGE_GROUP = "change-group"
    MULTI_ALLOCATE = "multi-allocate"
    MULTI_EVACUATE = "multi-evacuate"
    BALANCE = "balance"
    CAPACITY = "capacity"


class AllocatorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An allocator's answer; the type of `result` depends on the request."""

    success: bool
    info: str
    result: Any


def parse_defaults(text: str, field: str = "default_iallocator") -> dict[str, tuple[str, ...]]:
    """Parse request type -> allocators in the order in which they are tried (S184, X16); "" is every other type.

    `hail`, `mine,hail`, or parts with a type of their own such as `hail/relocate=mine,hail`. InputError.
    """
    found: dict[str, tuple[str, ...]] = {}
    for part in text.split("/") if text else ():
        kind, is_typed, names = part.rpartition("=")
        if is_typed and kind not in tuple(RequestType):
            raise InputError(
                f"{kind!r:.40} is not a type of request; known: {', '.join(RequestType)}", field
            )
        if kind in found:
            raise InputError(f"{kind or 'the list for all kinds'} is given twice", field)
        found[kind] = tuple(plain_name(name, field) for name in names.split(","))
    return found


def named_allocators(text: str | None, field: str = "iallocator") -> tuple[str, ...]:
    """Return the allocators of a request, tried in order, for example `mine,hail`.

    Empty means the cluster's. InputError.
    """
    if not text or text == DEFAULT_ALLOCATOR:
        return ()
    return tuple(plain_name(name, field) for name in text.split(","))


def default_allocators(text: str, kind: RequestType) -> tuple[str, ...]:
    """Return the allocators for one kind of request; none if the cluster has no default."""
    lists: Mapping[str, tuple[str, ...]] = parse_defaults(text)
    return lists.get(kind, lists.get("", ()))
