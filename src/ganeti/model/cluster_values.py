"""Values of the cluster's parameters: the allowed ones, and the results of changes. Pure.

A check gets the value of a request and the parameter's name; a change gets the old value as well and
returns the new one. InputError names what is wrong.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from ipaddress import IPV6LENGTH
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.identifiers import (
    interface_name,
    is_absolute_path,
    os_name,
    plain_name,
    volume_name,
)
from ganeti.model.disk_params import check_disk_params
from ganeti.model.disk_templates import DISK_TEMPLATES, DRBD_HELPERS_OFF
from ganeti.model.hypervisor_params import (
    HYPERVISOR_PARAMS,
    check_hypervisor_params,
    check_not_global,
    unknown_hypervisor_param,
)
from ganeti.model.param import check_params
from ganeti.model.param_checks import (
    changed,
    check_backend_params,
    check_node_params,
    check_os_params,
)
from ganeti.model.params import BACKEND_DEFAULTS, IPOLICY_DEFAULTS, NIC_PARAMS, Params, layered

DEFAULT = "default"
"""The name under which a cluster stores its own layer of backend and NIC parameters."""
ADD, REMOVE = "add", "remove"
"""The actions of a change of a list of OS definitions."""

Check = Callable[[Any, str], object]
Change = Callable[[Any, Any, str], Any]

_OPTION_NAME = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_MAC_PREFIX = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}:[0-9a-f]{2}", re.ASCII)


def replaced(_old: Any, given: Any, _name: str) -> Any:
    """Return the new value."""
    return given


def merged(old: Params, given: Params, _name: str) -> Params:
    """Return the old values with the new ones; None removes one."""
    return changed(old, given)


def as_tuple(_old: Any, given: Sequence[str], _name: str) -> tuple[str, ...]:
    """Return the words in their order, each once."""
    return tuple(dict.fromkeys(given))


def as_set(_old: Any, given: Iterable[str], _name: str) -> tuple[str, ...]:
    """Return the words in alphabetical order, each once."""
    return tuple(sorted(set(given)))


def one_of(known: Collection[str]) -> Check:
    """Return some of the known names, at least one."""

    def check(chosen: Sequence[str], name: str) -> None:
        if not chosen:
            raise InputError("must name at least one", name)
        for word in chosen:
            if word not in known:
                raise InputError(f"{word!r:.60} is unknown; known: {', '.join(known)}", name)

    return check


def check_helper(given: str, name: str) -> None:
    """Require a helper of DRBD that decides nothing: only administrators resolve split brains."""
    if given not in DRBD_HELPERS_OFF:
        raise InputError(
            f"must be one that does nothing: {', '.join(DRBD_HELPERS_OFF)}; another would decide about"
            " copies on its own",
            name,
        )


def at_most(most: int) -> Check:
    """Require a number from 1."""

    def check(value: int, name: str) -> None:
        if not 1 <= value <= most:
            raise InputError(f"must be from 1 to {most}", name)

    return check


def check_netmask(given: int, field: str) -> None:
    """Require the length of a netmask, of either family."""
    if not 1 <= given <= IPV6LENGTH:
        raise InputError(f"must be from 1 to {IPV6LENGTH}", field)


def check_mac_prefix(prefix: str, name: str) -> None:
    """Require the first half of MAC addresses of single hosts."""
    if not _MAC_PREFIX.fullmatch(prefix) or int(prefix[:2], 16) & 1:
        raise InputError(
            f"{prefix!r:.40} is not three bytes of a unicast MAC address, for example aa:00:00",
            name,
        )


def check_device(device: str, name: str) -> None:
    """Require the name of a network interface, or nothing."""
    if device:
        interface_name(device, name)


def check_directory(path: str, name: str) -> None:
    """Require an absolute path, or nothing."""
    if path and (not is_absolute_path(path) or not path.strip("/") or "#" in path):
        raise InputError(f"{path!r:.200} is not an absolute path without '..' and '#'", name)


def check_volume_group(name: str, field: str) -> None:
    """Require the name of a volume group, or nothing."""
    if name:
        volume_name(name, field)


def check_patterns(patterns: Sequence[str], field: str) -> None:
    """Require regular expressions."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as err:
            raise InputError(f"{pattern!r:.80} is not a regular expression: {err}", field) from err


