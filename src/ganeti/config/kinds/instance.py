"""Instances."""

from collections.abc import Iterator

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode
from ganeti.base.identifiers import host_name, mac_address
from ganeti.config.fill import filled_nicparams, without_globals
from ganeti.config.index import Claim, address_claim
from ganeti.config.kinds.detached_disk import disk_claims
from ganeti.config.kinds.kind import Kind, Problem, name_problems
from ganeti.config.view import View
from ganeti.model.address_pool import AddressPool
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.limits import MAX_DISKS, MAX_NICS
from ganeti.model.names import AdminState
from ganeti.model.objects import Cluster, Instance, Nic


def _claims(cluster: Cluster, instance: Instance) -> Iterator[Claim]:
    yield Claim("host name", instance.name)
    for nic in instance.nics:
        yield Claim("UUID", nic.uuid)
        yield Claim("MAC address", nic.mac)
        if nic.ip and nic.network:
            yield address_claim(nic.network, nic.ip)
        elif nic.ip:
            link = filled_nicparams(cluster, nic).get("link", "")
            yield Claim("IP address", f"{nic.ip} on {link}")
    if instance.network_port is not None:
        yield Claim("network port", str(instance.network_port))
    disks = (*instance.disks, *instance.memory_disks)
    own = [claim for disk in disks for claim in disk_claims(disk)]
    yield from own
    if instance.switching is not None:  # which have the same UUIDs
        new = (claim for disk in instance.switching.disks for claim in disk_claims(disk))
        yield from (claim for claim in new if claim not in own)


def _problems(view: View, instance: Instance) -> Iterator[Problem]:
    name = instance.name
    yield from name_problems(host_name, name, "instance name")
    if name == view.cluster.name:
        yield ErrorCode.EXISTS, f"instance {name}: this is the name of the cluster"
    after_switch = instance.switching.secondary_nodes if instance.switching else ()
    for node_uuid in dict.fromkeys((*instance.all_nodes, *after_switch)):
        if node_uuid not in view.nodes:
            yield ErrorCode.UNKNOWN_ENTITY, f"instance {name}: its node {node_uuid} does not exist"
    if len(set(instance.all_nodes)) < len(instance.all_nodes):
        yield ErrorCode.WRONG_INPUT, f"instance {name}: the same node is named twice"
    yield from _disk_problems(instance)
    if len(instance.nics) > MAX_NICS:
        yield ErrorCode.WRONG_INPUT, f"instance {name}: more than {MAX_NICS} network interfaces"
    for nic in instance.nics:
        yield from name_problems(mac_address, nic.mac, f"instance {name}: MAC address")
    for number, nic in enumerate(instance.nics):
        if nic.network is not None:
            where = f"instance {name}: interface {number}"
            yield from (
                (code, f"{where} {text}") for code, text in _network_problems(view, instance, nic)
            )


def _network_problems(view: View, instance: Instance, nic: Nic) -> Iterator[Problem]:
    network = view.networks.get(nic.network or "")
    if network is None:
        yield ErrorCode.UNKNOWN_ENTITY, f"is in the network {nic.network}, which does not exist"
        return
    node = view.nodes.get(instance.primary_node)
    group = view.groups.get(node.group) if node else None
    if group is not None and network.uuid not in group.networks:
        yield (
            ErrorCode.WRONG_STATE,
            f"is in the network {network.name}, to which its group {group.name} is not connected",
        )
    if nic.nicparams:
        yield (
            ErrorCode.WRONG_INPUT,
            (
                f"has {', '.join(sorted(nic.nicparams))} of its own in addition to the network "
                f"{network.name}"
            ),
        )
    if nic.ip is None:
        if filled_nicparams(view.cluster, nic, group)["mode"] == "routed":
            yield (
                ErrorCode.WRONG_INPUT,
                f"needs an IP address, because the network {network.name} is routed in its group",
            )
        return
    why = AddressPool(network).why_not(nic.ip)
    if why is not None:
        yield ErrorCode.WRONG_INPUT, f"cannot have the address {nic.ip}: {why}"


def _disk_problems(instance: Instance) -> Iterator[Problem]:
    name = instance.name
    template = DISK_TEMPLATES.get(instance.disk_template)
    if template is None:
        text = f"instance {name}: the disk template {instance.disk_template} does not exist"
        yield ErrorCode.WRONG_INPUT, text
    elif instance.disks and not template.has_disks:
        yield ErrorCode.WRONG_INPUT, f"instance {name}: {template.name} instances have no disks"
    if len(instance.disks) > MAX_DISKS:
        yield ErrorCode.WRONG_INPUT, f"instance {name}: more than {MAX_DISKS} disks"
    claims = set()
    for claim in (one for disk in instance.disks for one in disk_claims(disk)):
        if claim in claims:
            text = f"instance {name}: two of its disks have the {claim.kind} {claim.value}"
            yield ErrorCode.WRONG_INPUT, text
        claims.add(claim)
    yield from _snapshot_problems(instance)
    if instance.template and instance.admin_state is AdminState.UP:
        yield ErrorCode.WRONG_STATE, f"instance {name}: a template cannot be up"
    for disk in instance.disks:
        if disk.size <= 0:
            yield ErrorCode.WRONG_INPUT, f"instance {name}: disk {disk.uuid} has {disk.size} MiB"


def _snapshot_problems(instance: Instance) -> Iterator[Problem]:
    """Yield what would lose a snapshot: it needs its disks, and a rollback needs its snapshot."""
    name, disks = instance.name, {disk.uuid for disk in instance.disks}
    names = [one.name for one in instance.snapshots]
    if len(set(names)) < len(names):
        yield ErrorCode.WRONG_INPUT, f"instance {name}: two of its snapshots have the same name"
    for snapshot in instance.snapshots:
        for lost in [one.disk for one in snapshot.disks if one.disk not in disks]:
            text = (
                f"instance {name}: its snapshot {snapshot.name} would lose disk {lost}; first run:"
                f" gnt-instance snapshot remove {name} {snapshot.name}"
            )
            yield ErrorCode.WRONG_STATE, text
    if instance.rolling_back not in (None, *(one.uuid for one in instance.snapshots)):
        yield ErrorCode.WRONG_STATE, f"instance {name}: it is rolled back to a missing snapshot"


def _upgraded(instance: Instance) -> Instance:
    """Return the instance without parameters that have since become global (S84)."""
    kept = without_globals(instance.hypervisor, instance.hvparams)
    is_changed = len(kept) < len(instance.hvparams)
    return replace(instance, hvparams=kept) if is_changed else instance


def _merged(current: Instance, stale: Instance) -> Instance:
    """Return the stale version with what automatic recovery has committed meanwhile: its row, and the grants of disks."""
    grants = {disk.uuid: disk.grant for disk in current.disks}
    disks = tuple(
        replace(disk, grant=grants[disk.uuid]) if disk.uuid in grants else disk
        for disk in stale.disks
    )
    return replace(stale, recovery=current.recovery, under_lease=current.under_lease, disks=disks)


INSTANCE = Kind(
    "instance",
    Instance,
    _claims,
    _problems,
    nodes=lambda instance: instance.all_nodes,
    merged=_merged,
    upgraded=_upgraded,
)
