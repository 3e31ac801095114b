"""What an opcode declares beside its fields, for the programs that offer it to people and to other programs.

`ganeti.cli` reads what an opcode destroys (`Loss`).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Question = Callable[[Sequence[Any]], str | None]
"""The question to ask before opcodes of one class are submitted; None if these opcodes destroy nothing."""


class Loss(NamedTuple):
    """What an opcode destroys, as the question that a command asks before it submits the opcode."""

    question: Question
    options: tuple[str, ...] = ("force",)
    """Options that answer the question in advance, by argparse's names: the first for one opcode, the last for several."""
    asks: bool = True
    """False: a command never asks, and needs the option."""
    terminal_only: bool = False
    """Upstream Ganeti does not ask: a command without a terminal goes on."""
