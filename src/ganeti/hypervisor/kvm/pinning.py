"""The host CPUs that a guest may use: `cpu_mask`."""

import os
from collections.abc import Iterable
from pathlib import Path

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.monitor import Ask


def cpu_sets(mask: str) -> list[frozenset[int] | None]:
    """Return one set for the whole guest, or one for each of its CPUs; None sets no binding."""
    return [None if part == "all" else _numbers(part) for part in mask.split(":")]


def _numbers(text: str) -> frozenset[int]:
    found: set[int] = set()
    for ends in text.split(","):
        first, _, last = ends.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def mask_problem(mask: str, vcpus: int | None, online: Iterable[int]) -> str | None:
    """Return why a guest with this number of CPUs (None: not known yet) cannot have this mask on this host."""
    sets = cpu_sets(mask)
    if vcpus is not None and len(sets) not in (1, vcpus):
        return f"cpu_mask: {mask} is for {len(sets)} CPUs, but the guest has {vcpus}"
    wanted: set[int] = set().union(*(one for one in sets if one is not None))
    if absent := sorted(wanted - set(online)):
        text = ", ".join(str(number) for number in absent[:8])
        return f"cpu_mask: this node has no CPU {text}"
    return None


async def pin(ask: Ask, pid: int, mask: str, vcpus: int) -> None:
    """Bind a new QEMU, or each thread of its CPUs; HypervisorError if the host lacks these CPUs."""
    sets = cpu_sets(mask)
    if sets == [None]:
        return
    if problem := mask_problem(mask, vcpus, os.sched_getaffinity(0)):
        raise HypervisorError(problem)
    try:
        if len(sets) == 1 and sets[0] is not None:
            for thread in _threads(pid):
                os.sched_setaffinity(thread, sets[0])
            return
        for cpu in await ask("query-cpus-fast"):
            wanted = sets[int(cpu["cpu-index"])]
            if wanted is not None:
                os.sched_setaffinity(int(cpu["thread-id"]), wanted)
    except OSError as err:
        raise HypervisorError(f"the guest cannot be bound to CPUs {mask}: {err.strerror}") from err


def _threads(pid: int) -> list[int]:
    return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
