"""The syntax of names. Every function matches the whole string, ASCII only (A40).

A pattern is compiled when it is first used, because commands import this module.
"""

import re

from ganeti.base.errors import InputError

NAME_LIMIT = 253
PATH_LIMIT, COMPONENT_LIMIT = 1023, 255
"""Maximum bytes of a path and of one name in it: Linux allows no longer names, and paths get suffixes."""

_HOST_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = rf"{_HOST_LABEL}(?:\.{_HOST_LABEL})*"
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_PLAIN = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"
_OS = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}(?:\+[A-Za-z0-9][A-Za-z0-9_.-]{0,127})?"
_VOLUME = r"[A-Za-z0-9_.+][A-Za-z0-9_.+-]{0,126}"
_INTERFACE = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}"
_TAG = r"[A-Za-z0-9.+*/:@_-]{1,128}"
_MAC = r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}"


def is_uuid(text: str) -> bool:
    """Return whether `text` is a UUID in lower case."""
    return re.fullmatch(_UUID, text) is not None


def is_absolute_path(text: str) -> bool:
    """Return whether `text` is a valid path on a host: absolute, printable, without `.` and `..`."""
    parts = text.split("/")
    return (
        text.startswith("/")
        and text.isprintable()
        and not {"..", "."} & set(parts)
        and len(text.encode()) <= PATH_LIMIT
        and all(len(part.encode()) <= COMPONENT_LIMIT for part in parts)
    )


def host_name(text: str, field: str) -> str:
    """Return `text` in lower case if it is a host name (RFC 1123) and not a UUID; else raise InputError."""
    lowered = text.lower()
    if (
        len(text) > NAME_LIMIT
        or not text.isascii()
        or not re.fullmatch(_HOST, lowered)
        or is_uuid(lowered)
    ):
        raise InputError(
            f"{text!r:.80} is not a host name: letters, digits, dots and inner hyphens, at most {NAME_LIMIT}",
            field,
        )
    return lowered


def plain_name(text: str, field: str) -> str:
    """Return `text` if it is one safe word (group, allocator, OS variant …); else raise InputError."""
    if not re.fullmatch(_PLAIN, text) or ".." in text:
        raise InputError(
            f"{text!r:.80} is not a name: a letter or digit, then letters, digits, '_', '.', '-'",
            field,
        )
    return text


def os_name(text: str, field: str) -> str:
    """Return `text` if it is `name` or `name+variant` (S120); else raise InputError."""
    if not re.fullmatch(_OS, text) or ".." in text:
        raise InputError(f"{text!r:.80} is not an OS name: NAME or NAME+VARIANT", field)
    return text


def volume_name(text: str, field: str) -> str:
    """Return `text` if it can name a volume group or a logical volume of LVM; else raise InputError."""
    if not re.fullmatch(_VOLUME, text) or text in (".", ".."):
        raise InputError(
            f"{text!r:.80} is not the name of a volume or volume group: letters, digits, '_', '.', '+' and"
            " inner '-', at most 127",
            field,
        )
    return text


def interface_name(text: str, field: str) -> str:
    """Return `text` if it can name a network interface of Linux; else raise InputError."""
    if not re.fullmatch(_INTERFACE, text) or ".." in text:
        raise InputError(f"{text!r:.80} is not the name of a network interface", field)
    return text


def mac_address(text: str, field: str) -> str:
    """Return `text` in lower case if it is a unicast MAC address; else raise InputError."""
    lowered = text.lower()
    if not re.fullmatch(_MAC, lowered) or int(lowered[:2], 16) & 1:
        raise InputError(f"{text!r:.80} is not a unicast MAC address", field)
    return lowered


def tag_text(text: str, field: str) -> str:
    """Return `text` if it is a valid tag; else raise InputError."""
    if not re.fullmatch(_TAG, text):
        raise InputError(
            f"{text!r:.60} is not a tag: 1 to 128 letters, digits or any of .+*/:@_-", field
        )
    return text
