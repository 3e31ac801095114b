"""Metadata of a call, and the signature of a handler."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec


class Call(msgspec.Struct, frozen=True):
    """A call's context.

    The master's epoch and UUID, and the key `job/opcode/step` of a changing call ('' if none).
    """

    epoch: int = 0
    master_uuid: str = ""
    key: str = ""


def concerned_instance(args: Any) -> str:
    """Return the name of the instance in a call's arguments; '' if there is none."""
    name = getattr(args, "instance_name", None)
    if name is None:
        name = getattr(getattr(args, "instance", None), "name", "")
    return name if isinstance(name, str) else ""


Handler = Callable[[Any, Call], Awaitable[Any]]
"""The handler of a procedure: accepts its argument struct, returns its result; raises GanetiError."""

Handlers = dict[str, Handler]
"""Name of procedure -> handler; each module of `ganeti.node` makes one such dictionary."""

Checks = dict[str, Callable[[Any], None]]
"""Name of procedure -> a check that raises GanetiError for arguments that are refused in any epoch."""
