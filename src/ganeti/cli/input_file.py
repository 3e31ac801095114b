"""Input files of commands, with a size limit, so that a device or a wrong file cannot exhaust the memory."""

import sys
from typing import Any

from ganeti.base.errors import ErrorCode, InputError, PrereqError

MOST_BYTES = 256 * 1024 * 1024
MIB = 1024 * 1024


def read_input(name: str, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the bytes of a file, or of standard input for `-`; PrereqError names the file."""
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
    """Return the text of a file, or of standard input for `-`; PrereqError, or InputError for invalid UTF-8."""
    try:
        return read_input(name).decode()
    except UnicodeDecodeError as err:
        raise InputError("is not UTF-8 text", name) from err


def read_json(name: str, what: str) -> Any:
    """Return the JSON value in a file, or in standard input for `-`; PrereqError, or InputError with `what`."""
    import json

    text = read_text(name)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as err:
        raise InputError(f"is not JSON ({err}); pass {what}", name) from err