def check_allocator_options(params: Params, field: str) -> None:
    """Require options that a command line of an allocator can have."""
    for name, value in params.items():
        where = f"{field}.{name:.40}"
        if not _OPTION_NAME.fullmatch(name):
            raise InputError("is not the name of an option, without dashes", where)
        if value is not None and (
            not isinstance(value, str | int | float) or not str(value).isprintable()
        ):
            raise InputError("must be a word, a number or true", where)


def check_remote(names: Sequence[str], field: str) -> None:
    """Require names of hypervisor parameters that reach the host."""
    of_host = {
        name
        for params in HYPERVISOR_PARAMS.values()
        for name, param in params.items()
        if param.touches_host
    }
    for name in names:
        if name not in of_host:
            raise InputError(
                f"{name!r:.60} is not a parameter that reaches the host; these are:"
                f" {', '.join(sorted(of_host))}",
                field,
            )


def changed_hvparams(
    old: Mapping[str, Params], given: Mapping[str, Params], field: str
) -> dict[str, Params]:
    """Hypervisor -> its parameters."""
    new = dict(old)
    for hypervisor, params in given.items():
        values = {name: value for name, value in params.items() if value is not None}
        where = f"{field}.{hypervisor}"
        checked = check_hypervisor_params(hypervisor, values, of_instance=False, field=where)
        known = HYPERVISOR_PARAMS[hypervisor]
        for name in params:
            if name not in known:
                raise unknown_hypervisor_param(hypervisor, name, f"{where}.{name}")
        new[hypervisor] = changed(new.get(hypervisor, {}), {**params, **checked})
    return {hypervisor: params for hypervisor, params in new.items() if params}


def changed_os_hvp(
    old: Mapping[str, dict[str, Params]], given: Mapping[str, Mapping[str, Params]], field: str
) -> dict[str, dict[str, Params]]:
    """OS -> hypervisor -> its parameters."""
    new = dict(old)
    for os, params in given.items():
        name = os_name(os, field)
        for hypervisor, values in params.items():
            check_not_global(hypervisor, values, f"{field}.{name}.{hypervisor}")
        new[name] = changed_hvparams(new.get(name, {}), params, f"{field}.{name}")
    return {os: params for os, params in new.items() if params}


def changed_osparams(
    old: Mapping[str, dict[str, str]], given: Mapping[str, Params], field: str
) -> dict[str, dict[str, str]]:
    """OS -> its parameters."""
    new = dict(old)
    for os, params in given.items():
        name = os_name(os, field)
        texts = {key: str(value) for key, value in params.items() if value is not None}
        check_os_params(texts, f"{field}.{name}")
        new[name] = changed(new.get(name, {}), {**params, **texts})
    return {os: params for os, params in new.items() if params}


def changed_os_list(
    old: Iterable[str], changes: Sequence[tuple[str, str]], field: str
) -> tuple[str, ...]:
    """Return names of OS definitions; the changes are pairs of `add` or `remove` and a name, in order.

    Adding an existing name, or removing a missing one, changes nothing.
    """
    names = set(old)
    for action, name in changes:
        if "+" in name:
            raise InputError(
                f"{name!r:.80} names a variant; an OS is hidden or blacklisted with all its variants",
                field,
            )
        plain_name(name, field)
        if action not in (ADD, REMOVE):
            raise InputError(f"{action!r:.40} must be {ADD} or {REMOVE}", field)
        if action == ADD:
            names.add(name)
        else:
            names.discard(name)
    return tuple(sorted(names))


