"""The positions of a guest's processors in QEMU.

QEMU has a *position* for each processor that the guest can get, in the order of its topology, from 0. The guest starts
with the first ones. An added one is named by its position (`added_name`), and the record has the positions of all
added ones (`Record.added_cpus`), because QEMU on another node must put them into the same positions.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.monitor import Ask

_TOPOLOGY = ("socket-id", "die-id", "core-id", "thread-id")


def added_name(position: int) -> str:
    """Return the name of an added processor in QEMU."""
    return f"cpu_{position}"


def free_position(added: Collection[int], at_start: int, most: int) -> int:
    """Return the first position without a processor; HypervisorError if there is none."""
    for position in range(at_start, most):
        if position not in added:
            return position
    raise HypervisorError(
        f"the guest has {at_start + len(added)} processors, and no room for more before its next start"
        " (max_vcpus)"
    )


async def plug(ask: Ask, position: int) -> None:
    """Add the processor of a position; HypervisorError if QEMU has no such position."""
    positions = in_order(await ask("query-hotpluggable-cpus"))
    if position >= len(positions):
        raise HypervisorError(f"QEMU has no position {position} for a processor")
    chosen = positions[position]
    await ask(
        "device_add", {"driver": chosen["type"], "id": added_name(position), **chosen["props"]}
    )


def in_order(found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return QEMU's positions in the order in which it numbers processors."""
    return sorted(found, key=lambda one: [one["props"].get(name, 0) for name in _TOPOLOGY])
