"""Checks of a request for a new or changed instance, pure, and the objects that result."""

from collections.abc import Sequence
from ipaddress import ip_address

from ganeti.base.errors import InputError
from ganeti.base.identifiers import mac_address, plain_name, tag_text
from ganeti.base.ids import IdSource
from ganeti.base.sizes import format_mib
from ganeti.layouts.planner import Names, NewDisk, Planner, Site
from ganeti.model.disk_params import check_disk_params
from ganeti.model.disk_templates import DISK_TEMPLATES, DiskTemplate
from ganeti.model.limits import MAX_DISK_MIB, MAX_DISKS, MAX_NICS
from ganeti.model.objects import Cluster, Disk, Network, Nic
from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.model.param import check_params
from ganeti.model.param_checks import changed
from ganeti.model.params import NIC_PARAMS, Params
from ganeti.units.instance.device_changes import check_device_names

POOL = "pool"
"""Stands for any free address in the network."""
SOURCE_LIMIT = 1023
"""Characters of the name of an adopted volume or device."""


def check_tags(tags: Sequence[str]) -> None:
    """Refuse what cannot be a tag."""
    for tag in tags:
        tag_text(tag, "tags")


def check_template(name: str | None, cluster: Cluster) -> DiskTemplate:
    """Return the disk template, if this cluster has it; None stands for the cluster's first."""
    chosen = name or cluster.enabled_disk_templates[0]
    if chosen not in cluster.enabled_disk_templates:
        enabled = ", ".join(cluster.enabled_disk_templates)
        raise InputError(
            f"{chosen!r:.40} is not enabled in this cluster; enabled: {enabled}", "disk_template"
        )
    return DISK_TEMPLATES[chosen]


def check_disks(disks: Sequence[DiskRequest], template: DiskTemplate | None) -> None:
    """Refuse disks that no template, or not this one, supports."""
    if len(disks) > MAX_DISKS:
        raise InputError(f"{len(disks)} disks: at most {MAX_DISKS} are possible", "disks")
    for index, disk in enumerate(disks):
        where = f"disks[{index}]"
        if disk.adopt is None and not 1 <= disk.size <= MAX_DISK_MIB:
            raise InputError(
                f"a disk of {disk.size} MiB is not possible: the size must be 1 MiB to {format_mib(MAX_DISK_MIB)}",
                f"{where}.size",
            )
        if disk.mode not in ("rw", "ro", "w", "r", "W", "R"):
            raise InputError("must be rw or ro", f"{where}.mode")
        if disk.name is not None:
            plain_name(disk.name, f"{where}.name")
        if template is not None:
            check_disk_params(template.name, disk.all_params, f"{where}.params", of_disk=True)
            check_adoption(disk, template, where)
    check_device_names((disk.name for disk in disks), "disks")
    if template is not None:
        if template.has_disks and not disks:
            raise InputError(
                f"template {template.name} needs at least one disk (--disk 0:size=SIZE)", "disks"
            )
        if disks and not template.has_disks:
            raise InputError(f"template {template.name} has no disks", "disks")


def check_adoption(disk: DiskRequest, template: DiskTemplate, field: str) -> None:
    """Refuse an adoption that this template does not support; InputError names the field."""
    if disk.adopt is None:
        if template.only_adopts:
            raise InputError(
                f"disks of template {template.name} are existing devices: pass adopt=PATH",
                f"{field}.adopt",
            )
        return
    if not template.adopts:
        raise InputError(f"template {template.name} does not support adoption", f"{field}.adopt")
    if not 1 <= len(disk.adopt) <= SOURCE_LIMIT or not disk.adopt.isprintable():
        raise InputError("must be the name of a volume or device", f"{field}.adopt")
    if disk.size:
        raise InputError("must be omitted: the adopted disk has its size already", f"{field}.size")


def disk_mode(text: str) -> str:
    """Return the stored form of a checked access mode."""
    return "ro" if text.lower() in ("r", "ro") else "rw"


def check_nics(nics: Sequence[NicRequest]) -> None:
    """Refuse network interfaces that are wrong in any cluster."""
    if len(nics) > MAX_NICS:
        raise InputError(f"{len(nics)} network interfaces: at most {MAX_NICS} are possible", "nics")
    for index, nic in enumerate(nics):
        where = f"nics[{index}]"
        if nic.mac not in ("auto", "generate"):
            mac_address(nic.mac, f"{where}.mac")
        if nic.ip is not None and not is_from_pool(nic):
            check_address(nic.ip, f"{where}.ip")
        own = [name for name in NIC_PARAMS if getattr(nic, name) is not None]
        if nic.network is not None and own:
            raise InputError(
                "cannot be combined with a network, whose group connection sets it (gnt-network connect)",
                f"{where}.{own[0]}",
            )
        check_params(NIC_PARAMS, _params_of(nic), where, "NIC")
        if nic.name is not None:
            plain_name(nic.name, f"{where}.name")
    check_device_names((nic.name for nic in nics), "nics")
    _check_distinct("mac", [nic.mac.lower() for nic in nics])
    _check_distinct(
        "ip",
        [
            nic.ip and f"{nic.ip} on {nic.network or nic.link or 'the default link'}"
            for nic in nics
            if not is_from_pool(nic)
        ],
    )


def is_from_pool(nic: NicRequest) -> bool:
    """Return whether the interface requests any free address of its network."""
    return nic.ip == POOL and nic.network is not None


def _check_distinct(what: str, values: Sequence[str | None]) -> None:
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in ("auto", "generate") or not value:
            continue
        if value in seen:
            raise InputError(f"{value} occurs twice", f"nics[{index}].{what}")
        seen.add(value)


def check_address(text: str, field: str) -> None:
    """Refuse an invalid IP address."""
    if text == POOL:
        raise InputError("an address from a pool needs a network (network=NAME)", field)
    try:
        ip_address(text)
    except ValueError as err:
        raise InputError(f"{text!r:.60} is not an IP address", field) from err


def nic_params(nic: NicRequest) -> Params:
    """Return the interface's parameters that differ from the cluster's defaults."""
    return changed({}, check_params(NIC_PARAMS, _params_of(nic), "nics", "NIC"))


def _params_of(nic: NicRequest) -> Params:
    return {name: getattr(nic, name) for name in NIC_PARAMS}


def build_nic(nic: NicRequest, mac: str, ids: IdSource, network: Network | None = None) -> Nic:
    """Return the interface for a checked request and a reserved MAC address; without an address from a pool."""
    return Nic(
        uuid=ids.uuid(),
        mac=mac,
        ip=None if is_from_pool(nic) else nic.ip,
        name=nic.name,
        network=network.uuid if network else None,
        nicparams=nic_params(nic),
    )


def check_routed(nic: Nic, filled: Params, index: int) -> None:
    """Refuse a routed interface without an address: nothing could be routed to it (S81)."""
    if filled["mode"] == "routed" and nic.ip is None:
        raise InputError("a routed network interface needs an IP address", f"nics[{index}].ip")


def build_disk(request: DiskRequest, planner: Planner, site: Site, names: Names) -> Disk:
    """Return the disk for a checked request, on no node yet."""
    new = NewDisk(
        size=request.size,
        mode=disk_mode(request.mode),
        name=request.name,
        params=_own_params(request, planner.template),
        adopt=request.adopt,
    )
    return planner.new_disk(new, site, names)


def _own_params(request: DiskRequest, template: DiskTemplate) -> Params:
    checked = check_disk_params(template.name, request.all_params, "disks", of_disk=True)
    return {name: value for name, value in checked.items() if value is not None}
