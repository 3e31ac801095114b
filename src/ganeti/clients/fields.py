"""The fields of objects in the REST interface and in `--json`: those that REST clients know, in their order."""

from collections.abc import Mapping
from typing import Any

_ALL_HAVE = ("ctime", "mtime", "uuid", "serial_no", "tags")

INSTANCE = (
    *("name", "admin_state", "os", "pnode", "snodes", "disk_template"),
    *("nic.ips", "nic.macs", "nic.modes", "nic.uuids", "nic.names", "nic.links", "nic.networks"),
    *("nic.networks.names", "nic.bridges", "network_port"),
    *("disk.sizes", "disk.spindles", "disk_usage", "disk.uuids", "disk.names"),
    *("beparams", "hvparams", "oper_state", "oper_ram", "oper_vcpus", "status"),
    *("custom_hvparams", "custom_beparams", "custom_nicparams"),
    *_ALL_HAVE,
)
NODE = (
    *("name", "offline", "master_candidate", "drained", "dtotal", "dfree", "sptotal", "spfree"),
    *("mtotal", "mnode", "mfree", "pinst_cnt", "sinst_cnt", "ctotal", "cnos", "cnodes", "csockets"),
    *("pip", "sip", "role", "pinst_list", "sinst_list", "master_capable", "vm_capable"),
    *("ndparams", "group.uuid"),
    *_ALL_HAVE,
)
GROUP = (
    *("alloc_policy", "name", "node_cnt", "node_list", "ipolicy", "custom_ipolicy"),
    *(
        "diskparams",
        "custom_diskparams",
        "ndparams",
        "custom_ndparams",
        "beparams",
        "custom_beparams",
    ),
    *_ALL_HAVE,
)
NETWORK = (
    *("name", "network", "gateway", "network6", "gateway6", "mac_prefix"),
    *("free_count", "reserved_count", "map", "group_list", "inst_list", "external_reservations"),
    *_ALL_HAVE,
)
SCHEDULE = (
    *(
        "name",
        "calendar",
        "time_zone",
        "next",
        "all_instances",
        "instances",
        "instance_tags",
        "groups",
    ),
    *(
        "instance_count",
        "node",
        "target",
        "at_once",
        "per_node",
        "window",
        "bandwidth",
        "encrypt",
        "keep_rules",
    ),
    *(
        "drill",
        "drill_expect",
        "alert_after",
        "paused",
        "owner",
        "running",
        "failing",
        "old",
        "runs",
    ),
    *("ctime", "mtime", "uuid", "serial_no"),
)
WEBHOOK = (
    *(
        "name",
        "url",
        "kinds",
        "names",
        "object_tags",
        "groups",
        "verify_tls",
        "authorities",
        "allow_local",
    ),
    *("paused", "owner", "state", "position", "last_success", "failing_since", "failures"),
    *("error", "gaps", "ctime", "mtime", "uuid", "serial_no"),
)
BACKUP_KEY = ("name", "active", "owner", *("ctime", "mtime", "uuid", "serial_no"))
IMAGE = (
    *("name", "description", "size", "stored", "disk.sizes", "disk.sha256", "disk_size"),
    *("firmware", "cloud_init", "beparams", "nic_count", "node_list"),
    *_ALL_HAVE,
)
JOB_BULK = ("id", "ops", "status", "summary", "opstatus", "received_ts", "start_ts", "end_ts")
JOB = (*JOB_BULK, "oplog", "opresult")
FILTER = ("watermark", "priority", "predicates", "action", "reason_trail", "uuid")
BY_KIND = {
    "instance": INSTANCE,
    "node": NODE,
    "group": GROUP,
    "network": NETWORK,
    "image": IMAGE,
    "job": JOB_BULK,
    "filter": FILTER,
    "schedule": SCHEDULE,
    "webhook": WEBHOOK,
    "backup-key": BACKUP_KEY,
}
"""By the kind's name in queries."""


def with_memory(instance: dict[str, Any]) -> dict[str, Any]:
    """Return an instance with its maximum memory under the name that old clients read."""
    beparams = instance.get("beparams")
    if beparams is None:
        return instance
    return {**instance, "beparams": {**beparams, "memory": beparams["maxmem"]}}


CLUSTER_ALIASES = {"volume_group_name": "vg_name", "drbd_usermode_helper": "drbd_helper"}
"""Names of the cluster's facts, and the alternative names that REST clients know."""


def with_aliases(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cluster's facts, some with alternative names."""
    aliases = {alias: facts[name] for name, alias in CLUSTER_ALIASES.items() if name in facts}
    return {**aliases, **facts}
