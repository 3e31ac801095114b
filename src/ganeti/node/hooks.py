"""Answers the calls that list and run an administrator's programs (docs/design/hooks.md; A47).

Untrusted programs (`base/run_parts.py`) do not run. Before an operation they make the operation
fail, so that a check is never skipped silently.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from ganeti import ssconf
from ganeti.base.errors import ConfigurationError, ErrorCode, HostError, PrereqError
from ganeti.base.paths import Paths
from ganeti.base.run_parts import run_directory, scripts_of
from ganeti.model.hooks import (
    HOOKS,
    HOOKS_VERSION,
    PREFIX,
    VARIABLE,
    ObjectType,
    Phase,
    directory,
)
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.hooks import (
    HOOKS_LIMIT_S,
    HOOKS_LIST,
    HOOKS_RUN,
    HookDirectory,
    HookResult,
    HooksArgs,
    report,
)

log = logging.getLogger(__name__)


class NodeHooks:
    """The hooks of this node; `limit_s` limits all programs of one directory together."""

    def __init__(self, paths: Paths, limit_s: float = HOOKS_LIMIT_S) -> None:
        self._hooks, self._data = paths.hooks, paths.data
        self._limit_s = limit_s

    def handlers(self) -> Handlers:
        return {HOOKS_LIST.name: self.list_filled, HOOKS_RUN.name: self.run}

    async def list_filled(self, _args: Nothing, _call: Call) -> list[HookDirectory]:
        """Return the directories that have a program; called at every operation."""
        return filled(self._hooks)

    def report(self) -> str | None:
        """Return the report for the headers of answers; None if the directories cannot be read."""
        try:
            return report(filled(self._hooks))
        except HostError:
            return None  # the next request gets the error

    async def run(self, args: HooksArgs, _call: Call) -> list[HookResult]:
        """Run the programs of one directory, one after the other by name."""
        if args.hook not in HOOKS:
            raise PrereqError(f"hook {args.hook!r:.60} does not exist", ErrorCode.WRONG_INPUT)
        for name, value in args.environment.items():
            if not VARIABLE.fullmatch(name) or "\0" in value:
                raise PrereqError(f"{name!r:.80} is not a hook variable", ErrorCode.WRONG_INPUT)
        environment = {**args.environment, f"{PREFIX}DATA_DIR": str(self._data)}
        path = self._hooks / directory(args.hook, args.phase)
        ended = await run_directory(path, environment, self._limit_s)
        return [
            HookResult(script=one.name, problem=one.problem, output=one.output) for one in ended
        ]


class LocalHooks:
    """Runs hooks around the node's own actions.

    One such action is the cluster's address, which the master may bring up alone.
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    async def __call__(self, hook: str, phase: Phase, variables: Mapping[str, str]) -> None:
        """Run the hooks.

        A hook that fails before the action refuses it (HostError); after the action it is logged.
        """
        path = self._paths.hooks / directory(hook, phase)
        environment = self._environment(hook, phase, variables)
        try:
            results = await run_directory(path, environment, HOOKS_LIMIT_S)
        except HostError as err:
            if phase is Phase.PRE:
                raise
            log.warning("hooks were not run: %s", err.message)
            return
        for one in results:
            if one.problem:
                text = f"hook {one.name} ({path}) failed: {one.problem}: {one.output}"
                if phase is Phase.PRE:
                    raise HostError(text)
                log.warning("%s", text)

    def _environment(self, hook: str, phase: Phase, variables: Mapping[str, str]) -> dict[str, str]:
        try:
            values = ssconf.read_set(self._paths)[1]
        except (ConfigurationError, OSError, UnicodeDecodeError):
            values = {}
        named = {
            **variables,
            "HOOKS_VERSION": str(HOOKS_VERSION),
            "HOOKS_PHASE": phase,
            "HOOKS_PATH": hook,
            "CLUSTER": values.get("cluster_name", ""),
            "MASTER": values.get("master_node", ""),
            "OP_CODE": f"OP_CLUSTER_IP_{hook.rpartition('-')[2].upper()}",
            "OBJECT_TYPE": ObjectType.CLUSTER,
            "OP_TARGET": values.get("cluster_name", ""),
            "DATA_DIR": str(self._paths.data),
        }
        return {PREFIX + name: str(value) for name, value in named.items()}


def filled(hooks: Path) -> list[HookDirectory]:
    """Return the directories below `hooks` that have a program; HostError.

    Runs on the loop: it reads a few names, mostly none, and a thread would cost 0.3 ms of processor
    time at every call of a job.
    """
    try:
        names = sorted(entry.name for entry in os.scandir(hooks))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as err:
        raise HostError(f"{hooks}: {err.strerror}") from err
    return [one for name in names if (one := _directory(hooks, name)) is not None]


def _directory(hooks: Path, name: str) -> HookDirectory | None:
    hook, _, phase = name.removesuffix(".d").rpartition("-")
    if not name.endswith(".d") or hook not in HOOKS or phase not in tuple(Phase):
        return None
    try:
        is_filled = bool(scripts_of(hooks / name))
    except HostError:
        is_filled = True  # a problem is reported when the hook is to run
    return HookDirectory(hook=hook, phase=Phase(phase)) if is_filled else None
