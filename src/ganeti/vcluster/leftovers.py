"""Processes that survive the daemons of a node: guests, and long work such as OS scripts."""

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from ganeti.base.errors import GanetiError
from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.hypervisor.registry import hypervisors
from ganeti.model.instance_spec import InstanceSpec
from ganeti.rpc.procedures.instances import RunningInstance
from ganeti.uidpool import DIRECTORY_VARIABLE
from ganeti.vcluster.layout import VirtualNode

AT_ONCE_S = 0.0
END_LIMIT_S = 5.0
ROUNDS = 20
PROCESSES = Path("/proc")

Say = Callable[[str], None]


async def end_guests(node: VirtualNode, say: Say) -> list[str]:
    """End all guests of a node whose daemon is down, whatever their hypervisor; return why some could not be ended."""
    with _uid_locks_of(node):
        drivers = hypervisors(node.paths, run)
    problems = []
    for driver in drivers.values():
        try:
            for guest in await driver.running():
                await driver.stop(_only_known(guest), AT_ONCE_S)
                say(f"ended instance {guest.name} on {node.name}")
        except GanetiError as err:
            problems.append(str(err))
    return problems


@contextlib.contextmanager
def _uid_locks_of(node: VirtualNode) -> Iterator[None]:
    """Find the lock files of user ids that the node's daemon used, so that those of its guests are removed."""
    before = os.environ.get(DIRECTORY_VARIABLE)
    try:
        os.environ |= {
            name: value for name, value in node.environment().items() if name == DIRECTORY_VARIABLE
        }
        yield
    finally:
        os.environ.pop(DIRECTORY_VARIABLE, None)
        if before is not None:
            os.environ[DIRECTORY_VARIABLE] = before


def end_tasks(paths: Paths, node: str, say: Say) -> None:
    """End the programs that outlive a node's daemon, with all their children."""
    _end_all(lambda pid: _holds(pid, paths.tasks), f"scripts of {node}", say)


def end_commands(paths: Paths, node: str, say: Say) -> None:
    """End every process of a node: commands and daemons of an interrupted `up`.

    Not for a finished cluster, where a user may have a shell on the node.
    """
    mark = f"GANETI_ROOTDIR={paths.root}".encode()
    _end_all(lambda pid: _is_marked(pid, mark), f"commands of {node}", say)


def _only_known(guest: RunningInstance) -> InstanceSpec:
    """Return as much of an instance as its own node records; enough to end it."""
    return InstanceSpec(
        name=guest.name,
        uuid=guest.uuid,
        hypervisor=guest.hypervisor,
        os="",
        memory=guest.memory,
        vcpus=guest.vcpus,
        hvparams={},
    )


def _end_all(is_meant: Callable[[int], bool], what: str, say: Say) -> None:
    """End processes until none is left: each may have started another one meanwhile."""
    for _round in range(ROUNDS):
        ended = [pid for pid in _all() if is_meant(pid) and _end(pid, is_meant)]
        if not ended:
            return
        say(f"ended {what} (process {', '.join(map(str, ended))})")


def _all() -> Iterator[int]:
    """Return all processes but this one."""
    own = os.getpid()
    numbers = (int(entry.name) for entry in PROCESSES.iterdir() if entry.name.isdecimal())
    return (number for number in numbers if number != own)


def _holds(pid: int, directory: Path) -> bool:
    """Return whether a process has a file of `directory` open: a task's processes hold its record's lock."""
    try:
        opened = list((PROCESSES / f"{pid}/fd").iterdir())
    except OSError:
        return False  # it has ended, or belongs to another user
    return any(_target(entry).parent == directory for entry in opened)


def _target(entry: Path) -> Path:
    try:
        return entry.readlink()
    except OSError:
        return Path()  # closed meanwhile; the process's other files are unknown


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in (PROCESSES / f"{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _end(pid: int, is_meant: Callable[[int], bool]) -> bool:
    """Kill a process and wait until it has ended; return False if it had ended before."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_meant(pid):
            return False  # the number belongs to another process by now
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        select.select([descriptor], [], [], END_LIMIT_S)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True
