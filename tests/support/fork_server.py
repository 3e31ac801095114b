"""The programs of test clusters start by a fork: importing takes most of a start, and a run starts thousands.

Each test process has one server, named in the environment, which clusters hand on to what they start. A daemon is
started as ever, a command from a directory with the same scripts, but without `-S`; its Python reads
`quick_start/sitecustomize.py`, which sends words, directory, environment and standard files to the server. The server
has imported everything: it forks, and the child is the program, with its own session, process id, words and environment
(also in /proc). The process that was started waits, hands signals on, and ends with the child; if it is killed, so is
the child. What has a terminal or a tracer, runs as another user, with other limits, another Python or in another
namespace than the server (but that of the network, which the child enters) starts as usual.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import marshal
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec

import ganeti
from ganeti.bootstrap.daemons import MODULES
from ganeti.vcluster import layout

VARIABLE = "PYTHON_FORK_SERVER"
BIN = Path(sys.executable).parent
QUICK_START = Path(__file__).parent / "quick_start"
ROOM = 16384
"""Bytes for the words and the environment of a child, each."""
SAME = (
    "TracerPid",
    "Uid",
    "Gid",
    "Groups",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
)
NAMESPACES = ("mnt", "pid", "user", "uts", "ipc")
CLONE_NEWNET = 0x40000000

Asked = tuple[list[str], str, dict[str, str], int]


@dataclass(frozen=True)
class Forks:
    """By what others find a server."""

    variables: dict[str, str]
    """The environment of what is started."""
    programs: str
    """The search path of nodes for commands (`ganeti.vcluster.layout.PROGRAMS`)."""


@contextlib.contextmanager
def fork_server() -> Iterator[Forks]:
    """Run a server. It ends with this process."""
    with tempfile.TemporaryDirectory(prefix="gnt-fork-") as name:
        door = f"{name}/door"
        _copy_commands(_commands_beside(door))
        with subprocess.Popen(
            [sys.executable, "-m", __name__, door, "x" * ROOM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "ROOM": "x" * ROOM},
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        ) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            assert server.stdout.read(1) == b"+", "the fork server does not start"
            imports = filter(None, [str(QUICK_START), os.environ.get("PYTHONPATH", "")])
            try:
                variables = {VARIABLE: door, "PYTHONPATH": os.pathsep.join(imports)}
                yield Forks(variables, _search_path(door))
            finally:
                server.stdin.close()  # its end


def _commands_beside(door: str) -> Path:
    return Path(door).parent / "bin"


def _search_path(door: str) -> str:
    return f"{_commands_beside(door)}:{BIN}"


def _copy_commands(directory: Path) -> None:
    """Write the commands with Python's site, which imports `sitecustomize`; theirs start without it."""
    directory.mkdir()
    for program in (*BIN.glob("gnt-*"), *BIN.glob("ganeti-*")):
        _options, _, code = program.read_text().partition("\n")
        copy = directory / program.name
        copy.write_text(f"#!{sys.executable}\n{code}")
        copy.chmod(0o755)


@dataclass
class Child:
    """A forked program, and the connection of the process that waits for it."""

    pid: int
    pidfd: int
    waiting: socket.socket
    has_ended: bool = False


class Server:
    """Forks for whoever asks at `door`; until its standard input ends."""

    def __init__(self, door: str) -> None:
        self._commands = _commands_beside(door)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(door)
        self._listener.listen(64)
        self._events = selectors.DefaultSelector()
        self._events.register(self._listener, selectors.EVENT_READ)
        self._events.register(0, selectors.EVENT_READ)

    def serve(self) -> Asked | None:
        """Return what was asked in each child; None in the server at its end."""
        while True:
            for key, _ in self._events.select():
                if key.fd == 0:
                    return None
                if key.data is None:
                    if asked := self._answer(self._listener.accept()[0]):
                        return asked
                else:
                    self._ended(key.data)

    def _answer(self, asking: socket.socket) -> Asked | None:
        data, standard_files, _, _ = socket.recv_fds(asking, 1 << 20, 3)
        pid = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        asked: Asked | None = marshal.loads(data) if data else None  # noqa: S302  # from our own test
        if asked is None or not (self._is_known(asked) and _is_like_this_one(pid)):
            asking.close()
        elif child := os.fork():
            known = Child(child, os.pidfd_open(child), asking)
            self._events.register(known.pidfd, selectors.EVENT_READ, known)
            self._events.register(asking, selectors.EVENT_READ, known)
            with contextlib.suppress(OSError):  # who has asked is gone, which is the next event
                asking.send(str(child).encode())
        else:
            self._become(asked, standard_files, pid)
            asking.close()
            return asked
        for one in standard_files:
            os.close(one)
        return None

    def _is_known(self, asked: Asked) -> bool:
        """Whether it is one of our programs, in an environment that finds the same modules."""
        words, _, environment, _ = asked
        is_ours = words[1] == "-m" and words[2] in MODULES.values()
        is_ours |= Path(words[1]).parent == self._commands
        ours = {key: value for key, value in os.environ.items() if _matters(key)}
        theirs = {key: value for key, value in environment.items() if _matters(key)}
        source = str(Path(ganeti.__file__).parents[1])
        known = {source, str(QUICK_START), *_imports(os.environ)}
        return is_ours and ours == theirs and _imports(environment) <= known

    def _become(self, asked: Asked, standard_files: list[int], pid: int) -> None:
        """In the child: nothing of the server's is left but what it has imported."""
        for key in list(self._events.get_map().values()):
            if key.fd != 0:
                os.close(key.fd)
        self._events.close()
        _enter_network_of(pid)
        words, directory, environment, umask = asked
        for number, one in enumerate(standard_files):
            os.dup2(one, number)
            os.close(one)
        os.setsid()
        os.chdir(directory)
        os.umask(umask)
        os.environ.clear()
        os.environ.update(environment)
        _show(words, environment)

    def _ended(self, child: Child) -> None:
        """A child has ended, or who waits for it, or both at once."""
        if child.has_ended:
            return
        child.has_ended = True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        with contextlib.suppress(OSError):
            child.waiting.send(str(code).encode())
        self._events.unregister(child.pidfd)
        self._events.unregister(child.waiting)
        os.close(child.pidfd)
        child.waiting.close()


