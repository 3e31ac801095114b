"""Import and export of instances and their interfaces."""

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.identifiers import host_name, is_uuid, mac_address, os_name
from ganeti.model import wire
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.names import AdminState, AdminStateSource
from ganeti.model.objects import Instance, Nic, NodeGroup, NodeUuid
from ganeti.model.param_checks import check_backend_params, check_os_params
from ganeti.model.params import BACKEND_PARAMS, Params
from ganeti.upstream import hypervisors
from ganeti.upstream.choices import Reading
from ganeti.upstream.clusters import check_nic
from ganeti.upstream.disks import Layers, NotOurs, device_name, read_disk, written_disk
from ganeti.upstream.forms import Document
from ganeti.upstream.nodes import written_connection
from ganeti.upstream.report import Judge
from ganeti.upstream.stored import STORED, read_stored, read_tags, written_params, written_stored

_READ = {
    *(*STORED, "name", "primary_node", "os", "hypervisor", "hvparams", "beparams"),
    *("osparams", "osparams_private", "admin_state", "admin_state_source", "nics", "disks"),
    *("network_port", "disk_template", "secondary_nodes", "disks_active", "disks_info"),
}
_NIC = {"uuid", "mac", "ip", "name", "network", "nicparams", "netinfo", "pci", "hvinfo"}
_NO_TEMPLATE = "diskless"


class InstanceReader:
    """Reads instances of one document, with the necessary facts about the rest."""

    def __init__(
        self,
        reading: Reading,
        document: Document,
        *,
        shutdown_counts: bool,
        group_of: Callable[[str], NodeGroup | None],
        layers_of: Callable[[str], Layers],
    ) -> None:
        self._reading = reading
        self._disks = document["disks"]
        self._shutdown_counts = shutdown_counts
        self._group_of, self._layers_of = group_of, layers_of

    def read(self, given: Document) -> Instance | None:
        """Return an instance; None if this implementation does not support it, which is reported."""
        reading, what = self._reading, f"instance {given.get('name')}"
        if given.get("forthcoming"):
            reading.unknown(what, "forthcoming", "forthcoming instances are not supported")
            return None
        given_hypervisor = str(given.get("hypervisor"))
        hypervisor = reading.choices.hypervisors.get(given_hypervisor, given_hypervisor)
        if hypervisor not in HYPERVISOR_PARAMS:
            reading.unknown(what, "hypervisor", f"the hypervisor {hypervisor} is not supported")
            return None
        try:
            fields = self._fields(what, given, hypervisor)
        except NotOurs as err:
            reading.unknown(what, "disks", err.message)
            return None
        if hypervisor != given_hypervisor:
            reading.change(what, "hypervisor", f"{given_hypervisor} is {hypervisor} now")
            if own := sorted(given.get("hvparams") or ()):
                reading.keep(what, "hvparams", f"{', '.join(own)} belong to {given_hypervisor}")
            fields["hvparams"] = {}
        instance: Instance = wire.convert(fields, Instance, what=what)
        return instance

    def _fields(self, what: str, given: Document, hypervisor: str) -> dict[str, Any]:
        reading, primary = self._reading, str(given.get("primary_node"))
        reading.rest(what, given, _READ)
        has_disks, state = given.get("disks_active"), given.get("admin_state")
        if has_disks is not None and bool(has_disks) is not (state == AdminState.UP.value):
            now = "active" if has_disks else "not active"
            reading.keep(what, "disks_active", f"its disks are {now}, and the instance is {state}")
        disks, template = self._read_disks(what, given, primary)
        nodes = dict.fromkeys(str(node) for disk in disks for node in disk.parts)
        if nodes and primary not in nodes:
            raise NotOurs("none of their nodes is the primary node of the instance")
        same = hypervisor == given.get("hypervisor")
        return {
            **read_stored(reading, what, given),
            "name": reading.name("instance", given.get("name"), host_name),
            "primary_node": primary,
            "secondary_nodes": tuple(node for node in nodes if node != primary),
            "os": self._os(what, given.get("os")),
            "hypervisor": hypervisor,
            "admin_state": given.get("admin_state") or AdminState.DOWN.value,
            "admin_state_source": given.get("admin_state_source") or AdminStateSource.ADMIN.value,
            "disk_template": template,
            "disks": disks,
            "nics": [
                self._nic(f"{what}: interface {number}", nic, primary)
                for number, nic in enumerate(given["nics"])
            ],
            "hvparams": hypervisors.read(
                reading,
                what,
                "hvparams",
                hypervisor,
                given.get("hvparams") if same else {},
                shutdown_counts=self._shutdown_counts,
                of_instance=True,
            ),
            "beparams": reading.params(
                what, "beparams", given.get("beparams"), lambda one: check_backend_params(one, "")
            ),
            "osparams": reading.params(what, "osparams", given.get("osparams"), _os_params),
            "osparams_private": reading.params(
                what, "osparams_private", given.get("osparams_private"), _os_params
            ),
            "network_port": given.get("network_port"),
            "tags": read_tags(reading, what, given),
        }

    def _read_disks(self, what: str, given: Document, primary: str) -> tuple[list[Any], str]:
        missing = [uuid for uuid in given["disks"] if uuid not in self._disks]
        if missing:
            raise NotOurs(f"the disk {missing[0]} does not exist")
        raw = [self._disks[uuid] for uuid in given["disks"]]
        kinds = {str(one.get("dev_type")) for one in raw}
        if len(kinds) > 1:
            raise NotOurs(f"it has disks of several templates: {', '.join(sorted(kinds))}")
        template = kinds.pop() if kinds else str(given.get("disk_template") or _NO_TEMPLATE)
        if template not in DISK_TEMPLATES:
            raise NotOurs(f"the disk template {template} is not supported")
        layers = self._layers_of(primary)
        try:
            disks = [
                read_disk(self._reading, f"{what}: disk {number}", one, layers)
                for number, one in enumerate(raw)
            ]
        except NotOurs:
            raise
        except InputError as err:
            raise NotOurs(err.message) from err
        return disks, template

    def _os(self, what: str, given: Any) -> str:
        if not given:
            return ""
        try:
            return os_name(str(given), "os")
        except InputError as err:
            self._reading.unknown(what, "os", err.message)
            return ""

    def _nic(self, what: str, given: Document, primary: str) -> Nic:
        reading = self._reading
        reading.rest(what, given, _NIC)
        params = reading.params(what, "nicparams", given.get("nicparams"), check_nic)
        network = given.get("network") or None
        if network is not None:
            group = self._group_of(primary)
            wanted = written_connection(group.networks.get(network, {}) if group else {})
            if params and written_connection(params) != wanted:
                reading.unknown(
                    what, "nicparams", "an interface in a network uses its mode, link and VLAN"
                )
            params = {}
        address = given.get("ip") or None
        if address is not None:
            try:
                address = str(ip_address(address))
            except ValueError:
                reading.unknown(what, "ip", f"{address!r:.60} is not an IP address")
                address = None
        if not is_uuid(str(given.get("uuid"))):
            reading.refuse(what, "uuid", "is not a UUID")
        try:
            mac = mac_address(str(given.get("mac")), "mac")
        except InputError as err:
            reading.refuse(what, "mac", err.message)
            mac = ""
        nic: Nic = wire.convert(
            {
                "uuid": given.get("uuid"),
                "mac": mac,
                "ip": address,
                "name": device_name(reading, what, given),
                "network": network,
                "nicparams": params,
            },
            Nic,
            what=what,
        )
        return nic


