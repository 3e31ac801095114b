"""Messages between the cluster and an allocator: version 2 of the protocol (seed 004, S158-S183)."""

from typing import Any

import msgspec

PROTOCOL_VERSION = 2


class AllocatorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What an allocator says: `result` holds node names for `allocate`."""

    success: bool
    info: str
    result: Any
