"""Parameters and their layers: cluster, group, node, object; later layers win."""

import re
from collections.abc import Mapping
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.identifiers import interface_name, is_absolute_path
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.fencing import AGENT, stored_options
from ganeti.model.limits import MAX_DISK_MIB, MAX_DISKS, MAX_NICS
from ganeti.model.param import Bounds, Param, by_name, defaults
from ganeti.model.recovery import FenceMethod, Recovery

Params = dict[str, Any]


def _positive(value: float) -> str | None:
    return None if value > 0 else "must be greater than 0"


_at_least_one = Bounds(1)
_not_negative = Bounds(0)
_percent = Bounds(0, 100)
_some_memory = Bounds(1, unit=" MiB")


BACKEND_PARAMS = by_name(
    Param("always_failover", False, "never moved live", reaches_guest=False),
    Param(
        "auto_balance",
        True,
        "counted where memory is kept free for the failure of a node",
        title="Auto_balance",
        reaches_guest=False,
    ),
    Param("maxmem", 128, "memory at most", check=_some_memory, is_size=True, title="ConfigMaxMem"),
    Param(
        "max_snapshots",
        8,
        "how many snapshots it may have",
        check=_not_negative,
        reaches_guest=False,
        is_upstream=False,
    ),
    Param(
        "minmem",
        128,
        "memory at least",
        check=_some_memory,
        is_size=True,
        title="ConfigMinMem",
        reaches_guest=False,
    ),
    Param(
        "recovery",
        Recovery.NONE.value,
        "what happens when its guest or its node is lost: none, restart (on its node), or failover",
        choices=tuple(Recovery),
        reaches_guest=False,
        is_upstream=False,
    ),
    Param(
        "recovery_attempts",
        3,
        "how often it is recovered within the window",
        check=_at_least_one,
        reaches_guest=False,
        is_upstream=False,
    ),
    Param(
        "recovery_failback",
        False,
        "migrated back when its lost node is in service again",
        reaches_guest=False,
        is_upstream=False,
    ),
    Param(
        "recovery_priority",
        50,
        "0 to 100; instances with greater values are recovered first",
        check=_percent,
        reaches_guest=False,
        is_upstream=False,
    ),
    Param(
        "recovery_window",
        3600,
        "seconds within which recoveries are counted",
        check=_at_least_one,
        reaches_guest=False,
        is_upstream=False,
    ),
    Param("spindle_use", 1, "spindles that it uses", check=_at_least_one, reaches_guest=False),
    Param("vcpus", 1, "virtual processors", check=_at_least_one, title="ConfigVCPUs"),
)
GROUP_BACKEND_PARAMS = {
    name: param for name, param in BACKEND_PARAMS.items() if not param.is_upstream
}
"""Those that can be set for a node group, too: none that upstream clients know, as they expect two layers."""
BACKEND_DEFAULTS = defaults(BACKEND_PARAMS)
"""Memory in MiB."""
MEMORY = "memory"
"""In requests: `minmem` and `maxmem` together."""

NIC_MODES = {
    "bridged": "bridged",
    "bridge": "bridged",
    "routed": "routed",
    "route": "routed",
    "openvswitch": "openvswitch",
    "ovs": "openvswitch",
}
"""Spellings of a NIC mode -> its stored form (X17)."""
_VLAN = re.compile(r"(\.?[0-9]{1,4})?(:[0-9]{1,4})*", re.ASCII)
LAST_VLAN = 4094


def _nic_mode(text: str, field: str) -> str:
    if text not in NIC_MODES:
        raise InputError("must be bridged, routed or openvswitch", field)
    return NIC_MODES[text]


def check_vlan(text: str, field: str) -> str:
    """Return `10` or `.10` (untagged), `:20:30` (tagged) or `.10:20:30` as `.10:20:30`; '' is no VLAN."""
    is_form = _VLAN.fullmatch(text) is not None
    if not is_form or any(
        not 1 <= int(part) <= LAST_VLAN for part in re.split("[.:]", text) if part
    ):
        raise InputError(
            f"{text!r:.40} is not a VLAN: .N (untagged), :N:N (tagged) or .N:N, from 1 to {LAST_VLAN}",
            field,
        )
    return f".{text}" if text[:1].isdecimal() else text


NIC_PARAMS = by_name(
    Param("mode", "bridged", "how it is connected", stored=_nic_mode),
    Param("link", "br0", "what it is connected to", stored=interface_name),
    Param("vlan", "", "VLANs of an Open vSwitch", stored=check_vlan),
)
NIC_DEFAULTS = defaults(NIC_PARAMS)