def changed_beparams(old: Mapping[str, Params], given: Params, field: str) -> dict[str, Params]:
    """Return the cluster's layer of backend parameters."""
    new = changed(old.get(DEFAULT, {}), check_backend_params(given, field))
    filled = layered(BACKEND_DEFAULTS, new)
    if filled["minmem"] > filled["maxmem"]:
        raise InputError(
            f"{filled['minmem']} MiB is more than maxmem, {filled['maxmem']} MiB",
            f"{field}.minmem",
        )
    return {**old, DEFAULT: new}


def changed_nicparams(old: Mapping[str, Params], given: Params, field: str) -> dict[str, Params]:
    """Return the cluster's layer of NIC parameters."""
    checked = check_params(NIC_PARAMS, given, field, "NIC")
    return {**old, DEFAULT: changed(old.get(DEFAULT, {}), checked)}


def changed_diskparams(
    old: Mapping[str, Params], given: Mapping[str, Params], field: str
) -> dict[str, Params]:
    """Disk template -> its parameters."""
    new = dict(old)
    for template, params in given.items():
        checked = check_disk_params(template, params, f"{field}.{template}")
        new[template] = changed(new.get(template, {}), checked)
    return {template: params for template, params in new.items() if params}


def changed_ndparams(old: Params, given: Params, _field: str) -> Params:
    """Return node parameters."""
    return changed(old, check_node_params(given))


def changed_policy(
    old: Params, given: Params, field: str = "ipolicy", *, of_group: bool = False
) -> Params:
    """Return an instance policy; it must not contradict itself. Of `std` only the given parts change.

    The cluster's standard instance may be outside the bounds of a group that has none of its own.
    """
    for name in given:
        if name not in IPOLICY_DEFAULTS:
            known = ", ".join(IPOLICY_DEFAULTS)
            raise InputError(f"is not a part of a policy; known: {known}", f"{field}.{name}")
    new = changed(old, given)
    if isinstance(new.get("std"), dict):
        new["std"] = {**IPOLICY_DEFAULTS["std"], **(old.get("std") or {}), **new["std"]}
    filled = layered(IPOLICY_DEFAULTS, new)
    for name in ("vcpu-ratio", "spindle-ratio"):
        ratio = filled[name]
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or ratio < 1:
            raise InputError("must be a number of at least 1", f"{field}.{name}")
    templates = filled["disk-templates"]
    if not isinstance(templates, list) or not templates or set(templates) - set(DISK_TEMPLATES):
        raise InputError(
            f"must be a list of {', '.join(DISK_TEMPLATES)}", f"{field}.disk-templates"
        )
    _check_bounds(filled["minmax"], (new if of_group else filled).get("std"), field)
    return new


def _check_bounds(minmax: Any, std: Any, field: str) -> None:
    names = list(IPOLICY_DEFAULTS["std"])
    if std is not None:
        _check_spec(std, names, f"{field}.std")
    if not isinstance(minmax, list) or not minmax:
        raise InputError("must be a list of pairs of min and max", f"{field}.minmax")
    for index, pair in enumerate(minmax):
        where = f"{field}.minmax[{index}]"
        if not isinstance(pair, dict) or set(pair) != {"min", "max"}:
            raise InputError("must have min and max, and nothing else", where)
        for end in ("min", "max"):
            _check_spec(pair[end], names, f"{where}.{end}")
        for name in names:
            if pair["min"][name] > pair["max"][name]:
                raise InputError("is greater than the maximum", f"{where}.min.{name}")
    if std is not None and not any(
        all(pair["min"][name] <= std[name] <= pair["max"][name] for name in names)
        for pair in minmax
    ):
        raise InputError("is outside all bounds", f"{field}.std")


def _check_spec(spec: Any, names: Sequence[str], field: str) -> None:
    if not isinstance(spec, dict) or set(spec) != set(names):
        raise InputError(f"must have exactly {', '.join(names)}", field)
    for name, value in spec.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError("must be a whole number, not negative", f"{field}.{name}")
