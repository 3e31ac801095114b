"""Scripts of OS definitions: `create` and `rename` run as tasks of the node, `verify` runs at once.

The program that transfers their data runs `export` and `import` (`node/carrier/program.py`).

Scripts get no arguments (S127; only `verify` gets the word `parameters`) and start in the directory of
their definition.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ganeti.base.errors import GuestOsError, InputError
from ganeti.base.identifiers import host_name
from ganeti.base.process import CommandFailed, Run
from ganeti.guest_os.definitions import (
    PARAMETERS_SINCE,
    check_hypervisor,
    check_variant,
    chosen_api,
    find,
    load,
    split_name,
)
from ganeti.guest_os.environment import (
    ChosenOs,
    disk_of_script,
    instance_environment,
    verify_environment,
)
from ganeti.model.instance_spec import NO_FACTS, InstanceSpec, OsFacts
from ganeti.rpc.procedures.programs import OsInfo, ScriptResult

TAIL_BYTES = 4096
"""The part of a script's output that results and errors contain."""

OUTPUT_BYTES = 16 * 1024
"""Bytes of a running script's output in one report; the rest of faster output is dropped."""

OUTPUT_SUFFIX = ".out"
"""Suffix of the file with the standard output of `create` and `rename` (S134)."""

VERIFY_TIMEOUT_S = 120.0
SCRIPT_TIMEOUT_S = 5.5 * 3600
"""Below the deadline of the call, so that the node can still report the failure."""

TIMED_OUT = 124
_SIGNALLED = 128


class Tasks(Protocol):
    """Long work of the node, which outlives the node daemon (`node/tasks.py`)."""

    async def run(
        self,
        key: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        log_path: Path,
        timeout_s: float,
        stdout_path: Path | None = None,
    ) -> int:
        """Return the exit status in the form of a shell; a repeated key waits for the same run and returns the same.

        Errors are appended to `log_path`, output to `stdout_path` or the same file; both within limits.
        """
        ...


@dataclass(frozen=True)
class OsChoice:
    """`name+variant`, whether an undeclared variant is allowed, and the parameters."""

    os: str
    osparams: Mapping[str, str]
    force_variant: bool = False
    facts: OsFacts = NO_FACTS


@dataclass(frozen=True)
class DiskOfScript:
    """The disk of an export or import script; `key` is that of its call."""

    path: str
    index: int
    key: str
    debug: int = 0


