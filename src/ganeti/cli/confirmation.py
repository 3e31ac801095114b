"""Asking whether a command is meant: by a question of its own, or because its opcodes destroy something (G12)."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

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


def confirm_losses(ops: Sequence[Any], args: argparse.Namespace) -> None:
    """Return if these opcodes of one class destroy nothing, or the user confirms it; NeedsConfirmation.

    The functions of `jobs` that submit call it, so no command can forget the question.
    """
    loss = ops[0].loss if ops else None
    if loss is None or (question := loss.question(ops)) is None:
        return
    if loss.terminal_only and not sys.stdin.isatty():
        return
    enough = loss.options if len(ops) == 1 else loss.options[-1:]
    confirm(
        question,
        is_sure=any(getattr(args, name) for name in enough),
        how=_OPTIONS[enough[0]],
        can_ask=loss.asks,
    )


_OPTIONS = {"force": "--force", "force_multi": "--force-multiple", "is_sure": "--yes-do-it"}
