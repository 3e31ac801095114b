"""Tap devices, which connect a guest's network cards to the host.

A script connects each one: the default (`kvm-ifup` beside this file), or the administrator's
`/etc/ganeti/kvm-vif-bridge` instead. Both get all values in their environment.
"""

import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from ganeti.base.errors import HostError, HypervisorError
from ganeti.base.process import CLEAN_ENVIRONMENT, Run
from ganeti.model.instance_spec import InstanceSpec, NicSpec

INTERFACE_NAME_LIMIT = 15
OWN_SCRIPT = Path(__file__).with_name("kvm-ifup")
CUSTOM_SCRIPT = "kvm-vif-bridge"
"""A file in the directory of the node's settings; it replaces the default script if it is executable."""
RULE_FAMILIES = ("-4", "-6")
_PREFIX = "gnt"
_MODES = ("bridged", "routed", "openvswitch")


def tap_name(root: Path, nic: NicSpec) -> str:
    """Return a name that is the same on every start, and different between virtual nodes of one host."""
    digest = hashlib.sha256(f"{root}\0{nic.uuid}".encode()).hexdigest()
    return _PREFIX + digest[: INTERFACE_NAME_LIMIT - len(_PREFIX)]


def tap_names(root: Path, instance: InstanceSpec) -> tuple[str, ...]:
    """Return the taps of a running instance, in the order of its NICs."""
    return tuple(tap_name(root, nic) for nic in instance.nics)


def tap_add(tap: str, *, queues: int = 1) -> list[str]:
    """Return the command that makes a tap device; a multi-queue one has as many queues as its user opens."""
    words = ["ip", "tuntap", "add", "dev", tap, "mode", "tap"]
    return [*words, "multi_queue"] if queues > 1 else words


def tap_remove(tap: str) -> list[str]:
    """Return the command that removes it, and with it the routes that lead to it."""
    return ["ip", "link", "delete", "dev", tap]


def rule_remove(tap: str, family: str) -> list[str]:
    """Return the command that removes its rule for a routing table, which would outlive the device."""
    return ["ip", family, "rule", "delete", "iif", tap]


def nic_environment(tap: str, nic: NicSpec, instance: InstanceSpec) -> dict[str, str]:
    """Return the variables of the script (upstream's names)."""
    given = {
        "INTERFACE": tap,
        "INTERFACE_INDEX": str(nic.index),
        "INTERFACE_UUID": nic.uuid,
        "INSTANCE": instance.name,
        "TAGS": " ".join(instance.tags),
        "MAC": nic.mac,
        "MODE": nic.mode,
        "LINK": nic.link,
        "BRIDGE": nic.link if nic.mode == "bridged" else "",
        "IP": nic.ip or "",
        "VLAN": nic.vlan,
        **(nic.network.environment() if nic.network else {}),
    }
    kept = {name: value for name, value in given.items() if value}
    if any("\0" in value or "\n" in value for value in kept.values()):
        raise HypervisorError(f"NIC {nic.index}: a value has a NUL or newline character")
    return {**CLEAN_ENVIRONMENT, **kept}


def script_words(settings: Path) -> list[str]:
    """Return the command that connects a tap: the administrator's script if there is one."""
    custom = settings / CUSTOM_SCRIPT
    try:
        status = custom.stat()
    except FileNotFoundError:
        return ["/bin/sh", str(OWN_SCRIPT)]
    except OSError as err:
        raise HypervisorError(f"{custom} cannot be checked: {err.strerror}") from err
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & stat.S_IXUSR:
        return ["/bin/sh", str(OWN_SCRIPT)]
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & stat.S_IWOTH:
        raise HypervisorError(
            f"{custom} would run as root, but other users can change it; change its owner to root, mode 0755"
        )
    return [str(custom)]


async def make_taps(
    run: Run, root: Path, instance: InstanceSpec, settings: Path, *, queues: int = 1
) -> tuple[str, ...]:
    """Make and connect one tap device for each NIC; on failure none is left."""
    taps = tap_names(root, instance)
    await remove_taps(run, taps)
    try:
        for tap, nic in zip(taps, instance.nics, strict=True):
            await make_tap(run, tap, nic, instance, settings, queues=queues)
    except BaseException:
        await remove_taps(run, taps)
        raise
    return taps


async def remove_taps(run: Run, taps: Sequence[str]) -> None:
    """Remove existing tap devices, and their rules."""
    for tap in taps:
        await run(tap_remove(tap), check=False)
        for family in RULE_FAMILIES:
            await run(rule_remove(tap, family), check=False)


async def make_tap(
    run: Run,
    tap: str,
    nic: NicSpec,
    instance: InstanceSpec,
    settings: Path,
    *,
    queues: int = 1,
) -> None:
    """Make one tap device and connect it; after a failure it may exist."""
    try:
        await run(tap_add(tap, queues=queues))
    except HostError as err:
        raise HypervisorError(f"NIC {nic.index}: no tap device can be made: {err}") from err
    await connect_tap(run, tap, nic, instance, settings)


async def connect_tap(
    run: Run, tap: str, nic: NicSpec, instance: InstanceSpec, settings: Path
) -> None:
    """Connect an existing tap device to the NIC's network."""
    if nic.mode not in _MODES:
        raise HypervisorError(
            f"NIC {nic.index} has the mode {nic.mode!r:.20}, which KVM does not support"
        )
    if nic.mode == "routed" and nic.ip is None:
        raise HypervisorError(f"NIC {nic.index} is routed, but has no IP address; set one")
    environment = nic_environment(tap, nic, instance)
    try:
        await run(script_words(settings), env=environment)
    except HypervisorError:
        raise
    except HostError as err:
        raise HypervisorError(
            f"NIC {nic.index} cannot be connected to {nic.link!r} ({nic.mode}): {err};"
            " create the bridge or table on this node, or change the NIC's link"
        ) from err
