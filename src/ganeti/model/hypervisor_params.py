"""Hypervisor parameters, each declared once: type, default, check, and scope."""

from collections.abc import Mapping
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.suggestions import did_you_mean
from ganeti.model.hypervisor_param import HypervisorParam
from ganeti.model.hypervisors import HYPERVISORS
from ganeti.model.param import checked_value, defaults
from ganeti.model.params import Params

ONLY_GLOBAL = "can only be set for the whole cluster"

HYPERVISOR_PARAMS: dict[str, Mapping[str, HypervisorParam]] = {
    name: {param.name: param for param in row.params} for name, row in HYPERVISORS.items()
}


def has_display(hypervisor: str) -> bool:
    """Return whether its instances may have a display in the network, for which each has a port."""
    return "vnc_bind_address" in HYPERVISOR_PARAMS.get(hypervisor, {})


def wants_display(hvparams: Mapping[str, Any]) -> bool:
    """Return whether an instance with these (complete) parameters has a display on a port."""
    vnc = str(hvparams.get("vnc_bind_address", ""))
    return bool(hvparams.get("spice_bind")) or bool(vnc and not vnc.startswith("/"))


def hypervisor_defaults(hypervisor: str) -> Params:
    """Return the default values of a hypervisor's parameters."""
    return defaults(HYPERVISOR_PARAMS[hypervisor])


def check_hypervisor_params(
    hypervisor: str, params: Mapping[str, Any], *, of_instance: bool, field: str
) -> Params:
    """Return `params` with values in their types (text such as `true` and `12` is converted); else InputError."""
    known = HYPERVISOR_PARAMS.get(hypervisor)
    if known is None:
        raise InputError(
            f"{hypervisor!r:.40} is not a hypervisor{did_you_mean(hypervisor, HYPERVISOR_PARAMS)};"
            f" known: {', '.join(HYPERVISOR_PARAMS)}",
            field,
        )
    return {
        name: _checked(
            hypervisor, known.get(name), name, value, of_instance=of_instance, field=field
        )
        for name, value in params.items()
    }


def check_not_global(hypervisor: str, params: Mapping[str, Any], field: str) -> None:
    """Refuse parameters of one layer that only the whole cluster can have; None, which removes one, is allowed."""
    known = HYPERVISOR_PARAMS.get(hypervisor, {})
    for name, value in params.items():
        if value is not None and name in known and known[name].is_global:
            raise InputError(ONLY_GLOBAL, f"{field}.{name}")


def unknown_hypervisor_param(hypervisor: str, name: str, field: str) -> InputError:
    """Return the error for a parameter that a hypervisor does not have."""
    known = HYPERVISOR_PARAMS[hypervisor]
    close = did_you_mean(name, known) or f"; it has {', '.join(sorted(known))}"
    return InputError(f"hypervisor {hypervisor} has no such parameter{close}", field)


def _checked(
    hypervisor: str,
    param: HypervisorParam | None,
    name: str,
    value: Any,
    *,
    of_instance: bool,
    field: str,
) -> bool | int | str:
    where = f"{field}.{name}" if field else name
    if param is None:
        raise unknown_hypervisor_param(hypervisor, name, where)
    if of_instance and param.is_global:
        raise InputError(ONLY_GLOBAL, where)
    typed: bool | int | str = checked_value(param, value, where)
    return typed
