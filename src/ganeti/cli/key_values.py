"""`key=value,…` on a command line.

`k=v` sets a value, `k` alone is true, `no_k` is false, and `-k` restores the default. A backslash escapes a comma.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ganeti.base.errors import InputError
from ganeti.base.sizes import parse_mib
from ganeti.base.suggestions import did_you_mean

if TYPE_CHECKING:  # Lists do not need opcodes and start faster without them.
    from ganeti.model.opcodes.base import DiskRequest, NicRequest

NO_PREFIX, UNSET_PREFIX = "no_", "-"
MICROSECONDS = 1_000_000


def split_words(text: str, separator: str = ",") -> list[str]:
    r"""Return the parts between unescaped separators; `\,` and `\\` lose their backslash."""
    parts = [""]
    chars = iter(text)
    for char in chars:
        if char == "\\":
            following = next(chars, "")
            keep = "" if following in (separator, "\\") else "\\"
            parts[-1] += keep + following
        elif char == separator:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def key_values(text: str, field: str) -> dict[str, Any]:
    """Return the dictionary for `text`; the value None restores the default."""
    found: dict[str, Any] = {}
    for word in split_words(text) if text else []:
        key, value = _key_value(word)
        if not key:
            raise InputError(f"{word!r:.60} has no name before its value", field)
        if key in found:
            raise InputError(f"{key} occurs twice", field)
        found[key] = value
    return found


def _key_value(word: str) -> tuple[str, Any]:
    key, equals, value = word.partition("=")
    if equals:
        return key, value
    if key.startswith(NO_PREFIX):
        return key.removeprefix(NO_PREFIX), False
    if key.startswith(UNSET_PREFIX):
        return key.removeprefix(UNSET_PREFIX), None
    return key, True


def merged_key_values(texts: Sequence[str] | None, field: str) -> dict[str, Any]:
    """Return the union of several options of one kind; later values replace earlier ones."""
    found: dict[str, Any] = {}
    for text in texts or ():
        found.update(key_values(text, field))
    return found


def name_and_values(text: str, field: str) -> tuple[str, dict[str, Any]]:
    """Return the name and values of `NAME:k=v,…` or `NAME`, the form of `-H`."""
    name, _, rest = text.partition(":")
    if not name or "=" in name:
        raise InputError(f"{text!r:.60} must be NAME:key=value,…", field)
    return name, key_values(rest, field)


def named_key_values(texts: Sequence[str] | None, field: str) -> dict[str, dict[str, Any]]:
    """Return the union of several `NAME:k=v,…` options; later values replace earlier ones."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts or ():
        name, values = name_and_values(text, field)
        found.setdefault(name, {}).update(values)
    return found


def words(text: str) -> list[str]:
    """Return the words of a list with commas."""
    return [word for word in split_words(text) if word]


def texts(given: Sequence[str] | None, field: str) -> dict[str, str]:
    """Return parameters of an OS, which are all texts."""
    found = merged_key_values(given, field)
    for name, value in found.items():
        if not isinstance(value, str):
            raise InputError("needs a value, for example name=value", f"{field}.{name}")
    return found


def switches(texts: Sequence[str], field: str) -> dict[str, Any]:
    """Return the values of `name=true,name=false`; other values remain texts."""
    return {
        name: {"true": True, "false": False}.get(value.lower(), value)
        if isinstance(value, str)
        else value
        for name, value in merged_key_values(texts, field).items()
    }


def intervals_us(texts: Sequence[str], field: str) -> dict[str, int | None]:
    """Return the values of `name=SECONDS` in microseconds."""
    try:
        return {
            name: None if value is None else int(float(value) * MICROSECONDS)
            for name, value in merged_key_values(texts, field).items()
        }
    except (ValueError, OverflowError) as err:
        raise InputError(f"an interval must be a number of seconds: {err}", field) from err


def os_params(texts: Sequence[str] | None, field: str) -> dict[str, str | None] | None:
    """Return parameters of an OS, which are all texts; None stands for a removed parameter."""
    found = merged_key_values(texts, field)
    for name, value in found.items():
        if isinstance(value, bool):
            raise InputError("needs a value, for example name=value", f"{field}.{name}")
    return found or None


