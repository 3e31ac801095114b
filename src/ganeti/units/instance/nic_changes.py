"""Additions, changes and removals of an instance's NICs, in the configuration."""

from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import InputError
from ganeti.config.fill import filled_nicparams
from ganeti.config.resolve import resolve_network
from ganeti.model.applies import Applies, of_nic
from ganeti.model.limits import MAX_NICS
from ganeti.model.objects import Network, Nic
from ganeti.model.opcodes.base import NicRequest
from ganeti.model.params import NIC_PARAMS, Params
from ganeti.units.context import UnitContext
from ganeti.units.instance.device_changes import (
    DeviceChange,
    check_device_names,
    insert_position,
    only_known,
    position_of,
    text_or_none,
)
from ganeti.units.instance.field_changes import FieldChange
from ganeti.units.instance.requests import (
    build_nic,
    check_nics,
    check_routed,
    is_from_pool,
    nic_params,
)

GENERATED = ("auto", "generate")
_KEYS = ("mac", "ip", "mode", "link", "vlan", "name", "network")
Results = list[FieldChange]


def new_nic(ctx: UnitContext, request: NicRequest, index: int) -> Nic:
    """A NIC with addresses that are reserved for it (F24)."""
    network = resolve_network(ctx.snapshot, request.network) if request.network else None
    mac = _reserved_mac(ctx, request.mac, network)
    nic = build_nic(request, mac, ctx.ids, network)
    return _reserved(ctx, nic, index, from_pool=is_from_pool(request))


def changed_nics(
    ctx: UnitContext, nics: tuple[Nic, ...], changes: list[DeviceChange]
) -> tuple[tuple[Nic, ...], Results]:
    """Apply all changes in turn; return the NICs and the changes."""
    left, results = list(nics), Results()
    for number, change in enumerate(changes):
        field = f"nics[{number}]"
        if change.action == "add":
            at = insert_position(len(left), change.identifier, field)
            nic = new_nic(ctx, _request(change.params, field), at)
            left.insert(at, nic)
            added = f"add:{_described(ctx, nic)}"
            results.append(FieldChange(f"nic.{at}", "", added, Applies.BY_HOTPLUG))
        elif change.action == "remove":
            at = position_of(left, change.identifier, field)
            del left[at]
            results.append(FieldChange(f"nic.{at}", "", "remove", Applies.BY_HOTPLUG))
        else:
            at = position_of(left, change.identifier, field)
            left[at], done = _modified(ctx, left[at], change.params, at, field)
            results += done
    if len(left) > MAX_NICS:
        raise InputError(f"{len(left)} network interfaces: at most {MAX_NICS} are possible", "nics")
    check_device_names((nic.name for nic in left), "nics", (nic.name for nic in nics))
    return tuple(left), results


def check_new_nics(changes: list[DeviceChange]) -> None:
    """Refuse new interfaces that are wrong in any cluster."""
    for number, change in enumerate(changes):
        if change.action == "add":
            _request(change.params, f"nics[{number}]")


def _request(params: Params, field: str) -> NicRequest:
    only_known(params, _KEYS, field)
    given = {name: text_or_none(value, f"{field}.{name}") for name, value in params.items()}
    given["mac"] = given.get("mac") or "auto"
    request = NicRequest(**{name: value for name, value in given.items() if value is not None})
    check_nics([request])
    return request


