"""What is true of every configuration; a change is held to those rules that it touches.

`problems_of` says what is wrong with one object where it stands, for `gnt-cluster verify` as well
as for a change. That no two objects share a name, address or file is the index's business.
"""

from collections.abc import Callable, Iterator

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.identifiers import host_name, is_uuid, mac_address, plain_name
from ganeti.config.snapshot import View
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.objects import Cluster, ConfigObject, Instance, Node, NodeGroup

MAX_DISKS = 16
MAX_NICS = 8

Problem = tuple[ErrorCode, str]


def check_object(view: View, thing: ConfigObject) -> None:
    """Raise PrereqError for the first problem of an object."""
    for code, text in problems_of(view, thing):
        raise PrereqError(text, code)


def check_removal(view: View, thing: ConfigObject) -> None:
    """Raise PrereqError if something still refers to an object that is gone."""
    for code, text in _references_to(view, thing):
        raise PrereqError(text, code)


def problems_of(view: View, thing: ConfigObject) -> Iterator[Problem]:
    """What is wrong with one object, and with what it refers to."""
    if not is_uuid(thing.uuid):
        yield ErrorCode.WRONG_INPUT, f"{thing.name}: {thing.uuid!r} is not a UUID"
    if isinstance(thing, Cluster):
        yield from _problems_of_cluster(view, thing)
    elif isinstance(thing, Node):
        yield from _problems_of_node(view, thing)
    elif isinstance(thing, NodeGroup):
        yield from _name_problems(plain_name, thing.name, "group name")
    else:
        yield from _problems_of_instance(view, thing)


def _problems_of_cluster(view: View, cluster: Cluster) -> Iterator[Problem]:
    yield from _name_problems(host_name, cluster.name, "cluster name")
    master = view.nodes.get(cluster.master_node)
    if master is None:
        yield ErrorCode.UNKNOWN_ENTITY, f"the master node {cluster.master_node} does not exist"
    elif master.offline:
        yield ErrorCode.WRONG_STATE, f"the master node {master.name} is marked offline"
    elif not master.master_candidate:
        yield ErrorCode.WRONG_STATE, f"the master node {master.name} is no master candidate"


def _problems_of_node(view: View, node: Node) -> Iterator[Problem]:
    yield from _name_problems(host_name, node.name, "node name")
    if node.group not in view.groups:
        yield (
            ErrorCode.UNKNOWN_ENTITY,
            f"node {node.name}: its group {node.group} does not exist",
        )
    if node.master_candidate and (node.offline or node.drained or not node.master_capable):
        yield (
            ErrorCode.WRONG_STATE,
            f"node {node.name} cannot be a master candidate: it is offline, drained or not capable",
        )
    if node.offline and node.drained:
        yield ErrorCode.WRONG_STATE, f"node {node.name} is both offline and drained"
    if node.uuid == view.cluster.master_node and not node.master_candidate:
        yield ErrorCode.WRONG_STATE, f"node {node.name} is the master and must stay a candidate"


def _problems_of_instance(view: View, instance: Instance) -> Iterator[Problem]:
    name = instance.name
    yield from _name_problems(host_name, name, "instance name")
    if name == view.cluster.name:
        yield ErrorCode.EXISTS, f"instance {name}: this is the name of the cluster"
    for node_uuid in instance.all_nodes:
        if node_uuid not in view.nodes:
            yield ErrorCode.UNKNOWN_ENTITY, f"instance {name}: its node {node_uuid} does not exist"
    if len(set(instance.all_nodes)) < len(instance.all_nodes):
        yield ErrorCode.WRONG_INPUT, f"instance {name}: the same node is named twice"
    yield from _disk_problems(instance)
    if len(instance.nics) > MAX_NICS:
        yield ErrorCode.WRONG_INPUT, f"instance {name}: more than {MAX_NICS} network interfaces"
    for nic in instance.nics:
        yield from _name_problems(mac_address, nic.mac, f"instance {name}: MAC address")


def _disk_problems(instance: Instance) -> Iterator[Problem]:
    name = instance.name
    template = DISK_TEMPLATES.get(instance.disk_template)
    if template is None:
        text = f"instance {name}: there is no disk template {instance.disk_template}"
        yield ErrorCode.WRONG_INPUT, text
    elif instance.disks and not template.has_disks:
        yield ErrorCode.WRONG_INPUT, f"instance {name}: {template.name} instances have no disks"
    if len(instance.disks) > MAX_DISKS:
        yield ErrorCode.WRONG_INPUT, f"instance {name}: more than {MAX_DISKS} disks"
    for disk in instance.disks:
        if disk.size <= 0:
            yield ErrorCode.WRONG_INPUT, f"instance {name}: disk {disk.uuid} has {disk.size} MiB"


def _name_problems(check: Callable[[str, str], str], text: str, field: str) -> Iterator[Problem]:
    try:
        if check(text, field) != text:
            yield ErrorCode.WRONG_INPUT, f"{field}: {text!r} must be in lower case"
    except InputError as err:
        yield err.code, err.message


def _references_to(view: View, thing: ConfigObject) -> Iterator[Problem]:
    if isinstance(thing, Node):
        if thing.uuid == view.cluster.master_node:
            yield ErrorCode.WRONG_STATE, f"node {thing.name} is the master; fail over first"
        users = view.instances_of(thing.uuid)
        if users:
            yield (
                ErrorCode.WRONG_STATE,
                f"node {thing.name} still has {len(users)} instances, as {users[0].name}",
            )
    elif isinstance(thing, NodeGroup):
        members = [node.name for node in view.nodes_by_name() if node.group == thing.uuid]
        if members:
            yield (
                ErrorCode.WRONG_STATE,
                f"group {thing.name} still has {len(members)} nodes, as {members[0]}",
            )
