"""Import and export of nodes, their groups and job filters."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import InputError
from ganeti.base.identifiers import host_name, plain_name
from ganeti.model import wire
from ganeti.model.job_filter import JobFilter, parse_action
from ganeti.model.names import AllocPolicy
from ganeti.model.objects import NetworkUuid, Node, NodeGroup
from ganeti.model.params import BACKEND_PARAMS, NIC_DEFAULTS, NODE_PARAMS, Params, layered
from ganeti.model.recovery import NodeState
from ganeti.upstream import policies
from ganeti.upstream.choices import Reading
from ganeti.upstream.clusters import check_nic, check_node, read_disk_params, written_disk_params
from ganeti.upstream.forms import Document
from ganeti.upstream.report import Judge
from ganeti.upstream.stored import STORED, read_stored, read_tags, written_params, written_stored

FLAGS = ("master_candidate", "offline", "drained", "master_capable", "vm_capable", "powered")
_ON_BY_DEFAULT = ("master_capable", "vm_capable", "powered")
_STATES = {"hv_state", "hv_state_static", "disk_state", "disk_state_static"}
_NODE = {*STORED, *FLAGS, *_STATES, "name", "primary_ip", "secondary_ip", "group", "ndparams"}
_GROUP = {
    *(*STORED, *_STATES, "name", "members", "alloc_policy"),
    *("ndparams", "diskparams", "ipolicy", "networks"),
}
_FILTER = {*STORED, "watermark", "priority", "predicates", "action", "reason_trail"}


def read_node(reading: Reading, given: Document) -> Node:
    """Return a node without a certificate: it has not joined this cluster."""
    what = f"node {given.get('name')}"
    reading.rest(what, given, _NODE)
    _keep_states(reading, what, given)
    primary = _address(reading, what, "primary_ip", given.get("primary_ip"))
    secondary = _address(reading, what, "secondary_ip", given.get("secondary_ip") or primary)
    flags = {name: bool(_given(given.get(name), default=name in _ON_BY_DEFAULT)) for name in FLAGS}
    node: Node = wire.convert(
        {
            **read_stored(reading, what, given),
            **flags,
            "name": reading.name("node", given.get("name"), host_name),
            "primary_ip": primary,
            "secondary_ip": secondary,
            "group": given.get("group"),
            "certificate": "",
            "ndparams": reading.params(what, "ndparams", given.get("ndparams"), check_node),
            "tags": read_tags(reading, what, given),
        },
        Node,
        what=what,
    )
    return node


def _address(reading: Reading, what: str, field: str, given: Any) -> str:
    """Return an address in canonical form, so that equal ones are recognised."""
    try:
        return str(ip_address(str(given)))
    except ValueError:
        reading.refuse(what, field, f"{given!r:.60} is not an IP address")
        return ""


def _keep_states(reading: Reading, what: str, given: Document) -> None:
    for name in sorted(_STATES):
        if given.get(name):
            reading.keep(what, name, "nodes report it themselves")


def _given(value: Any, *, default: bool) -> Any:
    return default if value is None else value


def apart(node: Node) -> Node:
    """Return whether an imported node has not joined this cluster, so that it must not be used."""
    return replace(node, offline=True, drained=False, master_candidate=False)


def written_node(judge: Judge, node: Node) -> Document:
    """Return a node in the form of 3.0; automatic recovery does not exist there."""
    what = f"node {node.name}"
    if node.recovery is not None and node.recovery.state is not NodeState.HEALTHY:
        state = node.recovery.state.value
        judge.keep(what, "recovery", f"the node is {state}; upstream Ganeti does not know this")
    if node.fence_secret:
        judge.keep(what, "fence_secret", "the password of its fence agent is not exported")
    return {
        **written_stored(node),
        **{name: getattr(node, name) for name in FLAGS},
        "name": node.name,
        "primary_ip": node.primary_ip,
        "secondary_ip": node.secondary_ip,
        "group": node.group,
        "ndparams": written_params(judge, what, "ndparams", NODE_PARAMS, node.ndparams),
    }


def read_group(reading: Reading, given: Document) -> NodeGroup:
    """Return a node group."""
    what = f"group {given.get('name')}"
    reading.rest(what, given, _GROUP)
    _keep_states(reading, what, given)
    networks = {
        NetworkUuid(uuid): _connection(reading, what, uuid, params)
        for uuid, params in (given.get("networks") or {}).items()
    }
    group: NodeGroup = wire.convert(
        {
            **read_stored(reading, what, given),
            "name": reading.name("group", given.get("name"), plain_name),
            "alloc_policy": given.get("alloc_policy") or AllocPolicy.PREFERRED.value,
            "ndparams": reading.params(what, "ndparams", given.get("ndparams"), check_node),
            "diskparams": read_disk_params(reading, what, given.get("diskparams")),
            "ipolicy": policies.read_policy(reading, what, given.get("ipolicy"), of_group=True),
            "networks": networks,
            "tags": read_tags(reading, what, given),
        },
        NodeGroup,
        what=what,
    )
    return group


def _connection(reading: Reading, what: str, uuid: str, given: Any) -> Params:
    own = reading.params(what, f"networks.{uuid}", given, check_nic)
    return {name: value for name, value in own.items() if value or name != "vlan"}


def written_group(judge: Judge, group: NodeGroup) -> Document:
    """Return a group in the form of 3.0."""
    what = f"group {group.name}"
    written_params(judge, what, "beparams", BACKEND_PARAMS, group.beparams)  # it has none of them
    return {
        **written_stored(group),
        "name": group.name,
        "alloc_policy": group.alloc_policy.value,
        "ndparams": written_params(judge, what, "ndparams", NODE_PARAMS, group.ndparams),
        "diskparams": written_disk_params(judge, what, group.diskparams),
        "ipolicy": policies.written_policy(group.ipolicy, of_group=True),
        "networks": {
            uuid: written_connection(params) for uuid, params in sorted(group.networks.items())
        },
    }


def written_connection(params: Mapping[str, Any]) -> Params:
    """Return the connection of a group to a network; upstream has all three parameters."""
    return layered({"vlan": NIC_DEFAULTS["vlan"]}, params)


def read_filter(reading: Reading, given: Document) -> JobFilter | None:
    """Return a job filter, whose name is its UUID."""
    what = f"filter {given.get('uuid')}"
    reading.rest(what, given, _FILTER)
    try:
        action, most = parse_action(given.get("action"))
    except InputError as err:
        reading.unknown(what, "action", err.message)
        return None
    job_filter: JobFilter = wire.convert(
        {
            **read_stored(reading, what, given),
            "name": given.get("uuid"),
            "watermark": given.get("watermark") or 0,
            "priority": given.get("priority") or 0,
            "predicates": given.get("predicates") or (),
            "action": action.value,
            "most": most,
            "reason_trail": given.get("reason_trail") or (),
        },
        JobFilter,
        what=what,
    )
    return job_filter


def written_filter(job_filter: JobFilter) -> Document:
    """Return a filter in the form of 3.0, which has no times of filters."""
    return {
        "uuid": job_filter.uuid,
        "watermark": job_filter.watermark,
        "priority": job_filter.priority,
        "predicates": wire.plain(job_filter.predicates),
        "action": job_filter.action_on_wire,
        "reason_trail": wire.plain(job_filter.reason_trail),
    }
