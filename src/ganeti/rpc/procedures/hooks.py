"""Procedures for an administrator's programs on a node: list them, and run them."""

from collections.abc import Iterable

from ganeti.model.hooks import Phase
from ganeti.rpc.procedures.form import NORMAL_S, QUICK_S, SLOW_S, Message, Nothing, Procedure

HOOKS_LIMIT_S = SLOW_S - NORMAL_S
"""Time limit of all programs of one directory together."""


class HookDirectory(Message, frozen=True, kw_only=True):
    """One directory that is not empty."""

    hook: str
    phase: Phase


def report(directories: Iterable[HookDirectory]) -> str:
    """Return the text by which a node reports its directories in the header of an answer."""
    return " ".join(f"{one.hook}-{one.phase}" for one in directories)


def parse_report(text: str) -> list[HookDirectory]:
    """Return the directories of a report, without those of phases that only a newer node knows."""
    pairs = (word.rpartition("-") for word in text.split())
    return [
        HookDirectory(hook=hook, phase=Phase(phase)) for hook, _, phase in pairs if phase in _PHASES
    ]


_PHASES = frozenset(Phase)


class HooksArgs(Message, frozen=True, kw_only=True):
    """Run the programs of a directory; they get only `environment`, besides PATH."""

    hook: str
    phase: Phase
    environment: dict[str, str]


class HookResult(Message, frozen=True, kw_only=True):
    """A program's result: `problem` is '' after success; `output` is the beginning of its output."""

    script: str
    problem: str = ""
    output: str = ""


HOOKS_LIST = Procedure("hooks_list", Nothing, list[HookDirectory], QUICK_S, changes=False)

HOOKS_RUN = Procedure("hooks_run", HooksArgs, list[HookResult], SLOW_S, changes=True)
