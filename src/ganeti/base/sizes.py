"""Sizes as people write and read them; internally, everything is whole MiB."""

import re

from ganeti.base.errors import InputError

_SIZE = r"(?ai)([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*(m|mb|mib|g|gb|gib|t|tb|tib)?"
_FACTOR = {"m": 1, "g": 1024, "t": 1024 * 1024}


def parse_mib(text: str, field: str = "size") -> int:
    """Return `1g`, `512`, `1.5t` in MiB, rounded up; units are powers of 1024 as everywhere in Ganeti."""
    found = re.fullmatch(_SIZE, text.strip())
    if not found:
        raise InputError(f"{text!r:.80} is not a size; use for example 512m, 10g or 1.5t", field)
    whole, _, part = found[1].partition(".")
    size = int(whole + part) * _FACTOR[(found[2] or "m")[0].lower()]
    return -(-size // int(f"1{len(part) * '0'}"))


def format_mib(size_mib: float, units: str = "h") -> str:
    """Return a size for people (`h`: 1.5G), or the bare number in `m`, `g` or `t`."""
    if units == "h":
        if size_mib < _FACTOR["g"]:
            return f"{size_mib:.0f}M"
        if size_mib < _FACTOR["t"]:
            return f"{size_mib / _FACTOR['g']:.1f}G"
        return f"{size_mib / _FACTOR['t']:.1f}T"
    if units == "m":
        return f"{size_mib:.0f}"
    return f"{size_mib / _FACTOR[units]:.1f}"
