"""Descriptions from rows about nodes, instances and groups: the answers of LUXI queries and of RAPI's bulk lists."""

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.errors import InputError
from ganeti.model.disk_templates import TEMPLATES
from ganeti.model.recovery import Recovery
from ganeti.placement.description import Cluster, Group, Instance, Node
from ganeti.placement.load.text import DEFAULT_POLICY
from ganeti.placement.policy_form import checked_allocation_policy, checked_policy

Row = Mapping[str, Any]
"""Values by field name; unknown values are missing or None."""

NODE_FIELDS = (
    *(
        "name",
        "mtotal",
        "mnode",
        "mfree",
        "dtotal",
        "dfree",
        "ctotal",
        "cnos",
        "offline",
        "drained",
    ),
    *("vm_capable", "ndp/spindle_count", "group.uuid", "tags", "ndp/exclusive_storage", "sptotal"),
    *("spfree", "ndp/cpu_speed"),
)
INSTANCE_FIELDS = (
    *("name", "disk_usage", "be/maxmem", "be/vcpus", "status", "pnode", "snodes", "tags"),
    *("be/auto_balance", "disk_template", "be/spindle_use", "disk.sizes", "disk.spindles"),
    *("nic.networks", "be/recovery", "be/recovery_priority"),
)
KINDS = ("groups", "nodes", "instances")
"""The bulk lists, by RAPI's names."""
GROUP_FIELDS = ("name", "uuid", "alloc_policy", "ipolicy", "tags")


def cluster_of(
    groups: Sequence[Row], nodes: Sequence[Row], instances: Sequence[Row], info: Row
) -> Cluster:
    """Return a cluster from rows and the cluster's attributes (`tags`, `ipolicy`, `master`); InputError."""
    for what, rows in (("group", groups), ("node", nodes), ("instance", instances)):
        if any(not isinstance(row, Mapping) for row in rows):
            raise InputError("must be an object", what)
    policy = DEFAULT_POLICY
    if info.get("ipolicy"):
        policy = checked_policy(info["ipolicy"], "cluster: ipolicy")
    try:
        return Cluster(
            groups=[_group(row, policy) for row in groups],
            nodes=[_node(row, str(info.get("master") or "")) for row in nodes],
            instances=[_instance(row) for row in instances],
            tags=tuple(info.get("tags") or ()),
            policy=policy,
        )
    except (TypeError, ValueError, AttributeError) as err:
        raise InputError(f"a value has the wrong form: {err}", "rows") from err


def _must(row: Row, field: str, what: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value:
        raise InputError(f"has no {field}", what)
    return value


def _number(row: Row, *fields: str, default: float = 0.0) -> float:
    for field in fields:
        value = row.get(field)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return default


def _group(row: Row, policy: Mapping[str, Any]) -> Group:
    name, own = _must(row, "name", "group"), row.get("ipolicy")
    return Group(
        name=name,
        uuid=_must(row, "uuid", f"group {name}"),
        alloc_policy=checked_allocation_policy(
            row.get("alloc_policy") or "preferred", f"group {name}"
        ),
        tags=tuple(row.get("tags") or ()),
        networks=tuple(row.get("networks") or ()),
        policy=checked_policy(own, f"group {name}: ipolicy") if own else policy,
    )


def _node(row: Row, master: str) -> Node:
    name = _must(row, "name", "node")
    own = {f"ndp/{key}": value for key, value in (row.get("ndparams") or {}).items()}
    row = {**own, **{key: value for key, value in row.items() if value is not None}}
    why = next((flag for flag in ("offline", "drained") if row.get(flag)), "")
    if row.get("vm_capable") is False:
        why = why or "not vm_capable"
    if "mtotal" not in row and not why:
        why = "silent"
    exclusive = bool(row.get("ndp/exclusive_storage"))
    return Node(
        name=name,
        group=_must(row, "group.uuid", f"node {name}"),
        total_memory=_number(row, "mtotal"),
        node_memory=_number(row, "mnode"),
        free_memory=_number(row, "mfree"),
        total_disk=_number(row, "dtotal"),
        free_disk=_number(row, "dfree"),
        total_cpus=_number(row, "ctotal"),
        node_cpus=_number(row, "cnos", default=1),
        offline=bool(why),
        why_offline=why or "offline",
        is_master=name == master,
        total_spindles=_number(row, "sptotal" if exclusive else "ndp/spindle_count", default=1),
        free_spindles=_number(row, "spfree"),
        exclusive_storage=exclusive,
        tags=tuple(row.get("tags") or ()),
        cpu_speed=_number(row, "ndp/cpu_speed", default=1),
    )


def _instance(row: Row) -> Instance:
    name = _must(row, "name", "instance")
    what = f"instance {name}"
    own = {f"be/{key}": value for key, value in (row.get("beparams") or {}).items()}
    row = {**own, **{key: value for key, value in row.items() if value is not None}}
    template = _must(row, "disk_template", what)
    if template not in TEMPLATES:
        raise InputError(f"unknown disk template {template!r:.40}", what)
    sizes = tuple(float(size) for size in row.get("disk.sizes") or ())
    spindles = row.get("disk.spindles") or []
    balance = row.get("be/auto_balance")
    snodes = row.get("snodes") or ()
    return Instance(
        name=name,
        memory=_number(row, "be/maxmem", "be/memory", "oper_ram"),
        disk=_number(row, "disk_usage", default=sum(sizes)),
        vcpus=_number(row, "be/vcpus", "oper_vcpus", default=1),
        status=str(row.get("status") or "running"),
        auto_balance=balance is not False,
        primary=_must(row, "pnode", what),
        secondary=str(snodes[0]) if snodes else "",
        template=template,
        tags=tuple(row.get("tags") or ()),
        spindle_use=_number(row, "be/spindle_use", default=1),
        spindles=None if not spindles or None in spindles else float(sum(spindles)),
        disks=sizes,
        networks=tuple(one for one in row.get("nic.networks") or () if one),
        protection=int(_number(row, "be/recovery_priority"))
        if row.get("be/recovery") == Recovery.FAILOVER
        else None,
    )
