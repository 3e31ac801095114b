"""Confirmation prompts: of commands, and of opcodes that destroy data (G12)."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from ganeti.base.terminal import say
from ganeti.cli.errors import NeedsConfirmation


def confirm(question: str, *, is_sure: bool, how: str = "--force", can_ask: bool = True) -> None:
    """Return if the user confirms the question; NeedsConfirmation otherwise. `how` is the option that confirms.

    With `can_ask` False, only the option confirms.
    """
    if is_sure:
        return
    if not can_ask:
        raise NeedsConfirmation(f"{question} Pass {how} to confirm.")
    if not sys.stdin.isatty():
        raise NeedsConfirmation(
            f"{question} Pass {how} to confirm; standard input is not a terminal."
        )
    say(question, "y/[n]: ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NeedsConfirmation("Not confirmed; nothing was changed.")


def confirm_losses(ops: Sequence[Any], args: argparse.Namespace) -> None:
    """Return if these opcodes of one class destroy no data, or the user confirms; NeedsConfirmation otherwise.

    All functions of `jobs` that submit jobs call it, so every command has the prompt.
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
