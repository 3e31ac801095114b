"""Answers the call that runs an external allocator (seed 004, S158-S163)."""

import asyncio
import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import HostError, InputError
from ganeti.base.identifiers import plain_name
from ganeti.base.paths import Paths
from ganeti.base.process import CommandFailed, Run
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.programs import ALLOCATOR_RUN, AllocatorArgs, AllocatorOutput

TIMEOUT_S = 120.0
_OPTION = re.compile(r"--[a-z][a-z0-9-]*(=[^\x00\n]{0,1000})?", re.ASCII)


def handlers(paths: Paths, run: Run) -> Handlers:
    """Return the handler of the only call about allocators."""
    return {ALLOCATOR_RUN.name: _Allocators(paths, run).run_one}


@dataclass(frozen=True)
class _Allocators:
    paths: Paths
    run: Run

    async def run_one(self, args: AllocatorArgs, _call: Call) -> AllocatorOutput:
        """Run the program with one argument, a private file that holds the message (S161), and then the options."""
        for option in args.options:
            if not _OPTION.fullmatch(option):
                raise InputError(f"{option!r:.60} is not an option of the allocator", "options")
        program = await asyncio.to_thread(find, self.paths.iallocator_search_path, args.name)
        if program is None:
            return AllocatorOutput(found=False)
        if args.message is None:
            return AllocatorOutput(found=True)
        message = await asyncio.to_thread(self._write, args.message)
        try:
            words = [str(program), message, *args.options]
            ended = await self.run(words, timeout_s=TIMEOUT_S, check=False)
        except CommandFailed as err:
            said = err.completed
            return AllocatorOutput(
                found=True,
                status=said.status or 1,
                stdout=_text(said.stdout),
                stderr=f"{_text(said.stderr)}{err.message}",
            )
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(message)  # noqa: PTH108 -- a name from mkstemp
        return AllocatorOutput(
            found=True, status=ended.status, stdout=_text(ended.stdout), stderr=_text(ended.stderr)
        )

    def _write(self, message: str) -> str:
        self.paths.run.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix="iallocator-", dir=self.paths.run)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 -- a descriptor
            file.write(message)
        return name


def find(search_path: Sequence[Path], name: str) -> Path | None:
    """Return the allocator `name`, a plain word (F36), of the first directory that has it (S158); blocks.

    HostError if it must not, or cannot, be run.
    """
    plain_name(name, "iallocator")
    for directory in search_path:
        try:
            opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # directories of the list may be missing
        try:
            status = os.stat(name, dir_fd=opened)
        except FileNotFoundError:
            continue
        except OSError as err:
            raise HostError(
                f"cannot read the allocator {directory / name}: {err.strerror}"
            ) from err
        finally:
            os.close(opened)
        if why := _unusable_reason(status):
            raise HostError(f"allocator {directory / name} cannot be run: it {why}")
        return directory / name
    return None


def _unusable_reason(status: os.stat_result) -> str | None:
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & stat.S_IXUSR:
        return "is not an executable file"
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to user {status.st_uid}, not to root"
    if status.st_mode & stat.S_IWOTH:
        return "is writable by all users"
    return None


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace")