def _modified(
    ctx: UnitContext, nic: Nic, params: Params, at: int, field: str
) -> tuple[Nic, Results]:
    """Return a NIC with some changes; `default` resets mode, link and VLAN to the cluster's.

    In a different network it has no parameters of its own, and keeps its address if that is part
    of the network.
    """
    own = [name for name in ("mode", "link", "vlan") if params.get(name) in (None, "default")]
    asked = {name: value for name, value in params.items() if name not in own}
    if nic.network is not None:
        asked.setdefault("network", nic.network)
    request = _request(asked, field)
    network = resolve_network(ctx.snapshot, request.network) if request.network else None
    changed, results = replace(nic, network=network.uuid if network else None), Results()
    nicparams = {} if network else dict(nic.nicparams)
    for name in (name for name in _KEYS if name in params):
        value: Any = getattr(request, name)
        if name == "network":
            value = network.name if network else None
        elif name in own:
            nicparams.pop(name, None)
            value = "default"
        elif name in NIC_PARAMS:
            value = nicparams[name] = _own_param(request, name, field)
        else:
            changed = _with_value(ctx, changed, request, name, network)
            value = getattr(changed, name)
        results.append(FieldChange(f"nic.{name}", str(at), value, of_nic(name)))
    changed = replace(changed, nicparams=nicparams)
    if not is_from_pool(request) and _place(ctx, changed) != _place(ctx, nic):
        changed = _reserved(ctx, changed, at)
    if network is None:
        check_routed(changed, filled_nicparams(ctx.snapshot.cluster, changed), at)
    return changed, results


def _with_value(
    ctx: UnitContext, nic: Nic, request: NicRequest, name: str, network: Network | None
) -> Nic:
    """Return the NIC with another MAC address, IP address or name."""
    if name == "mac":
        is_new = request.mac.lower() != nic.mac
        return replace(nic, mac=_reserved_mac(ctx, request.mac, network)) if is_new else nic
    if name == "ip":
        nic = replace(nic, ip=None if is_from_pool(request) else request.ip)
        return _with_address(ctx, nic, network) if is_from_pool(request) else nic
    return replace(nic, name=request.name)


def _place(ctx: UnitContext, nic: Nic) -> tuple[str | None, str]:
    """Return the address and its scope: in a network, or on a link."""
    return nic.ip, nic.network or filled_nicparams(ctx.snapshot.cluster, nic)["link"]


def _own_param(request: NicRequest, name: str, field: str) -> str:
    """Return the NIC's own parameters: an empty VLAN means no VLAN; other parameters cannot be empty."""
    value: str | None = nic_params(request).get(name)
    if value is None and name != "vlan":
        raise InputError("cannot be empty; 'default' resets it to the cluster's", f"{field}.{name}")
    return value or ""


def _reserved_mac(ctx: UnitContext, mac: str, network: Network | None) -> str:
    if mac in GENERATED:
        return ctx.config.reservations.new_mac(ctx.job_id, ctx.snapshot, network)
    return ctx.config.reservations.take_mac(ctx.job_id, mac, ctx.snapshot)


def _reserved(ctx: UnitContext, nic: Nic, index: int, *, from_pool: bool = False) -> Nic:
    """Return the NIC after its IP address is reserved in its network, or on its link."""
    if nic.network is not None:
        network = ctx.snapshot.networks[nic.network]
        return _with_address(ctx, nic, network if from_pool or nic.ip else None)
    filled = filled_nicparams(ctx.snapshot.cluster, nic)
    check_routed(nic, filled, index)
    if nic.ip:
        ctx.config.reservations.take_ip(ctx.job_id, nic.ip, filled["link"], ctx.snapshot)
    return nic


def _with_address(ctx: UnitContext, nic: Nic, network: Network | None) -> Nic:
    """Return the NIC with its address, or any free one, in the network; unchanged without a network."""
    reservations = ctx.config.reservations
    if network is None:
        return nic
    if nic.ip is None:
        return replace(nic, ip=reservations.new_address(ctx.job_id, network, ctx.snapshot))
    reservations.take_address(ctx.job_id, network, nic.ip, ctx.snapshot)
    return nic


def _described(ctx: UnitContext, nic: Nic) -> str:
    start = f"mac={nic.mac},ip={nic.ip}"
    if nic.network is not None:
        return f"{start},network={ctx.snapshot.networks[nic.network].name}"
    filled = filled_nicparams(ctx.snapshot.cluster, nic)
    return f"{start},mode={filled['mode']},link={filled['link']}"
