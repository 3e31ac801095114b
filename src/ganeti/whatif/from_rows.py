"""A source from the answers of a running cluster to queries; nothing there is changed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ganeti.base.errors import InputError
from ganeti.model import wire
from ganeti.model.cluster_params import CLUSTER_PARAMS
from ganeti.model.objects import (
    Cluster,
    Instance,
    Network,
    Nic,
    Node,
    NodeGroup,
    NodeUuid,
)
from ganeti.model.params import NIC_DEFAULTS
from ganeti.model.stored import Stored
from ganeti.whatif.source import (
    DerivedNames,
    NodeSize,
    Source,
    stand_in_certificate,
    whole,
    with_disks,
)

Row = Mapping[str, Any]
"""Values by field; an unknown value is missing."""
Ask = Callable[[str, Sequence[str]], list[Row]]
"""Return the rows of a kind of objects with these fields."""

_GROUP = {
    "name": "name",
    "uuid": "uuid",
    "alloc_policy": "alloc_policy",
    "ndparams": "custom_ndparams",
    "diskparams": "custom_diskparams",
    "ipolicy": "custom_ipolicy",
    "tags": "tags",
}
_NETWORK = {
    one: one
    for one in ("name", "uuid", "network", "gateway", "network6", "gateway6", "mac_prefix", "tags")
}
_NODE = {
    "name": "name",
    "uuid": "uuid",
    "primary_ip": "pip",
    "secondary_ip": "sip",
    "group": "group.uuid",
    "master_candidate": "master_candidate",
    "offline": "offline",
    "drained": "drained",
    "master_capable": "master_capable",
    "vm_capable": "vm_capable",
    "ndparams": "custom_ndparams",
    "tags": "tags",
}
_SIZE = {"memory": "mtotal", "own_memory": "mnode", "disk": "dtotal", "cpus": "ctotal"}
_INSTANCE = {
    "name": "name",
    "uuid": "uuid",
    "os": "os",
    "hypervisor": "hypervisor",
    "admin_state": "admin_state",
    "disk_template": "disk_template",
    "hvparams": "custom_hvparams",
    "beparams": "custom_beparams",
    "osparams": "custom_osparams",
    "network_port": "network_port",
    "tags": "tags",
}
"""Field of the object -> field of the query."""
_PLACES = ("pnode", "snodes", "disk.sizes")
_NICS = {"uuid": "nic.uuids", "mac": "nic.macs", "ip": "nic.ips", "name": "nic.names",
         "network": "nic.networks", "nicparams": "custom_nicparams"}  # fmt: skip
_NOTES = ("the master does not tell the state of disks: every disk begins as synchronised",)


def rows_source(ask: Ask, info: Row) -> Source:
    """Return the cluster that answers `ask`; `info` is the answer of QueryClusterInfo."""
    nodes = ask("node", sorted({*_NODE.values(), *_SIZE.values(), "cnos"}))
    uuids = {str(row["name"]): NodeUuid(str(row["uuid"])) for row in nodes}
    cluster = _cluster(info, uuids)
    instances = ask("instance", sorted({*_INSTANCE.values(), *_PLACES, *_NICS.values()}))
    names = DerivedNames([row["network_port"] for row in instances if row.get("network_port")])
    networks = ask("network", sorted({*_NETWORK.values(), "group_list"}))
    objects: list[Stored] = [
        cluster,
        *(_made(row, _NETWORK, Network, {}) for row in networks),
        *(
            _made(row, _GROUP, NodeGroup, {"networks": _connections(row, networks)})
            for row in ask("group", sorted(_GROUP.values()))
        ),
        *(_made(row, _NODE, Node, _stand_ins(row)) for row in nodes),
        *(_instance(cluster, row, uuids, names) for row in instances),
    ]
    sizes = {uuids[str(row["name"])]: _size(row) for row in nodes if row.get("mtotal")}
    return Source("running", cluster.name, tuple(objects), sizes, _NOTES)


def _made(row: Row, fields: Mapping[str, str], kind: Any, more: Mapping[str, Any]) -> Any:
    """Return the object of a row; unknown values keep their defaults."""
    known = {name: row[field] for name, field in fields.items() if row.get(field) is not None}
    what = f"{kind.__name__.lower()} {row.get('name')}"
    return wire.convert({**known, **more}, kind, what=what)


def _cluster(info: Row, uuids: Mapping[str, NodeUuid]) -> Cluster:
    if info.get("master") not in uuids:
        raise InputError("the answer of the cluster names no master node", "SOURCE")
    params = {
        name: info[param.info or name]
        for name, param in CLUSTER_PARAMS.items()
        if info.get(param.info or name) is not None
    }
    own = {
        "uuid": info["uuid"],
        "name": info["name"],
        "master_node": uuids[info["master"]],
        "tags": info.get("tags") or (),
    }
    made: Cluster = wire.convert({**params, **own}, Cluster, what="cluster")
    return made


def _connections(row: Row, networks: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return the networks of a group, with mode, link and VLAN there."""
    found = {}
    for network in networks:
        for name, mode, link, vlan in network.get("group_list") or ():
            if name == row["name"]:
                found[network["uuid"]] = {
                    "mode": mode or NIC_DEFAULTS["mode"],
                    "link": link or NIC_DEFAULTS["link"],
                    "vlan": vlan,
                }
    return found


def _stand_ins(row: Row) -> dict[str, Any]:
    return {"certificate": stand_in_certificate(str(row["name"]))}


def _size(row: Row) -> NodeSize:
    what = f"node {row['name']}"
    known = {name: whole(row.get(field) or 0, what, field) for name, field in _SIZE.items()}
    return NodeSize(**known, own_cpus=whole(row.get("cnos") or 0, what, "cnos"))


def _instance(
    cluster: Cluster, row: Row, uuids: Mapping[str, NodeUuid], names: DerivedNames
) -> Instance:
    made: Instance = _made(
        row,
        _INSTANCE,
        Instance,
        {
            "primary_node": uuids.get(str(row.get("pnode")), ""),
            "secondary_nodes": [uuids.get(name, "") for name in row.get("snodes") or ()],
            "nics": [wire.plain(nic) for nic in _nics(row)],
        },
    )
    return with_disks(cluster, made, [int(size) for size in row.get("disk.sizes") or ()], names)


def _nics(row: Row) -> list[Nic]:
    columns = {name: row.get(field) or () for name, field in _NICS.items()}
    return [
        wire.convert(
            {
                name: values[index]
                for name, values in columns.items()
                if index < len(values) and values[index] is not None
            },
            Nic,
            what=f"instance {row.get('name')}: interface {index}",
        )
        for index in range(len(columns["uuid"]))
    ]
