"""Checks of parameters that several faces accept: pure, and the same for all of them."""

import re
from collections.abc import Mapping
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.sizes import parse_mib
from ganeti.model.hypervisor_params import typed_value
from ganeti.model.params import BACKEND_DEFAULTS, NODE_DEFAULTS, Params

NIC_MODES = {
    "bridged": "bridged",
    "bridge": "bridged",
    "routed": "routed",
    "route": "routed",
    "openvswitch": "openvswitch",
    "ovs": "openvswitch",
}
"""What may be written for a NIC mode -> how it is stored and shown (X17)."""
_VLAN = re.compile(r"(\.?[0-9]{1,4})?(:[0-9]{1,4})*", re.ASCII)
LAST_VLAN = 4094
_OS_PARAM = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)


def check_backend_params(params: Mapping[str, Any], field: str) -> Params:
    """Backend parameters with values in their types; `memory` sets both its bounds, sizes may have units."""
    checked: Params = {}
    for name, value in params.items():
        where = f"{field}.{name}"
        if name in ("memory", "maxmem", "minmem"):
            size = (
                parse_mib(value, where) if isinstance(value, str) else typed_value(value, 0, where)
            )
            if size < 1:
                raise InputError("must be at least 1 MiB", where)
            for key in ("minmem", "maxmem") if name == "memory" else (name,):
                checked[key] = size
        elif name in BACKEND_DEFAULTS:
            checked[name] = typed_value(value, BACKEND_DEFAULTS[name], where)
            if name in ("vcpus", "spindle_use") and checked[name] < 1:
                raise InputError("must be at least 1", where)
        else:
            raise InputError(
                f"no such backend parameter; known: memory, {', '.join(BACKEND_DEFAULTS)}", where
            )
    return checked


def check_vlan(text: str, field: str) -> str:
    """`10` or `.10` (untagged), `:20:30` (tagged) or `.10:20:30`, as `.10:20:30`; '' is none."""
    is_form = _VLAN.fullmatch(text) is not None
    if not is_form or any(
        not 1 <= int(part) <= LAST_VLAN for part in re.split("[.:]", text) if part
    ):
        raise InputError(
            f"{text!r:.40} is not a VLAN: .N (untagged), :N:N (tagged) or .N:N, from 1 to {LAST_VLAN}",
            field,
        )
    return f".{text}" if text[:1].isdecimal() else text


def check_os_params(params: Mapping[str, str], field: str) -> None:
    """Refuse what could not be handed to OS scripts as environment variables."""
    for name, value in params.items():
        if not _OS_PARAM.fullmatch(name):
            raise InputError(
                "not the name of a parameter: lower-case letters, digits and '_', at most 64",
                f"{field}[{name!r:.80}]",
            )
        if any(character in value for character in "\0\n\r"):
            raise InputError("must be one line of text", f"{field}.{name}")


def check_node_params(given: Mapping[str, Any]) -> Params:
    """Node parameters with values in their types, None among them; unknown ones are refused."""
    for name in given:
        if name not in NODE_DEFAULTS:
            known = ", ".join(NODE_DEFAULTS)
            raise InputError(f"no such node parameter; known: {known}", f"ndparams.{name}")
    return {
        name: None if value is None else typed_value(value, NODE_DEFAULTS[name], f"ndparams.{name}")
        for name, value in given.items()
    }


def changed(params: Params, changes: Mapping[str, Any]) -> Params:
    """Parameters after a change; None takes one away, so that the layer below counts again."""
    together = {**params, **changes}
    return {name: value for name, value in together.items() if value is not None}
