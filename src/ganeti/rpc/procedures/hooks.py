"""Procedures for an administrator's programs on a node: which there are, and running them."""

from ganeti.model.hooks import Phase
from ganeti.rpc.procedures.form import NORMAL_S, QUICK_S, SLOW_S, Message, Nothing, Procedure

HOOKS_LIMIT_S = SLOW_S - NORMAL_S
"""How long all programs of one directory together may take."""


class HookDirectory(Message, frozen=True, kw_only=True):
    """One directory that is not empty."""

    hook: str
    phase: Phase


class HooksArgs(Message, frozen=True, kw_only=True):
    """Run the programs of a directory; `environment` is all that they get, beside PATH."""

    hook: str
    phase: Phase
    environment: dict[str, str]


class HookResult(Message, frozen=True, kw_only=True):
    """How one program ended: `problem` is '' if it ended well; `output` is the beginning of what it said."""

    script: str
    problem: str = ""
    output: str = ""


HOOKS_LIST = Procedure("hooks_list", Nothing, list[HookDirectory], QUICK_S, changes=False)

HOOKS_RUN = Procedure("hooks_run", HooksArgs, list[HookResult], SLOW_S, changes=True)
