"""The answer to each type of query (S56, X23), from data in memory. Pure."""

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from ganeti.base.errors import InputError
from ganeti.confd.facts import ClusterCopy, ClusterFacts, NodeFacts
from ganeti.protocols.confd import (
    ErrorDetail,
    MasterField,
    QueryKey,
    QueryType,
    Request,
    Scalar,
    Status,
)

CONFIG_VERSION = 3_000_000
"""The version in the answer to a ping; it tells clients which answers they understand."""
NAMES_LIMIT = 40_000
"""Maximum characters of names in one answer; a client asks for the following ones separately."""

Reply = tuple[Status, Any]
UNKNOWN: Reply = (Status.ERROR, ErrorDetail.UNKNOWN_ENTRY)
WRONG_ARGUMENT: Reply = (Status.ERROR, ErrorDetail.ARGUMENT)


def answer(facts: ClusterCopy, request: Request) -> Reply:
    """Return status and answer of a query."""
    try:
        found = ANSWERS.get(QueryType(request.type))
    except ValueError:
        found = None
    if found is None:
        return Status.NOT_IMPLEMENTED, f"unknown query type {request.type}"
    if facts.cluster is None:
        return Status.ERROR, ErrorDetail.INTERNAL
    try:
        return found(facts, facts.cluster, request)
    except InputError as err:
        return Status.ERROR, err.message


def _text(request: Request) -> str:
    """Return the search key of a query that requires text; InputError."""
    if not isinstance(request.query, str):
        raise InputError(f"a query of type {request.type} needs a text as its search key")
    return request.query


def _ping(_facts: ClusterCopy, _cluster: ClusterFacts, _request: Request) -> Reply:
    return Status.OK, CONFIG_VERSION


def _node_role(facts: ClusterCopy, _cluster: ClusterFacts, request: Request) -> Reply:
    node = facts.node(_text(request))
    if node is None:
        return Status.ERROR, f"Unknown node {request.query}"
    return Status.OK, facts.role(node)


def _node_of(facts: ClusterCopy, link: str, address: Scalar) -> Reply:
    instance = facts.instance_at(link, address) if isinstance(address, str) else None
    node = facts.nodes.get(instance.primary_node) if instance is not None else None
    return UNKNOWN if node is None else (Status.OK, node.primary_ip)


def _node_by_instance_ip(facts: ClusterCopy, cluster: ClusterFacts, request: Request) -> Reply:
    query = request.query
    if isinstance(query, str):
        return _node_of(facts, cluster.default_link, query)
    if not isinstance(query, dict):
        return WRONG_ARGUMENT
    given = query.get(QueryKey.LINK)
    link = given if isinstance(given, str) else cluster.default_link
    many = query.get(QueryKey.IPS)
    if isinstance(many, list):
        return Status.OK, [[*_node_of(facts, link, one), facts.position] for one in many]
    one = query.get(QueryKey.IP)
    if isinstance(one, str):
        return _node_of(facts, link, one)
    # Ganeti's own client requests the addresses of no instance this way.
    return (Status.OK, []) if QueryKey.IPS in query else WRONG_ARGUMENT


def _master(facts: ClusterCopy, cluster: ClusterFacts, request: Request) -> Reply:
    node = facts.nodes.get(cluster.master_node)
    if node is None:
        return Status.ERROR, ErrorDetail.INTERNAL
    if request.query is None or request.query == "":
        return Status.OK, node.name
    fields = request.query.get(QueryKey.FIELDS) if isinstance(request.query, dict) else None
    if not isinstance(fields, list):
        return WRONG_ARGUMENT
    values = (node.name, cluster.master_ip, node.primary_ip)
    try:
        # Ganeti's own client sends the numbers as texts.
        return Status.OK, [values[MasterField(int(one or 0))] for one in fields]
    except ValueError:
        return WRONG_ARGUMENT


def _node_ips(facts: ClusterCopy, _cluster: ClusterFacts, _request: Request) -> Reply:
    return Status.OK, [node.primary_ip for node in facts.nodes_by_name()]


def _candidates(facts: ClusterCopy) -> list[NodeFacts]:
    return [node for node in facts.nodes_by_name() if node.master_candidate]


def _candidate_ips(facts: ClusterCopy, _cluster: ClusterFacts, _request: Request) -> Reply:
    return Status.OK, [node.primary_ip for node in _candidates(facts)]


def _instance_ips(facts: ClusterCopy, cluster: ClusterFacts, request: Request) -> Reply:
    if request.query is None or request.query == "":
        return Status.OK, facts.addresses(cluster.default_link)
    if not isinstance(request.query, str):
        return WRONG_ARGUMENT
    return Status.OK, facts.addresses(request.query)


