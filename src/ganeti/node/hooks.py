"""Answers the calls that list and run an administrator's programs (interfaces.md, section 6; A47, A66).

What runs here runs as root: the directories and the programs must belong to root and be writable by
nobody else, and none of them may be a link. A program that breaks this is not run; before an operation
that refuses the operation, so that a check is never left out silently.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ganeti import ssconf
from ganeti.base.errors import ConfigurationError, ErrorCode, HostError, PrereqError
from ganeti.base.paths import Paths
from ganeti.base.process import CommandFailed, run
from ganeti.model.hooks import (
    HOOKS,
    HOOKS_VERSION,
    PREFIX,
    SCRIPT_NAME,
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
)

PATH = "/sbin:/bin:/usr/sbin:/usr/bin"
OUTPUT_LIMIT = 16 * 1024
"""Bytes of what one program says that are kept."""
LINGER_S = 0.5
"""How long what a program has left in the background is listened to."""
log = logging.getLogger(__name__)
NOT_OWN = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Script:
    """A program that is to be run; `problem` says why it must not be."""

    path: Path
    problem: str = ""


class NodeHooks:
    """The hooks of this node; `limit_s` is what all programs of one directory may take."""

    def __init__(self, paths: Paths, limit_s: float = HOOKS_LIMIT_S) -> None:
        self._hooks, self._data = paths.hooks, paths.data
        self._limit_s = limit_s

    def handlers(self) -> Handlers:
        return {HOOKS_LIST.name: self.list_filled, HOOKS_RUN.name: self.run}

    async def list_filled(self, _args: Nothing, _call: Call) -> list[HookDirectory]:
        """The directories that have a program; quick, for it is asked at every operation."""
        return await asyncio.to_thread(lambda: list(_filled(self._hooks)))

    async def run(self, args: HooksArgs, _call: Call) -> list[HookResult]:
        """Run the programs of one directory, one after the other by name."""
        if args.hook not in HOOKS:
            raise PrereqError(f"there is no hook {args.hook!r:.60}", ErrorCode.WRONG_INPUT)
        for name, value in args.environment.items():
            if not VARIABLE.fullmatch(name) or "\0" in value:
                raise PrereqError(f"{name!r:.80} is no variable of hooks", ErrorCode.WRONG_INPUT)
        environment = {**args.environment, f"{PREFIX}DATA_DIR": str(self._data)}
        place = self._hooks / directory(args.hook, args.phase)
        return await run_directory(place, environment, self._limit_s)


class LocalHooks:
    """Hooks around what this node does by itself: the cluster's address, which the master may bring up alone."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    async def __call__(self, hook: str, phase: Phase, variables: Mapping[str, str]) -> None:
        """Run them; before the act one that fails refuses it (HostError), afterwards the log has it."""
        place = self._paths.hooks / directory(hook, phase)
        try:
            results = await run_directory(place, self._environment(hook, phase, variables))
        except HostError as err:
            if phase is Phase.PRE:
                raise
            log.warning("hooks were not run: %s", err.message)
            return
        for one in results:
            if one.problem:
                text = f"hook {one.script} ({place}) failed: {one.problem}: {one.output}"
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


async def run_directory(
    place: Path, environment: Mapping[str, str], limit_s: float = HOOKS_LIMIT_S
) -> list[HookResult]:
    """Run all programs of a directory within `limit_s`; those for which no time is left have failed."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    results = []
    for script in await asyncio.to_thread(scripts_of, place):
        if script.problem:
            results.append(HookResult(script=script.path.name, problem=script.problem))
        else:
            results.append(await _run(script.path, environment, max(end - loop.time(), 0.0)))
    return results


async def _run(path: Path, environment: Mapping[str, str], limit_s: float) -> HookResult:
    try:
        done = await run(
            [str(path)],
            timeout_s=limit_s,
            env={"PATH": PATH, **environment},
            linger_s=LINGER_S,
        )
    except CommandFailed as err:
        return HookResult(script=path.name, problem=err.why, output=_shown(err.completed.text))
    return HookResult(script=path.name, output=_shown(done.text))


def _shown(text: str) -> str:
    """What people see of a program's output: its beginning, and nothing that a terminal would obey."""
    kept = text[:OUTPUT_LIMIT]
    more = " […]" if len(kept) < len(text) else ""
    return "".join(one if one.isprintable() or one in "\n\t" else "�" for one in kept) + more


def _filled(hooks: Path) -> Iterator[HookDirectory]:
    try:
        names = sorted(entry.name for entry in os.scandir(hooks))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as err:
        raise HostError(f"{hooks}: {err.strerror}") from err
    for name in names:
        hook, _, phase = name.removesuffix(".d").rpartition("-")
        if name.endswith(".d") and hook in HOOKS and phase in tuple(Phase):
            try:
                is_filled = bool(scripts_of(hooks / name))
            except HostError:
                is_filled = True  # what is wrong with it is said when it is to run
            if is_filled:
                yield HookDirectory(hook=hook, phase=Phase(phase))


def scripts_of(place: Path) -> list[Script]:
    """The programs of a directory, by name, as run-parts chooses them; none if there is no directory.

    Files that are not executable are no programs. HostError if the directory itself cannot be trusted.
    """
    try:
        for one in (place.parent, place):
            _check_directory(one)
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as err:
        raise HostError(f"{place}: {err.strerror}") from err
    found = (_script(entry) for entry in entries if SCRIPT_NAME.fullmatch(entry.name))
    return [script for script in found if script is not None]


def _script(entry: "os.DirEntry[str]") -> Script | None:
    path = Path(entry.path)
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return Script(path, "it is a link: put the program itself there")
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & stat.S_IXUSR:
        return None
    return Script(path, _distrust(status))


def _check_directory(place: Path) -> None:
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise HostError(f"{place} is not a directory (links are not followed)")
    if why := _distrust(status):
        raise HostError(f"{place} is not to be trusted: {why}")


def _distrust(status: os.stat_result) -> str:
    """Why somebody else than root, or whom this daemon runs as, could have written it; '' if nobody could."""
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to user {status.st_uid}, not to root"
    if status.st_mode & NOT_OWN:
        return f"others than its owner may write it (mode {stat.S_IMODE(status.st_mode):04o})"
    return ""
