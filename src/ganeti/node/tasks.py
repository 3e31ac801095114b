"""Long work of a node: programs that outlive the node daemon, each with a durable record.

A program runs below a supervisor: a short shell script in a session of its own (with systemd: a
scope). The supervisor writes the exit status down when the program has ended. The key of the call
(job, opcode, step) identifies the record. So a repeated call, also after a restart of the daemon,
waits for the end of the first one or gets its status.

    KEY.json    what was asked for, synced before anything is started
    KEY.lock    locked by the supervisor and the program while they live
    KEY.pid     the supervisor, its first act, synced: without it the program never started
    KEY.status  exit status, synced; there is nothing after it
"""

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ganeti.base.clock import Clock
from ganeti.base.errors import HostError, InputError
from ganeti.base.files import is_locked, punch_hole, write_atomically
from ganeti.base.process import CLEAN_ENVIRONMENT
from ganeti.model import wire
from ganeti.node.task_processes import end_processes, is_free, left_behind

RECORD_LIFETIME_S = 7 * 24 * 3600.0
KILL_DELAY_S = 10
"""Time between asking a program to end at its deadline and killing it."""
LOG_LIMIT, LOG_KEPT = 16 * 1024 * 1024, 1024 * 1024
"""Bytes kept at the beginning and at the end of a longer log; the rest reads as zeros."""
LOOK_AT_LOG_S = 0.2
KILLED_TOGETHER_S = 5.0
"""Time that a program killed with its supervisor may take to end."""
ENDING_S = 0.5
"""Grace time: a process that ends within it after its task is not reported."""

# $1: the record's path without ending, $2: deadline in seconds, the rest: the program.
SUPERVISOR = f"""
set -u
umask 077
record=$1 deadline=$2
shift 2
printf '%s\\n' "$$" >"$record.pid" && sync "$record.pid" "${{record%/*}}" || exit 1
timeout --kill-after={KILL_DELAY_S} "$deadline" "$@"
status=$?
printf '%s\\n' "$status" >"$record.status.new" || exit 1
sync "$record.status.new" && mv "$record.status.new" "$record.status" && sync "${{record%/*}}"
"""

# A shell gives background commands no standard input, unless a redirection names a descriptor.
# Descriptor 3 is free, because files opened for a task begin at FIRST_OPENED.
FIRST_OPENED = 10
LAUNCHER = 'exec 3<&0; "$@" <&3 3<&- &'

log = logging.getLogger(__name__)


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """The request: the program, a digest of all its words, the master and the purpose."""

    format: int = 1
    key: str
    program: str
    digest: str
    started: float
    epoch: int = 0
    instance: str = ""
    serves: bool = False
    refused: bool = False
    """The task was ended before it began, and can no longer begin."""


@dataclass(frozen=True)
class TaskOrigin:
    """The call that starts a task: the epoch of its master, and the name of its instance."""

    epoch: int = 0
    instance: str = ""


@dataclass(frozen=True)
class Program:
    """A program and its resources besides its words."""

    argv: Sequence[str]
    env: Mapping[str, str]
    log_path: Path
    """File to which the output is appended."""
    timeout_s: float
    stdout_path: Path | None = None
    """File that gets the standard output instead."""
    listens: Callable[[], socket.socket] | None = None
    """Opens the port that becomes the standard input right before the start.

    Callers may come before it listens.
    """
    serves: bool = False
    """True if it only reads for others, and is ended by a request: it does not end with the work of its master."""
    secret: bytes = field(default=b"", repr=False)
    """What the program reads from a pipe; the variable `secret_variable` has the number of the descriptor."""
    secret_variable: str = ""


