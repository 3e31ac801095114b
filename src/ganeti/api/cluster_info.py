"""The answer of QueryClusterInfo, which `gnt-cluster info` and the h-tools read."""

import os
import sys
from collections.abc import Mapping
from typing import Any

from ganeti import __version__
from ganeti.config.snapshot import Snapshot
from ganeti.model import wire
from ganeti.model.cluster_params import CLUSTER_PARAMS, UNKNOWN_PARAMS
from ganeti.protocols.luxi import VERSION

OS_API_VERSION = 20
_32_BITS = 2**32


def cluster_info(
    snapshot: Snapshot, *, degraded: bool, state: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the facts about the cluster as a whole, by the names that clients know."""
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
        "max_tracked_jobs": cluster.max_running_jobs,
        "master_ip": cluster.master_ip,
        "primary_ip_version": 6 if ":" in cluster.master_ip else 4,
        "degraded": degraded,
        "state": dict(state or {}),
    }
    params = {
        param.info or name: param.with_defaults(getattr(cluster, name))
        for name, param in CLUSTER_PARAMS.items()
    }
    unknown = {one.info: one.value for one in UNKNOWN_PARAMS if one.info}
    answer: dict[str, Any] = wire.plain({**unknown, **params, **described})
    return answer
