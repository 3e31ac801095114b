"""Programs that compress data for a transfer or a dump: their names in requests, and their words."""

from collections.abc import Sequence
from typing import NamedTuple

from ganeti.base.errors import InputError

NONE = "none"


class Compression(NamedTuple):
    """One compression; both commands read standard input and write standard output."""

    pack: tuple[str, ...]
    unpack: tuple[str, ...]
    level: int = 0
    """The same compression by zlib, frame by frame; 0: zlib does not support it."""


COMPRESSIONS: dict[str, Compression | None] = {
    NONE: None,
    "gzip": Compression(("gzip", "-c"), ("gzip", "-dc"), 6),
    "gzip-fast": Compression(("gzip", "-c1"), ("gzip", "-dc"), 1),
    "gzip-slow": Compression(("gzip", "-c9"), ("gzip", "-dc"), 9),
    "zstd": Compression(("zstd", "-q", "-c", "-T0"), ("zstd", "-q", "-dc")),
    "lz4": Compression(("lz4", "-q", "-c"), ("lz4", "-q", "-dc")),
}
"""By name; the programs are searched on the node where they run."""
TOOLS = tuple(name for name in COMPRESSIONS if name != NONE)


def check_compression(name: str, field: str = "compress") -> str:
    """Return the name of a compression; InputError if it is not one."""
    if name not in COMPRESSIONS:
        raise InputError(f"{name!r:.40} is not one of {', '.join(COMPRESSIONS)}", field)
    return name


def check_allowed(name: str, tools: Sequence[str]) -> None:
    """Raise InputError if a cluster does not use this compression."""
    if name != NONE and name not in tools:
        raise InputError(
            f"{name} is not among the compression tools of this cluster ({', '.join(tools)});"
            " gnt-cluster modify --compression-tools sets the allowed ones",
            "compress",
        )


COPIED = tuple(name for name, one in COMPRESSIONS.items() if one is None or one.level)
"""The compressions for a copy of a disk within the cluster."""
