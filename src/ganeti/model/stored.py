"""The common part of every stored object."""

import msgspec

FORMAT = 1


class Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Fields that every object has."""

    uuid: str
    name: str
    serial_no: int = 1
    ctime: float = 0.0
    mtime: float = 0.0
    format: int = FORMAT
    tags: tuple[str, ...] = ()