def backend_params(texts: Sequence[str] | None, field: str = "beparams") -> dict[str, Any]:
    """Return the typed values of `-B`; None restores the default."""
    from ganeti.model.param import (
        checked_value,
    )  # Lists do not need it and start faster without it.
    from ganeti.model.params import BACKEND_PARAMS, MEMORY

    known = {**BACKEND_PARAMS, MEMORY: BACKEND_PARAMS["maxmem"]}
    return {
        name: None
        if value in (None, "default")
        else checked_value(known[name], value, f"{field}.{name}")
        if name in known
        else value
        for name, value in merged_key_values(texts, field).items()
    }


def whole_number(text: str, field: str) -> int:
    """Return a number without a sign; raise InputError."""
    if not text.isascii() or not text.isdecimal():
        raise InputError(f"{text!r:.40} is not a whole number", field)
    return int(text)


_DURATION = r"([0-9]{1,9})([smhdw]?)"
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def duration_s(text: str, field: str = "duration") -> int:
    """Return the seconds of `30m`, `6h`, `2d`, `1w` or a number of seconds; raise InputError."""
    found = re.fullmatch(_DURATION, text)
    if found is None:
        raise InputError(f"{text!r:.40} is not a duration such as 30m, 6h or 2d", field)
    return int(found[1]) * _SECONDS[found[2]]


def numbered(texts: Sequence[str] | None, field: str) -> dict[int, dict[str, Any]]:
    """Return `N:k=v,…` options by N."""
    found: dict[int, dict[str, Any]] = {}
    for text in texts or ():
        number, colon, rest = text.partition(":")
        if not colon and "=" in number:
            raise InputError(f"must begin with a number, for example 0:{text:.60}", field)
        index = whole_number(number, field)
        if index in found:
            raise InputError(f"number {index} occurs twice", field)
        found[index] = key_values(rest, f"{field}[{index}]")
    return found


def indexed(texts: Sequence[str] | None, field: str) -> list[dict[str, Any]]:
    """Return `N:k=v,…` options in the order of N, which must count from 0 without a gap."""
    found = numbered(texts, field)
    missing = next((number for number in range(len(found)) if number not in found), None)
    if missing is not None:
        raise InputError(f"number {missing} is missing; the numbers count from 0", field)
    return [found[index] for index in sorted(found)]


def disk_requests(texts: Sequence[str] | None) -> "list[DiskRequest]":
    """Return disks of `--disk N:size=SIZE[,mode=ro][,name=NAME][,…]`."""
    from ganeti.model.opcodes.base import DiskRequest

    requests = []
    for index, values in enumerate(indexed(texts, "disks")):
        size, adopt = values.pop("size", None), values.pop("adopt", None)
        if adopt is not None and not isinstance(adopt, str):
            raise InputError("needs a value", f"disks[{index}].adopt")
        if adopt is None and not isinstance(size, str):
            mistyped = next((key for key in values if did_you_mean(key, ["size"])), None)
            if mistyped is not None:
                raise InputError(
                    f"unknown key {mistyped!r:.40}{did_you_mean(mistyped, ['size'])}",
                    f"disks[{index}]",
                )
            raise InputError("needs a size, for example 0:size=10g", f"disks[{index}]")
        mode, name = values.pop("mode", "rw"), values.pop("name", None)
        mib = parse_mib(size, f"disks[{index}].size") if isinstance(size, str) else 0
        requests.append(
            DiskRequest(size=mib, mode=str(mode), name=name, adopt=adopt, params=values)
        )
    return requests


_NIC_KEYS = ("mac", "ip", "mode", "link", "vlan", "name", "network")


def nic_requests(texts: Sequence[str] | None) -> "list[NicRequest]":
    """Return interfaces of `--net N:mac=…,ip=…,network=…,mode=…,link=…,vlan=…,name=…`; `none` removes a value."""
    from ganeti.model.opcodes.base import NicRequest

    requests = []
    for index, values in enumerate(indexed(texts, "nics")):
        unknown = sorted(values.keys() - set(_NIC_KEYS))
        if unknown:
            raise InputError(
                f"unknown key {unknown[0]!r:.40}{did_you_mean(unknown[0], _NIC_KEYS)};"
                f" the keys are {', '.join(_NIC_KEYS)}",
                f"nics[{index}]",
            )
        given = {key: value for key, value in values.items() if value not in (None, "none")}
        wrong = [key for key, value in given.items() if not isinstance(value, str)]
        if wrong:
            raise InputError("needs a value", f"nics[{index}].{wrong[0]}")
        requests.append(NicRequest(**given))
    return requests
