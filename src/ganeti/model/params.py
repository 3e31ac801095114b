"""Parameters and their layers: cluster, group, node, object; later layers win."""

from collections.abc import Mapping
from typing import Any

from ganeti.model.disk_templates import DISK_TEMPLATES

Params = dict[str, Any]

BACKEND_DEFAULTS: Params = {
    "always_failover": False,
    "auto_balance": True,
    "maxmem": 128,
    "minmem": 128,
    "spindle_use": 1,
    "vcpus": 1,
}
"""Backend parameters and the values they have where nobody says otherwise; memory in MiB."""
BACKEND_OF_CLUSTER = frozenset(("always_failover", "auto_balance", "minmem", "spindle_use"))
"""Those that only the cluster looks at: a running guest has nothing of them."""

NIC_DEFAULTS: Params = {"mode": "bridged", "link": "br0", "vlan": ""}

NODE_DEFAULTS: Params = {
    "oob_program": "",
    "spindle_count": 1,
    "exclusive_storage": False,
    "ovs": False,
    "ovs_name": "switch1",
    "ovs_link": "",
    "ssh_port": 22,
    "cpu_speed": 1.0,
}

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
                "disk-count": 16,
                "disk-size": 64 * 1024 * 1024,
                "nic-count": 8,
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


def layered(*layers: Mapping[str, Any]) -> Params:
    """One dictionary out of many, the last one strongest."""
    filled: Params = {}
    for layer in layers:
        filled.update(layer)
    return filled