def _os_params(given: Params) -> Params:
    texts = {name: str(value) for name, value in given.items()}
    check_os_params(texts, "")
    return texts


def written_instance(
    judge: Judge, instance: Instance, group: NodeGroup | None, names: Mapping[NodeUuid, str]
) -> tuple[Document, dict[str, Document]]:
    """Return an instance in the form of 3.0, and its disks by UUID; `names` are those of the nodes."""
    what = f"instance {instance.name}"
    if instance.migrating_to is not None:
        judge.refuse(
            what,
            "migration",
            "its migration is unfinished",
            f"gnt-instance migrate --cleanup {instance.name}",
        )
    for snapshot in instance.snapshots:
        judge.refuse(
            what,
            "snapshots",
            f"upstream Ganeti does not know its snapshot {snapshot.name}, and would lose it",
            f"gnt-instance snapshot remove {instance.name} {snapshot.name}",
        )
    if instance.template:
        judge.change(
            what,
            "template",
            "upstream Ganeti has no templates; it becomes an instance that is down",
        )
    disks = {
        disk.uuid: written_disk(judge, instance, index, names)
        for index, disk in enumerate(instance.disks)
    }
    found: Document = {
        **written_stored(instance),
        "name": instance.name,
        "primary_node": instance.primary_node,
        "os": instance.os,
        "hypervisor": instance.hypervisor,
        "hvparams": hypervisors.written(judge, what, instance.hypervisor, instance.hvparams),
        "beparams": written_params(judge, what, "beparams", BACKEND_PARAMS, instance.beparams),
        "osparams": dict(instance.osparams),
        "osparams_private": dict(instance.osparams_private),
        "admin_state": instance.admin_state.value,
        "admin_state_source": instance.admin_state_source.value,
        "nics": [_written_nic(nic, group) for nic in instance.nics],
        "disks": list(disks),
        "disks_active": instance.admin_state is AdminState.UP,
    }
    if instance.network_port is not None:
        found["network_port"] = instance.network_port
    return found, disks


def _written_nic(nic: Nic, group: NodeGroup | None) -> Document:
    found: Document = {"uuid": nic.uuid, "mac": nic.mac, "nicparams": dict(nic.nicparams)}
    for name in ("ip", "name", "network"):
        if (value := getattr(nic, name)) is not None:
            found[name] = value
    if nic.network is not None and group is not None:
        found["nicparams"] = written_connection(group.networks.get(nic.network, {}))
    return found