def open_port(address: str, port_file: Path) -> socket.socket:
    """Listen at a free port, and write its number to a file; HostError on failure."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, 0), family=family)
    except OSError as err:
        raise HostError(f"cannot listen for the data: {err}") from err
    write_atomically(port_file, str(listener.getsockname()[1]).encode())
    return listener


@dataclass(frozen=True)
class _Running:
    begun: asyncio.Event
    end: asyncio.Task[int]


@dataclass(frozen=True)
class _Files:
    base: Path

    @property
    def record(self) -> Path:
        return self.base.with_name(self.base.name + ".json")

    @property
    def lock(self) -> Path:
        return self.base.with_name(self.base.name + ".lock")

    @property
    def pid(self) -> Path:
        return self.base.with_name(self.base.name + ".pid")

    @property
    def status(self) -> Path:
        return self.base.with_name(self.base.name + ".status")

    @property
    def all(self) -> tuple[Path, ...]:
        # The record last: without a record there is no task.
        unfinished = self.base.with_name(self.base.name + ".status.new")
        return (self.status, unfinished, self.pid, self.lock, self.record)


class Tasks:
    """The tasks below one directory; `scope` is put before each program (systemd's, or nothing)."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        scope: Sequence[str] = (),
        origin_of: Callable[[str], TaskOrigin] = lambda _key: TaskOrigin(),
    ) -> None:
        """`origin_of` returns the call that has a key."""
        self._directory = directory
        self._clock = clock
        self._scope = tuple(scope)
        self._origin_of = origin_of
        self._waiting: dict[str, _Running] = {}
        self._beginning = asyncio.Lock()
        """Held from the check whether a task was started until it is started or barred."""

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
        """Run a program at most once for each key; return its exit status.

        Its output is appended to `log_path` (0600), standard output to `stdout_path` if given; the
        middle of a long output becomes zeros. If the caller is cancelled, the program keeps
        running. HostError if it cannot be started, if it was interrupted (the host went down), or
        if the key belongs to another program.
        """
        return await self.complete(key, Program(argv, env, log_path, timeout_s, stdout_path))

    async def complete(self, key: str, program: Program) -> int:
        """Like `run`."""
        return await asyncio.shield(self._found(key, program).end)

    async def begin(self, key: str, program: Program) -> None:
        """Like `run`, but return once the program runs or has run."""
        running = self._found(key, program)
        await running.begun.wait()
        if running.end.done():
            running.end.result()  # raises the reason of a failed start

    def _found(self, key: str, program: Program) -> _Running:
        if not key:
            raise InputError("a task needs the key of its call", "key")
        found = self._waiting.get(key)
        if found is None:
            begun = asyncio.Event()
            end = asyncio.create_task(self._run(key, program, begun), name=f"task {key}")
            found = self._waiting[key] = _Running(begun, end)
            end.add_done_callback(lambda ended: self._ended(key, begun, ended))
        return found

    def running(self) -> list[str]:
        """Return the keys of running tasks, whichever daemon started them."""
        return sorted(record.key for record, files in self._records() if is_locked(files.lock))

    def origins(self) -> dict[str, TaskOrigin]:
        """Return the running tasks by key, with their origins; without those that only serve others."""
        return {
            record.key: TaskOrigin(record.epoch, record.instance)
            for record, files in self._records()
            if not record.serves and is_locked(files.lock)
        }

    async def end(self, key: str) -> bool:
        """End a task and prevent a later start; return False if a process of it survives."""
        files = self._files(key)
        async with self._beginning:
            if not await asyncio.to_thread(self._refuse, files, key):
                return True
        log.info("ending task %s", key)
        return await end_processes(files.lock, files.pid)

    def _refuse(self, files: _Files, key: str) -> bool:
        """Return whether the task runs; if it never started, it can no longer start."""
        if is_locked(files.lock):
            return True
        if not files.status.exists() and not files.pid.exists():
            self._directory.mkdir(mode=0o700, exist_ok=True)
            now = self._clock.time()
            record = _Record(key=key, program="", digest="", started=now, refused=True)
            write_atomically(files.record, wire.encode(record))
        return False

    def forget_old(self) -> int:
        """Remove the records of tasks that ended over a week ago; return their number."""
        limit = self._clock.time() - RECORD_LIFETIME_S
        old = [files for record, files in self._records() if record.started < limit]
        ended = [files for files in old if not is_locked(files.lock)]
        for files in ended:
            for path in files.all:
                path.unlink(missing_ok=True)
        return len(ended)

    async def close(self) -> None:
        """Stop waiting; the programs continue to run."""
        tasks = [one.end for one in self._waiting.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: str, begun: asyncio.Event, task: asyncio.Task[int]) -> None:
        del self._waiting[key]
        begun.set()  # if it could not start, its waiters have the error
        if not task.cancelled():
            task.exception()  # its waiters have the error; there may be none

    async def _run(self, key: str, program: Program, begun: asyncio.Event) -> int:
        files, digest = self._files(key), _digest(program.argv)
        async with self._beginning:
            if await asyncio.to_thread(self._is_begun, files, key, digest):
                log.info("task %s is already known: waiting for its end", key)
            else:
                record = self._record(key, digest, program)
                await asyncio.to_thread(self._begin, files, record, program)
        begun.set()
        async with _bounded({program.log_path, program.stdout_path or program.log_path}):
            status = await _end_of(files, key)
        await self._end_leftovers(files, key, program.log_path)
        return status

    async def _end_leftovers(self, files: "_Files", key: str, log_path: Path) -> None:
        """End a program's leftover processes, and report them in the task's output."""
        if await is_free(files.lock, ENDING_S):
            return
        left = await asyncio.to_thread(left_behind, files.lock)
        if not left:
            return
        text = f"ended leftover processes: {', '.join(left)}"
        log.warning("task %s: %s", key, text)
        if not await end_processes(files.lock, files.pid):
            text += "; some of them could not be ended"
        with contextlib.suppress(OSError):
            await asyncio.to_thread(_append, log_path, f"ganeti: {text}\n")

    def _files(self, key: str) -> _Files:
        return _Files(self._directory / hashlib.sha256(key.encode()).hexdigest())

    def _record(self, key: str, digest: str, program: Program) -> _Record:
        origin = self._origin_of(key)
        return _Record(
            key=key,
            program=program.argv[0],
            digest=digest,
            started=self._clock.time(),
            epoch=origin.epoch,
            instance=origin.instance,
            serves=program.serves,
        )

    def _is_begun(self, files: _Files, key: str, digest: str) -> bool:
        try:
            record = wire.decode(files.record.read_bytes(), _Record, what=str(files.record))
        except FileNotFoundError:
            return False
        if record.refused:
            raise HostError(f"task {key} was ended by a master before it started and cannot start")
        if (record.key, record.digest) != (key, digest):
            raise HostError(f"task {key} already ran another program: {record.program}")
        return files.status.exists() or files.pid.exists() or is_locked(files.lock)

    def _begin(self, files: _Files, record: _Record, program: Program) -> None:
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            write_atomically(files.record, wire.encode(record))
            with contextlib.ExitStack() as opened:
                lock = _open(opened, files.lock, os.O_RDWR | os.O_CREAT)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                appending = os.O_WRONLY | os.O_APPEND | os.O_CREAT
                output = _open(opened, program.stdout_path or program.log_path, appending)
                messages = _open(opened, program.log_path, appending)
                port = opened.enter_context(program.listens()).fileno() if program.listens else None
                environment = {**CLEAN_ENVIRONMENT, **program.env}
                pipe = _filled_pipe(opened, program.secret)
                if pipe:
                    environment[program.secret_variable] = str(pipe[0])
                supervisor = supervisor_words(files.base, program.timeout_s, program.argv)
                # The launcher ends immediately, so the supervisor is not a child of this process.
                subprocess.run(
                    ["/bin/sh", "-c", LAUNCHER, "ganeti-launch", *self._scope, *supervisor],
                    check=True,
                    stdin=subprocess.DEVNULL if port is None else port,
                    stdout=output,
                    stderr=messages,
                    cwd="/",
                    env=environment,
                    pass_fds=(lock, *pipe),
                    start_new_session=True,
                )
        except (OSError, subprocess.CalledProcessError) as err:
            raise HostError(f"{program.argv[0]} cannot be started: {err}") from err

    def _records(self) -> list[tuple[_Record, _Files]]:
        found = []
        for path in self._directory.glob("*.json"):
            files = _Files(path.with_suffix(""))
            with contextlib.suppress(FileNotFoundError):
                try:
                    record = wire.decode(path.read_bytes(), _Record, what=path.name)
                except InputError as err:
                    log.warning("the record of a task is damaged: %s", err)
                    continue
                found.append((record, files))
        return found


