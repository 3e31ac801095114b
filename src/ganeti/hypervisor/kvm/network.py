"""Tap devices, which join a guest's network cards to the host: bridged or routed.

Commands are made by pure functions; `make_taps` and `remove_taps` run them.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from ganeti.base.errors import HostError, HypervisorError
from ganeti.base.process import Run
from ganeti.model.instance_spec import InstanceSpec, NicSpec

INTERFACE_NAME_LIMIT = 15
_PREFIX = "gnt"


def tap_name(root: Path, nic: NicSpec) -> str:
    """The same on every start; differs between virtual nodes of one host, which share its names."""
    digest = hashlib.sha256(f"{root}\0{nic.uuid}".encode()).hexdigest()
    return _PREFIX + digest[: INTERFACE_NAME_LIMIT - len(_PREFIX)]


def tap_add(tap: str, *, queues: int = 1) -> list[str]:
    """Make a tap device; one of several queues takes as many as its user opens."""
    words = ["ip", "tuntap", "add", "dev", tap, "mode", "tap"]
    return [*words, "multi_queue"] if queues > 1 else words


def bridge_join(tap: str, bridge: str) -> list[str]:
    """Connect it to a bridge."""
    return ["ip", "link", "set", "dev", tap, "master", bridge]


def link_up(tap: str) -> list[str]:
    """Switch it on."""
    return ["ip", "link", "set", "dev", tap, "up"]


def route_add(tap: str, address: str, table: str) -> list[str]:
    """Lead one address to it; `table` empty is the main table."""
    words = ["ip", "route", "replace", address, "dev", tap]
    return [*words, "table", table] if table else words


def tap_remove(tap: str) -> list[str]:
    """Remove it."""
    return ["ip", "link", "delete", "dev", tap]


def connect_commands(tap: str, nic: NicSpec) -> list[list[str]]:
    """What joins an existing tap device to the network that the NIC asks for."""
    if nic.mode == "bridged":
        return [bridge_join(tap, nic.link), link_up(tap)]
    if nic.mode == "routed":
        if nic.ip is None:
            raise HypervisorError(f"NIC {nic.index} is routed, but has no IP address; give it one")
        return [link_up(tap), route_add(tap, nic.ip, nic.link)]
    raise HypervisorError(f"NIC {nic.index} has the mode {nic.mode!r:.20}, which KVM cannot offer")


async def make_taps(
    run: Run, root: Path, instance: InstanceSpec, *, queues: int = 1
) -> tuple[str, ...]:
    """One tap device for each NIC, connected; on failure none is left."""
    taps = tuple(tap_name(root, nic) for nic in instance.nics)
    await remove_taps(run, taps)
    try:
        for tap, nic in zip(taps, instance.nics, strict=True):
            await _make_tap(run, tap, nic, queues)
    except BaseException:
        await remove_taps(run, taps)
        raise
    return taps


async def remove_taps(run: Run, taps: Sequence[str]) -> None:
    """Remove those that exist."""
    for tap in taps:
        await run(tap_remove(tap), check=False)


async def _make_tap(run: Run, tap: str, nic: NicSpec, queues: int) -> None:
    try:
        await run(tap_add(tap, queues=queues))
    except HostError as err:
        raise HypervisorError(f"NIC {nic.index}: no tap device can be made: {err}") from err
    try:
        for command in connect_commands(tap, nic):
            await run(command)
    except HypervisorError:
        raise
    except HostError as err:
        raise HypervisorError(
            f"NIC {nic.index} cannot be connected to {nic.link!r} ({nic.mode}): {err};"
            " make that bridge or table on this node, or change the NIC's link"
        ) from err
