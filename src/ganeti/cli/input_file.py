"""Files that commands read whole: of a bounded size, so that a device or a wrong name cannot use up the memory."""

import sys
from typing import Any

from ganeti.base.errors import ErrorCode, InputError, PrereqError

MOST_BYTES = 256 * 1024 * 1024
MIB = 1024 * 1024


def read_input(name: str, most_bytes: int = MOST_BYTES) -> bytes:
    """The bytes of a file, or of standard input for `-`; PrereqError names the file."""
    try:
        if name == "-":
            data = sys.stdin.buffer.read(most_bytes + 1)
        else:
            with open(name, "rb") as file:  # noqa: PTH123 - pathlib takes as long to load as a small command
                data = file.read(most_bytes + 1)
    except OSError as err:
        why = "does not exist" if isinstance(err, FileNotFoundError) else err.strerror
        raise PrereqError(f"{name}: {why}", ErrorCode.ENVIRONMENT) from err
    if len(data) > most_bytes:
        raise InputError(f"is larger than {most_bytes // MIB} MiB, too large for its kind", name)
    return data


def read_text(name: str) -> str:
    """The text of a file, or of standard input for `-`; PrereqError, and InputError for other bytes than text."""
    try:
        return read_input(name).decode()
    except UnicodeDecodeError as err:
        raise InputError("is not UTF-8 text", name) from err


def read_json(name: str, what: str) -> Any:
    """The JSON value in a file, or in standard input for `-`; PrereqError, InputError, which says `what` it must be."""
    import json

    text = read_text(name)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as err:
        raise InputError(f"is not JSON ({err}); pass {what}", name) from err
