"""What a node leaves running when its daemons have ended: guests, and long work such as OS scripts."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from ganeti.base.errors import GanetiError
from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.hypervisor.registry import hypervisors
from ganeti.model.instance_spec import InstanceSpec
from ganeti.rpc.procedures import RunningInstance

AT_ONCE_S = 0.0
PROCESSES = Path("/proc")

Say = Callable[[str], None]


async def end_guests(paths: Paths, hypervisor: str, node: str, say: Say) -> list[str]:
    """End all guests of a node whose daemon is down; why some could not be ended."""
    driver = hypervisors(paths, run)[hypervisor]
    try:
        for guest in await driver.running():
            await driver.stop(_only_known(guest), AT_ONCE_S)
            say(f"ended instance {guest.name} on {node}")
    except GanetiError as err:
        return [str(err)]
    return []


def end_tasks(paths: Paths, node: str, say: Say) -> None:
    """End the programs that outlive a node's daemon, with all that they have started."""
    while holders := list(_holders(paths.tasks)):
        for pid in holders:
            if _end(pid):
                say(f"ended a script of {node} (process {pid})")


def _only_known(guest: RunningInstance) -> InstanceSpec:
    """As much of an instance as its own node remembers; enough to end it."""
    return InstanceSpec(
        name=guest.name,
        uuid=guest.uuid,
        hypervisor=guest.hypervisor,
        os="",
        memory=guest.memory,
        vcpus=guest.vcpus,
        hvparams={},
    )


def _holders(directory: Path) -> Iterator[int]:
    """Processes that have a file of `directory` open: a task and its children hold their record's lock."""
    own = os.getpid()
    for process in PROCESSES.iterdir():
        if process.name.isdecimal() and int(process.name) != own and _holds(process, directory):
            yield int(process.name)


def _holds(process: Path, directory: Path) -> bool:
    try:
        return any(entry.readlink().parent == directory for entry in (process / "fd").iterdir())
    except OSError:
        return False  # it has ended meanwhile, or belongs to somebody else


def _end(pid: int) -> bool:
    """Kill a process and wait until it is gone; False if it was gone before."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True