def _imports(environment: Mapping[str, str]) -> set[str]:
    return {*environment.get("PYTHONPATH", "").split(os.pathsep)}


def _matters(variable: str) -> bool:
    return variable.startswith(("PYTHON", "LD_")) and variable not in ("PYTHONPATH", VARIABLE)


def _is_like_this_one(pid: int) -> bool:
    def status(process: str) -> list[str]:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return [line for line in lines if line.partition(":")[0] in SAME]

    def places(process: str) -> list[Path]:
        return [Path(f"/proc/{process}/ns/{name}").readlink() for name in NAMESPACES]

    def limits(process: str) -> str:
        return Path(f"/proc/{process}/limits").read_text()

    try:
        return all(look("self") == look(str(pid)) for look in (status, places, limits))
    except OSError:
        return False


def _enter_network_of(pid: int) -> None:
    name = Path(f"/proc/{pid}/ns/net")
    if name.readlink() == Path("/proc/self/ns/net").readlink():
        return
    namespace = os.open(name, os.O_RDONLY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(namespace, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(namespace)


def _show(words: list[str], environment: dict[str, str]) -> None:
    """Write words and environment where the kernel reads them for /proc: into the room that the server was started with."""
    numbers = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    arguments, ends, variables, variables_end = (int(number) for number in numbers[45:49])
    shown = b"".join(os.fsencode(word) + b"\0" for word in words)
    ctypes.memmove(arguments, shown.ljust(ends - arguments, b"\0"), ends - arguments)
    pairs = b"".join(os.fsencode(f"{key}={value}") + b"\0" for key, value in environment.items())
    size = variables_end - variables
    ctypes.memmove(variables, pairs[:size].ljust(size, b"\0"), size)


def _open_standard_files() -> None:
    """As Python does at its start, for what descriptors 0 to 2 are now."""
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(open(number, mode, closefd=False), "utf-8", errors)  # noqa: SIM115
        for number, mode, errors in (
            (0, "rb", "surrogateescape"),
            (1, "wb", "surrogateescape"),
            (2, "wb", "backslashreplace"),
        )
    )
    sys.stderr.reconfigure(line_buffering=True)


def _run(words: list[str]) -> int:
    """Run a program as its Python would have; its exit code."""
    _open_standard_files()
    sys.orig_argv = words
    if words[1] == "-m":
        module = importlib.import_module(words[2])
        sys.argv = [str(module.__file__), *words[3:]]
        return int(module.main() or 0)
    sys.argv = words[1:]
    runpy.run_path(words[1], run_name="__main__")
    return 0


def _leave(code: int) -> NoReturn:
    """End as Python does, but without taking apart all that was imported: that would copy most of its memory."""
    threading._shutdown()  # type: ignore[attr-defined]  # what Python itself calls at its end
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def structs(one: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """Yield the classes of objects that are decoded: each is described once, when it is first needed."""
    for below in one.__subclasses__():
        yield below
        yield from structs(below)


def main() -> int:
    """Serve; in a child, run the program."""
    for module in pkgutil.walk_packages(ganeti.__path__, "ganeti."):
        importlib.import_module(module.name)
    for one in structs(msgspec.Struct):
        with contextlib.suppress(TypeError, NameError):  # it is never decoded
            msgspec.json.Decoder(one)
    gc.collect()
    gc.freeze()
    layout.PROGRAMS = _search_path(sys.argv[1])
    server = Server(sys.argv[1])
    os.write(1, b"+")
    asked = server.serve()
    if asked is None:
        return 0
    try:
        code = _run(asked[0])
    except SystemExit as err:
        if isinstance(err.code, str):
            raise
        code = err.code or 0
    return _leave(code)


if __name__ == "__main__":
    sys.exit(main())