def _filled_pipe(opened: contextlib.ExitStack, secret: bytes) -> tuple[int, ...]:
    """Return the reading end of a pipe with the secret; nothing without a secret."""
    if not secret:
        return ()
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.write(writer, secret)
    finally:
        os.close(writer)
    # A shell uses the numbers below for itself.
    number = fcntl.fcntl(reader, fcntl.F_DUPFD_CLOEXEC, FIRST_OPENED)
    os.close(reader)
    opened.callback(os.close, number)
    return (number,)


def supervisor_words(base: Path, timeout_s: float, argv: Sequence[str]) -> list[str]:
    """Return the supervisor's command: a fixed script; everything else is an argument."""
    return ["/bin/sh", "-c", SUPERVISOR, "ganeti-task", str(base), f"{timeout_s:.0f}", *argv]


def systemd_scope() -> tuple[str, ...]:
    """Return the words before a command that move it out of the daemon's control group."""
    return ("systemd-run", "--scope", "--quiet", "--collect", "--slice=ganeti-tasks.slice", "--")


async def _end_of(files: _Files, key: str) -> int:
    """Wait for the supervisor's process, started by this daemon or an earlier one."""
    pid = await _supervisor_pid(files)
    if pid is not None:
        await _process_ended(pid, files)
    try:
        return int(await asyncio.to_thread(files.status.read_text))
    except (FileNotFoundError, ValueError):
        pass
    if not await is_free(files.lock, KILLED_TOGETHER_S):
        why = "its supervisor was killed, but its program still runs"
        raise HostError(f"task {key}: {why}; end the program manually")
    why = (
        "the host went down, it was killed, or its record could not be written (is the disk full?)"
    )
    raise HostError(f"task {key} did not finish: {why}")


