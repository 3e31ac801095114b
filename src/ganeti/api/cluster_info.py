"""The answer of QueryClusterInfo: what `gnt-cluster info` and the h-tools read."""

import os
import sys
from collections.abc import Mapping
from typing import Any

from ganeti import __version__
from ganeti.config.fill import all_diskparams, cluster_hvparams
from ganeti.config.snapshot import Snapshot
from ganeti.model import wire
from ganeti.model.data_collectors import collecting
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.objects import Cluster
from ganeti.model.params import (
    BACKEND_DEFAULTS,
    IPOLICY_DEFAULTS,
    NIC_DEFAULTS,
    NODE_DEFAULTS,
    layered,
)
from ganeti.protocols.luxi import VERSION

OS_API_VERSION = 20
DEFAULT = "default"
_32_BITS = 2**32

_ABSENT: dict[str, Any] = {
    "compression_tools": ["gzip"],
    "drbd_usermode_helper": None,
    "enabled_user_shutdown": False,
    "gluster_storage_dir": "",
    "install_image": "",
    "instance_communication_network": "",
    "maintain_node_health": False,
    "modify_ssh_setup": False,
    "prealloc_wipe_disks": False,
    "reserved_lvs": [],
    "use_external_mip_script": False,
    "ssh_key_bits": 2048,
    "ssh_key_type": "rsa",
    "volume_group_name": None,
    "zeroing_image": "",
}
"""Keys that clients expect and that nothing here can set yet."""


def cluster_info(
    snapshot: Snapshot, *, degraded: bool, state: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Everything about the cluster as a whole, by the names that clients know."""
    cluster = snapshot.cluster
    master = snapshot.nodes.get(cluster.master_node)
    described = {
        "software_version": __version__,
        "protocol_version": VERSION,
        "config_version": VERSION,
        "os_api_version": OS_API_VERSION,
        "export_version": 0,
        "vcs_version": f"(ganeti) version {__version__}",
        "architecture": ["64bits" if sys.maxsize > _32_BITS else "32bits", os.uname().machine],
        "name": cluster.name,
        "uuid": cluster.uuid,
        "ctime": cluster.ctime,
        "mtime": cluster.mtime,
        "tags": list(cluster.tags),
        "master": master.name if master else "",
        "default_hypervisor": cluster.enabled_hypervisors[0],
        "enabled_hypervisors": list(cluster.enabled_hypervisors),
        "enabled_disk_templates": list(cluster.enabled_disk_templates),
        "hvparams": {name: cluster_hvparams(cluster, name) for name in HYPERVISOR_PARAMS},
        "os_hvp": cluster.os_hvp,
        "osparams": cluster.osparams,
        "hidden_os": list(cluster.hidden_os),
        "blacklisted_os": list(cluster.blacklisted_os),
        "beparams": {DEFAULT: layered(BACKEND_DEFAULTS, cluster.beparams.get(DEFAULT, {}))},
        "nicparams": {DEFAULT: layered(NIC_DEFAULTS, cluster.nicparams.get(DEFAULT, {}))},
        "ndparams": layered(NODE_DEFAULTS, cluster.ndparams),
        "diskparams": all_diskparams(cluster),
        "ipolicy": layered(IPOLICY_DEFAULTS, cluster.ipolicy),
        "candidate_pool_size": cluster.candidate_pool_size,
        "max_running_jobs": cluster.max_running_jobs,
        "max_tracked_jobs": cluster.max_running_jobs,
        "mac_prefix": cluster.mac_prefix,
        "master_ip": cluster.master_ip,
        "master_netdev": cluster.master_netdev,
        "master_netmask": cluster.master_netmask,
        "primary_ip_version": 6 if ":" in cluster.master_ip else 4,
        "default_iallocator": cluster.default_iallocator,
        "default_iallocator_params": cluster.default_iallocator_params,
        **_data_collectors(cluster),
        "remote_hvparams": list(cluster.remote_hvparams),
        "file_storage_dir": cluster.file_storage_dir,
        "shared_file_storage_dir": cluster.shared_file_storage_dir,
        "uid_pool": cluster.uid_pool,
        "degraded": degraded,
        "state": dict(state or {}),
    }
    answer: dict[str, Any] = wire.plain({**_ABSENT, **described})
    return answer


def _data_collectors(cluster: Cluster) -> dict[str, dict[str, Any]]:
    every = collecting(cluster.enabled_data_collectors, cluster.data_collector_interval)
    return {
        "enabled_data_collectors": {name: one.active for name, one in every.items()},
        "data_collector_interval": {name: one.interval_us for name, one in every.items()},
    }