def _program(path: str, field: str) -> str:
    """Return the absolute path of a program; '' for none."""
    if path and not is_absolute_path(path):
        raise InputError(f"{path!r:.80} is not the absolute path of a program", field)
    return path


NO_FENCING = "none"


def _fence_methods(text: str, field: str) -> str:
    """Return methods in the order in which they are tried, or `none`."""
    words = text.split()
    if words != [NO_FENCING] and (set(words) - set(FenceMethod) or len(set(words)) < len(words)):
        raise InputError(
            f"{text!r:.80} must be {', '.join(FenceMethod)} in any order, or none", field
        )
    return " ".join(words)


def _fence_agent(text: str, field: str) -> str:
    if text and not AGENT.fullmatch(text):
        raise InputError(
            f"{text!r:.80} is not the name of a fence agent, such as fence_ipmilan", field
        )
    return text


NODE_PARAMS = by_name(
    Param(
        "oob_program",
        "",
        "program that switches the host on and off",
        title="OutOfBandProgram",
        stored=_program,
    ),
    Param(
        "fence_methods",
        "power watchdog",
        "how it is kept from writing when it is lost: power, watchdog, storage; none: an administrator confirms",
        stored=_fence_methods,
        is_upstream=False,
    ),
    Param(
        "fence_agent",
        "",
        "fence agent that switches its power off, for example fence_ipmilan",
        stored=_fence_agent,
        is_upstream=False,
    ),
    Param(
        "fence_options",
        "",
        "options of the fence agent, without passwords: 'ip=ADDRESS username=NAME'",
        stored=stored_options,
        is_upstream=False,
    ),
    Param(
        "fence_timeout",
        60,
        "seconds that switching its power off may take",
        check=_at_least_one,
        is_upstream=False,
    ),
    Param(
        "memory_goal",
        0,
        "MiB that it keeps free by taking memory from guests, down to their minmem; 0 takes none",
        check=_not_negative,
        is_upstream=False,
    ),
    Param("spindle_count", 1, "disks of the host", title="SpindleCount"),
    Param("exclusive_storage", False, "no two instances share a disk", title="ExclusiveStorage"),
    Param("ovs", False, "has an Open vSwitch", title="OpenvSwitch"),
    Param("ovs_name", "switch1", "its name", title="OpenvSwitchName"),
    Param("ovs_link", "", "its interface to the network", title="OpenvSwitchLink"),
    Param("ssh_port", 22, "where ssh listens"),
    Param("cpu_speed", 1.0, "speed of a processor relative to others", check=_positive),
)
NODE_DEFAULTS = defaults(NODE_PARAMS)

IPOLICY_DEFAULTS: Params = {
    "minmax": [
        {
            "min": {
                "memory-size": 1,
                "cpu-count": 1,
                "disk-count": 0,
                "disk-size": 0,
                "nic-count": 0,
                "spindle-use": 0,
            },
            "max": {
                "memory-size": 1024 * 1024,
                "cpu-count": 256,
                "disk-count": MAX_DISKS,
                "disk-size": MAX_DISK_MIB,
                "nic-count": MAX_NICS,
                "spindle-use": 64,
            },
        }
    ],
    "std": {
        "memory-size": 128,
        "cpu-count": 1,
        "disk-count": 1,
        "disk-size": 1024,
        "nic-count": 1,
        "spindle-use": 1,
    },
    "disk-templates": list(DISK_TEMPLATES),
    "vcpu-ratio": 4.0,
    "spindle-ratio": 32.0,
}
"""The instance policy of a new cluster: sizes in MiB, ratios of virtual to physical (S235)."""

UPSTREAM_IPOLICY: Params = {
    "minmax": [
        {
            "min": dict(IPOLICY_DEFAULTS["std"]),
            "max": {
                "memory-size": 32768,
                "cpu-count": 8,
                "disk-size": 1048576,
                "disk-count": 16,
                "nic-count": 8,
                "spindle-use": 12,
            },
        }
    ],
    "std": IPOLICY_DEFAULTS["std"],
    "vcpu-ratio": 4.0,
    "spindle-ratio": 32.0,
}
"""Upstream's default policy, without disk templates."""


def layered(*layers: Mapping[str, Any]) -> Params:
    """Merge dictionaries; the last one wins."""
    filled: Params = {}
    for layer in layers:
        filled.update(layer)
    return filled


def top_value(name: str, *layers: Mapping[str, Any]) -> Any:
    """Return one value of `layered`, without merging the others; KeyError."""
    for layer in reversed(layers):
        if name in layer:
            return layer[name]
    raise KeyError(name)