async def _supervisor_pid(files: _Files) -> int | None:
    """Return the supervisor's process id; None if it has ended."""
    while is_locked(files.lock):
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int(files.pid.read_text())
        await asyncio.sleep(0.02)  # it has the lock, and is about to write its process id
    return None


async def _process_ended(pid: int, files: _Files) -> None:
    loop = asyncio.get_running_loop()
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not _is_supervisor(pid, files):
            return  # it ended before the descriptor was opened, which may refer to another process
        ended = asyncio.Event()
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
    finally:
        os.close(descriptor)


def _is_supervisor(pid: int, files: _Files) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(files.base) in words


def _open(opened: contextlib.ExitStack, path: Path, flags: int) -> int:
    first = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    descriptor = fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, FIRST_OPENED)
    os.close(first)
    opened.callback(os.close, descriptor)
    return descriptor


def _append(path: Path, text: str) -> None:
    with contextlib.ExitStack() as opened:
        os.write(_open(opened, path, os.O_WRONLY | os.O_APPEND), text.encode())


@contextlib.asynccontextmanager
async def _bounded(logs: Collection[Path]) -> AsyncIterator[None]:
    """Keep these log files short during the block; programs append to them."""

    async def look() -> None:
        while True:
            await asyncio.sleep(LOOK_AT_LOG_S)
            await asyncio.to_thread(_shorten_all, logs)

    looking = asyncio.create_task(look(), name="length of logs")
    try:
        yield
    finally:
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking
        await asyncio.to_thread(_shorten_all, logs)


def _shorten_all(logs: Iterable[Path]) -> None:
    for path in logs:
        with contextlib.suppress(OSError):
            shorten(path)


def shorten(path: Path) -> None:
    """Free the space of a log's middle; its length stays, so that no writer is disturbed."""
    if path.stat().st_blocks * 512 <= LOG_LIMIT:
        return
    with contextlib.ExitStack() as opened:
        descriptor = _open(opened, path, os.O_RDWR)
        end = os.fstat(descriptor).st_size - LOG_KEPT
        if end > LOG_KEPT:
            punch_hole(descriptor, LOG_KEPT, end - LOG_KEPT)


def _digest(argv: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(argv).encode()).hexdigest()
