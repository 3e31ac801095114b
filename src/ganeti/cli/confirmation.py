"""Asking whether a command is meant."""

import sys

from ganeti.base.terminal import say
from ganeti.cli.errors import NeedsConfirmation


def confirm(question: str, *, is_sure: bool, how: str = "--force", can_ask: bool = True) -> None:
    """Return if the user means it; NeedsConfirmation otherwise. `how` says it in advance.

    `can_ask` False: nobody is asked, only the option will do.
    """
    if is_sure:
        return
    if not can_ask:
        raise NeedsConfirmation(f"{question} Give {how} if it is meant.")
    if not sys.stdin.isatty():
        raise NeedsConfirmation(f"{question} Give {how} to confirm, nobody can be asked here.")
    say(question, "y/[n]: ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NeedsConfirmation("Nothing was done.")
