"""Adding, changing and removing the NICs of an instance, in the configuration."""

from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import InputError
from ganeti.config.fill import filled_nicparams
from ganeti.model.objects import Nic
from ganeti.model.opcodes.base import NicRequest
from ganeti.model.params import Params
from ganeti.units.context import UnitContext
from ganeti.units.instance.device_changes import (
    DeviceChange,
    insert_position,
    only_known,
    position_of,
    text_or_none,
)
from ganeti.units.instance.field_changes import Applies, FieldChange
from ganeti.units.instance.requests import MAX_NICS, build_nic, check_nics, check_routed, nic_params

GENERATED = ("auto", "generate")
_KEYS = ("mac", "ip", "mode", "link", "vlan", "name")
Results = list[FieldChange]


def new_nic(ctx: UnitContext, request: NicRequest, index: int) -> Nic:
    """A NIC with addresses that nobody else has or gets (F24)."""
    nic = build_nic(request, _reserved_mac(ctx, request.mac), ctx.ids)
    return _reserved(ctx, nic, index)


def changed_nics(
    ctx: UnitContext, nics: tuple[Nic, ...], changes: list[DeviceChange]
) -> tuple[tuple[Nic, ...], Results]:
    """The NICs after all changes in turn, and what was changed."""
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
    return tuple(left), results


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
    """A NIC with some things changed; `default` takes mode, link and VLAN from the cluster again."""
    own = [name for name in ("mode", "link", "vlan") if params.get(name) in (None, "default")]
    request = _request({name: value for name, value in params.items() if name not in own}, field)
    changed, results = nic, Results()
    nicparams = dict(nic.nicparams)
    for name in (name for name in _KEYS if name in params):
        value: Any = getattr(request, name)
        if name == "mac":
            is_new = value.lower() != nic.mac
            value = _reserved_mac(ctx, value) if is_new else nic.mac
            changed = replace(changed, mac=value)
        elif name == "ip":
            changed = replace(changed, ip=value)
        elif name == "name":
            changed = replace(changed, name=value)
        elif name in own:
            nicparams.pop(name, None)
            value = "default"
        else:
            value = nicparams[name] = _own_param(request, name, field)
        applies = Applies.NOW if name == "name" else Applies.BY_HOTPLUG
        results.append(FieldChange(f"nic.{name}", str(at), value, applies))
    changed = replace(changed, nicparams=nicparams)
    link = filled_nicparams(ctx.snapshot.cluster, nic)["link"]
    if (changed.ip, filled_nicparams(ctx.snapshot.cluster, changed)["link"]) != (nic.ip, link):
        changed = _reserved(ctx, changed, at)
    check_routed(changed, filled_nicparams(ctx.snapshot.cluster, changed), at)
    return changed, results


def _own_param(request: NicRequest, name: str, field: str) -> str:
    """What a NIC sets itself: an empty VLAN is none, whatever the cluster's is; others cannot be empty."""
    value: str | None = nic_params(request).get(name)
    if value is None and name != "vlan":
        raise InputError("cannot be empty; 'default' takes the cluster's", f"{field}.{name}")
    return value or ""


def _reserved_mac(ctx: UnitContext, mac: str) -> str:
    if mac in GENERATED:
        return ctx.config.reservations.new_mac(ctx.job_id, ctx.snapshot)
    return ctx.config.reservations.take_mac(ctx.job_id, mac, ctx.snapshot)


def _reserved(ctx: UnitContext, nic: Nic, index: int) -> Nic:
    """The NIC, once its IP address is reserved on its link."""
    filled = filled_nicparams(ctx.snapshot.cluster, nic)
    check_routed(nic, filled, index)
    if nic.ip:
        ctx.config.reservations.take_ip(ctx.job_id, nic.ip, filled["link"], ctx.snapshot)
    return nic


def _described(ctx: UnitContext, nic: Nic) -> str:
    filled = filled_nicparams(ctx.snapshot.cluster, nic)
    return f"mac={nic.mac},ip={nic.ip},mode={filled['mode']},link={filled['link']}"