def _node_drbd(facts: ClusterCopy, _cluster: ClusterFacts, request: Request) -> Reply:
    node = facts.node(_text(request))
    if node is None:
        return UNKNOWN
    rows = []
    for instance in facts.instances_of(node.uuid):
        primary = instance.primary_node == node.uuid
        other = (*instance.secondary_nodes, "")[0] if primary else instance.primary_node
        peer = facts.nodes.get(other)
        rows += [
            [
                node.name,
                minor,
                instance.name,
                f"disk/{index}",
                "primary" if primary else "secondary",
                peer.name if peer else "",
            ]
            for index, disk in enumerate(instance.read().disks)
            for minor in disk.minors(node.uuid)
        ]
    return Status.OK, rows


def _node_instances(facts: ClusterCopy, _cluster: ClusterFacts, request: Request) -> Reply:
    node = facts.node(_text(request))
    if node is None:
        return UNKNOWN
    instances = facts.instances_of(node.uuid)
    primaries = [one.read().shown() for one in instances if one.primary_node == node.uuid]
    secondaries = [one.read().shown() for one in instances if one.primary_node != node.uuid]
    return Status.OK, [primaries, secondaries]


def _instance_disks(facts: ClusterCopy, _cluster: ClusterFacts, request: Request) -> Reply:
    instance = facts.instance(_text(request))
    if instance is None:
        return UNKNOWN
    nodes = [instance.primary_node, *instance.secondary_nodes]
    disks = [disk.shown() for disk in instance.read().disks]
    return Status.OK, [
        {"iv_name": f"disk/{index}", "nodes": nodes, **disk} for index, disk in enumerate(disks)
    ]


def _config_value(facts: ClusterCopy, cluster: ClusterFacts, request: Request) -> Reply:
    """Return single public values; the whole configuration is never sent (A37)."""
    master = facts.nodes.get(cluster.master_node)
    values: dict[str, Any] = {
        "/cluster/cluster_name": cluster.name,
        "/cluster/master_node": cluster.master_node,
        "/cluster/master_ip": cluster.master_ip,
        "/cluster/uuid": cluster.uuid,
        "/serial_no": facts.position,
        "/version": CONFIG_VERSION,
        "/master": master.name if master else None,
    }
    found = values.get(_text(request))
    return UNKNOWN if found is None else (Status.OK, found)


def _data_collectors(_facts: ClusterCopy, cluster: ClusterFacts, _request: Request) -> Reply:
    return Status.OK, cluster.collectors()


def _candidate_names(facts: ClusterCopy, _cluster: ClusterFacts, _request: Request) -> Reply:
    return Status.OK, [node.name for node in _candidates(facts)]


def _offline_nodes(facts: ClusterCopy, _cluster: ClusterFacts, _request: Request) -> Reply:
    return Status.OK, [node.name for node in facts.nodes_by_name() if node.offline]


def _instance_names(facts: ClusterCopy, _cluster: ClusterFacts, request: Request) -> Reply:
    """Return the names after the given one, as many as fit; an empty list is the end."""
    after = "" if request.query is None else _text(request)
    names = sorted(facts.instance_names)
    found: list[str] = []
    size = 0
    for name in names[bisect_right(names, after) :]:
        size += len(name) + 8  # a name in a JSON text inside of a JSON text
        if size > NAMES_LIMIT:
            break
        found.append(name)
    return Status.OK, found


def _primary_node(facts: ClusterCopy, _cluster: ClusterFacts, request: Request) -> Reply:
    instance = facts.instance(_text(request))
    node = None if instance is None else facts.nodes.get(instance.primary_node)
    return UNKNOWN if node is None else (Status.OK, node.name)


ANSWERS: dict[QueryType, Callable[[ClusterCopy, ClusterFacts, Request], Reply]] = {
    QueryType.PING: _ping,
    QueryType.NODE_ROLE_BY_NAME: _node_role,
    QueryType.NODE_IP_BY_INSTANCE_IP: _node_by_instance_ip,
    QueryType.MASTER: _master,
    QueryType.NODE_IPS: _node_ips,
    QueryType.CANDIDATE_IPS: _candidate_ips,
    QueryType.INSTANCE_IPS: _instance_ips,
    QueryType.NODE_DRBD: _node_drbd,
    QueryType.NODE_INSTANCES: _node_instances,
    QueryType.INSTANCE_DISKS: _instance_disks,
    QueryType.CONFIG_VALUE: _config_value,
    QueryType.DATA_COLLECTORS: _data_collectors,
    QueryType.CANDIDATES: _candidate_names,
    QueryType.OFFLINE_NODES: _offline_nodes,
    QueryType.INSTANCES: _instance_names,
    QueryType.INSTANCE_PRIMARY_NODE: _primary_node,
}