@dataclass(frozen=True)
class ScriptCommand:
    """A script for other runners: its words, its complete environment, and the file of its messages."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    log_path: Path


@dataclass(frozen=True)
class OsScripts:
    """The OS definitions of one node, and the runner of their scripts."""

    search_path: Sequence[Path]
    log_directory: Path
    tasks: Tasks
    run: Run

    async def create(
        self,
        key: str,
        choice: OsChoice,
        instance: InstanceSpec,
        disk_paths: Sequence[str],
        debug: int,
        *,
        reinstall: bool = False,
        runner: Sequence[str] = (),
    ) -> ScriptResult:
        """Install an OS on the instance's disks; GuestOsError with the end of the script's output.

        `runner` has the words of a program that runs the script, if it cannot be run directly.
        """
        info, chosen = self._choose(choice)
        check_hypervisor(info, instance.hypervisor)
        script = {"INSTANCE_REINSTALL": "1"} if reinstall else {}
        environment = instance_environment(chosen, instance, disk_paths, debug=debug, script=script)
        return await self._run_on(key, info, "create", instance, environment, runner=runner)

    async def rename(
        self,
        key: str,
        choice: OsChoice,
        instance: InstanceSpec,
        disk_paths: Sequence[str],
        debug: int,
        *,
        old_name: str,
        runner: Sequence[str] = (),
    ) -> ScriptResult:
        """Set the name of `instance` in the installed system; GuestOsError as for `create`."""
        info, chosen = self._choose(choice)
        if "rename" not in info.scripts:
            raise GuestOsError(f"OS {info.name} has no script rename")
        environment = instance_environment(
            chosen,
            instance,
            disk_paths,
            debug=debug,
            script={"OLD_INSTANCE_NAME": host_name(old_name, "old_name")},
        )
        return await self._run_on(key, info, "rename", instance, environment, runner=runner)

    def export_command(
        self,
        choice: OsChoice,
        instance: InstanceSpec,
        disk_paths: Sequence[str],
        end: "DiskOfScript",
    ) -> "ScriptCommand":
        """Return the script that writes the data of one disk to standard output (S132)."""
        return self._command("export", choice, instance, disk_paths, end)

    def import_command(
        self,
        choice: OsChoice,
        instance: InstanceSpec,
        disk_paths: Sequence[str],
        end: "DiskOfScript",
    ) -> "ScriptCommand":
        """Return the script that reads the data of one exported disk from standard input (S132)."""
        return self._command("import", choice, instance, disk_paths, end)

    def _command(
        self,
        script: str,
        choice: OsChoice,
        instance: InstanceSpec,
        disk_paths: Sequence[str],
        end: "DiskOfScript",
    ) -> "ScriptCommand":
        info, chosen = self._choose(choice)
        if script not in info.scripts:
            raise GuestOsError(f"OS {info.name} has no script {script}")
        environment = instance_environment(
            chosen,
            instance,
            disk_paths,
            debug=end.debug,
            script=disk_of_script(script.upper(), end.path, end.index),
        )
        log_path = self._log_path(script, info.name, instance.name, end.key)
        return ScriptCommand(tuple(_script(info, script)), environment, log_path)

    async def _run_on(
        self,
        key: str,
        info: OsInfo,
        script: str,
        instance: InstanceSpec,
        environment: Mapping[str, str],
        *,
        runner: Sequence[str],
    ) -> ScriptResult:
        """Run a script on an instance's disks, as a task of the node."""
        # The runner must find this package like the daemon; it does not pass the path on.
        own = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
        log_path = self._log_path(script, info.name, instance.name, key)
        status = await self.tasks.run(
            key,
            [*runner, *_script(info, script)],
            env={**environment, **own} if runner else environment,
            log_path=log_path,
            timeout_s=SCRIPT_TIMEOUT_S,
            stdout_path=log_path.with_suffix(OUTPUT_SUFFIX),
        )
        tail = read_tail(log_path)
        if status:
            tail = tail or read_tail(log_path.with_suffix(OUTPUT_SUFFIX))
            raise GuestOsError(
                f"OS {info.name}: script {script} for {instance.name} {_ended(status)};"
                f" its messages are in {log_path} on this node, its output beside it in *{OUTPUT_SUFFIX}"
                + (f" and ends:\n{tail}" if tail else "")
            )
        return ScriptResult(tail=tail, log_path=str(log_path))

    async def validate(self, choice: OsChoice) -> str:
        """Let the definition check parameters (S146), and return its output; GuestOsError if it refuses them."""
        return await self._validate(*self._choose(choice))

    async def validate_defaults(self, choice: OsChoice) -> str:
        """Check as `validate`, for all variants if none is chosen; without a definition nothing is checked (S149)."""
        name, variant = split_name(choice.os)
        if find(self.search_path, name) is None:
            return ""
        info = load(self.search_path, name)
        if variant:
            check_variant(info, variant, force=choice.force_variant)
        return await self._validate(
            info, ChosenOs(name, variant, chosen_api(info), choice.osparams)
        )

    async def _validate(self, info: OsInfo, chosen: ChosenOs) -> str:
        if chosen.api_version < PARAMETERS_SINCE:
            if chosen.osparams:
                raise GuestOsError(
                    f"OS {info.name} accepts no parameters: it supports API {chosen.api_version},"
                    f" parameters exist since {PARAMETERS_SINCE}"
                )
            return ""
        declared = {name for name, _ in info.parameters}
        if unknown := sorted(set(chosen.osparams) - declared):
            raise GuestOsError(
                f"OS {info.name} has no parameter {', '.join(unknown)}"
                f" (it has {', '.join(sorted(declared)) or 'none'})"
            )
        argv = [*_script(info, "verify"), "parameters"]
        try:
            ended = await self.run(
                argv, timeout_s=VERIFY_TIMEOUT_S, env=verify_environment(chosen), check=False
            )
        except CommandFailed as err:
            raise GuestOsError(f"OS {chosen.os}: script verify failed: {err.message}") from err
        tail = clean((ended.stdout + ended.stderr)[-TAIL_BYTES:])
        if ended.status:
            raise GuestOsError(
                f"OS {chosen.os} refuses the parameters: script verify {_ended(ended.status)}"
                + (f":\n{tail}" if tail else "")
            )
        return tail

    def _choose(self, choice: OsChoice) -> tuple[OsInfo, ChosenOs]:
        name, variant = split_name(choice.os)
        info = load(self.search_path, name)
        check_variant(info, variant, force=choice.force_variant)
        return info, ChosenOs(name, variant, chosen_api(info), choice.osparams, choice.facts)

    def _log_path(self, script: str, os_name: str, instance_name: str, key: str) -> Path:
        """Return the output file of one run; the same key has the same file."""
        if not key:
            raise InputError("a call that runs a script needs a key", "key")
        self.log_directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        instance = host_name(instance_name, "instance.name")
        return self.log_directory / f"{script}-{os_name}-{instance}-{_run_name(key)}.log"

    def output(self, key: str, offset: int) -> tuple[bytes, int, int]:
        """Return the output of a call's script beyond `offset`: whole lines, the new offset, bytes left out.

        Blocks; nothing if no script runs by that key.
        """
        run = _run_name(key)
        found = sorted(self.log_directory.glob(f"*-{run}.log")) if run else []
        if not found:
            return b"", offset, 0
        with found[0].open("rb") as source:
            end = os.fstat(source.fileno()).st_size
            begin = max(offset, end - OUTPUT_BYTES)
            source.seek(begin)
            data = source.read(end - begin)
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) < OUTPUT_BYTES:
            return b"", offset, 0
        return data[: whole or len(data)], begin + (whole or len(data)), begin - offset


def _run_name(key: str) -> str:
    """Return the form of a call's key in file names."""
    return "".join(one if one.isalnum() and one.isascii() else "-" for one in key)[:100]


def read_tail(path: Path, size: int = TAIL_BYTES) -> str:
    """Return the last `size` bytes of a file, without control characters; '' if it does not exist."""
    try:
        with path.open("rb") as source:
            source.seek(max(0, os.fstat(source.fileno()).st_size - size))
            return clean(source.read(size))
    except FileNotFoundError:
        return ""


def _script(info: OsInfo, name: str) -> list[str]:
    # `env` sets the directory: definitions read their files by relative names.
    return ["/usr/bin/env", f"--chdir={info.path}", f"{info.path}/{name}"]


def _ended(status: int) -> str:
    """Describe the end of a script, from the status of a shell, `timeout` or our runner."""
    if status == TIMED_OUT:
        return "did not end in time and was killed"
    signal_number = -status if status < 0 else status - _SIGNALLED
    if signal_number > 0:
        return f"was ended by signal {signal_number}"
    return f"ended with exit status {status}"


def clean(data: bytes) -> str:
    """Return text that is safe for a terminal: no control characters but tabs and line ends."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return "".join(letter for letter in text if letter in "\n\t" or letter.isprintable()).strip()
