"""Fence agents: their options, their exit codes, and the passwords that they get; pure.

Fence agents are the programs `fence_*` of Debian's package fence-agents. They read `name=value` lines from their
standard input, and switch a host off by its management controller.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from ganeti.base.errors import InputError

PACKAGE = "fence-agents"
"""The Debian package that has them."""
AGENT = re.compile(r"fence_[a-z0-9_]{1,40}", re.ASCII)
AGENT_DIRECTORIES = ("/usr/sbin", "/usr/local/sbin")
"""Where a node looks for them, in this order."""

PASSWORD_LIMIT = 256
_WORD = re.compile(r"([a-z0-9_]{1,64})=([!-~]{1,512})", re.ASCII)
"""`name=value`, printable and without spaces."""
_HAS_SECRET = re.compile(r"passw|secret|token|community")
_RESERVED = frozenset({"action", "option", "debug", "debug_file", "verbose", "verbose_level"})
"""Set by Ganeti, or such that the agent would print its password."""
_TYPED = re.compile(r"[ -~]+", re.ASCII)


class AgentAction(StrEnum):
    """What a fence agent does; the value of its option `action`."""

    OFF = "off"
    ON = "on"
    CYCLE = "reboot"
    STATUS = "status"


STATUS_ON, STATUS_OFF = 0, 2
"""Exit codes of an agent for `status`; every other code is no answer."""


def parse_options(text: str, field: str = "fence_options") -> dict[str, str]:
    """Return the options of an agent from `name=value` words; InputError if it must not have one of them."""
    found: dict[str, str] = {}
    for word in text.split():
        match = _WORD.fullmatch(word)
        if match is None:
            raise InputError(f"{word!r:.60} is not an option: use name=value", field)
        name, value = match.groups()
        if _HAS_SECRET.search(name):
            raise InputError(
                f"option {name} must not be here, because parameters are shown; store a password with:"
                " gnt-node fence-password NODE",
                field,
            )
        if name in _RESERVED:
            raise InputError(f"option {name} cannot be set", field)
        if name in found:
            raise InputError(f"option {name} is given twice", field)
        found[name] = value
    return found


def stored_options(text: str, field: str) -> str:
    """Return the options in their stored form: single spaces between them."""
    return " ".join(f"{name}={value}" for name, value in parse_options(text, field).items())


def check_password(password: str, field: str = "password") -> None:
    """Raise InputError unless an agent can read the password from a line; the error does not contain it."""
    if len(password) > PASSWORD_LIMIT or not _TYPED.fullmatch(password):
        raise InputError(
            f"must have 1 to {PASSWORD_LIMIT} printable ASCII characters and no line feed", field
        )
    # Agents strip both from a line.
    if password != password.strip() or (password[0] == password[-1] == '"'):
        raise InputError(
            "must not begin or end with a space, nor be in quotation marks: agents remove these",
            field,
        )


def agent_input(action: AgentAction, options: dict[str, str], password: str) -> bytes:
    """Return the standard input of an agent."""
    lines = [f"action={action}", *(f"{name}={value}" for name, value in options.items())]
    if password:
        lines.append(f"password={password}")
    return "".join(f"{line}\n" for line in lines).encode("ascii")


@dataclass(frozen=True, slots=True)
class PowerStatus:
    """A device's answer about the power of a node."""

    is_on: bool | None
    """None: the device has not answered."""
    why: str = ""
    """Why it has not answered."""
    seconds: float = 0.0
