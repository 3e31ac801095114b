"""The objects to which one request refers, from the declarations of its fields (`RefersTo`)."""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from ganeti.base.errors import InputError
from ganeti.model.disk_params import is_plain_disk_param
from ganeti.model.fields import RefersTo, declared_references
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.iallocator import parse_defaults
from ganeti.model.image_source import STORED_IMAGE
from ganeti.model.opcodes.base import DiskRequest, NicRequest


class Reference(NamedTuple):
    """One object to which a request refers, and the referring field."""

    field: str
    kind: RefersTo
    value: Any
    """A text, or the number of a job."""


_TAGGED = {
    "instance": RefersTo.INSTANCE,
    "node": RefersTo.NODE,
    "nodegroup": RefersTo.GROUP,
    "network": RefersTo.NETWORK,
}
_OF_DISK = {
    **dict.fromkeys(DiskRequest.__struct_fields__, RefersTo.NOTHING),
    **declared_references(DiskRequest),
}
_OF_NIC = declared_references(NicRequest)
_ONLY_RECORDED = ("no_install", "force")
"""Flags of requests whose OS is only recorded: no script of it runs, and no node needs it."""
_DEFAULTS = (None, "", "none", "default")
_PATH_STARTS = ("/", "~", "./", "../", "file:")
_HOST_PARAMS = frozenset(
    name
    for params in HYPERVISOR_PARAMS.values()
    for name, param in params.items()
    if param.touches_host and not isinstance(param.default, bool)
)


def references(request: msgspec.Struct, where: str = "") -> Iterator[Reference]:
    """Return every object to which a request refers, including nested requests."""
    kinds = declared_references(type(request))
    for name in request.__struct_fields__:
        value, field = getattr(request, name), f"{where}{name}"
        if name in kinds:
            yield from _read(kinds[name], value, field, request)
        for number, one in enumerate(value if isinstance(value, list) else ()):
            if isinstance(one, msgspec.Struct):
                yield from references(one, f"{field}[{number}].")


def _read(kind: RefersTo, value: Any, field: str, request: msgspec.Struct) -> Iterator[Reference]:
    if not value or kind is RefersTo.NOTHING:
        return
    if kind is RefersTo.OS and any(getattr(request, name, False) for name in _ONLY_RECORDED):
        return
    if kind is RefersTo.TAGGED:
        kind = _TAGGED.get(str(getattr(request, "kind", "")), RefersTo.CLUSTER)
    if kind in _COMPOSED:
        yield from _COMPOSED[kind](value, field)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield Reference(f"{field}[{number}]", kind, one)
    else:
        yield Reference(field, kind, value)


def _destination(value: Any, field: str) -> Iterator[Reference]:
    if isinstance(value, str):
        yield Reference(field, RefersTo.NODE, value)


def _allocators(value: Any, field: str) -> Iterator[Reference]:
    try:
        lists = parse_defaults(str(value), field)
    except InputError:
        return
    for name in chain.from_iterable(lists.values()):
        yield Reference(field, RefersTo.ALLOCATOR, name)


def _dependencies(value: Any, field: str) -> Iterator[Reference]:
    """Absolute numbers only: negative ones count back in the same submission."""
    for number, (job_id, _states) in enumerate(value):
        if job_id >= 0:
            yield Reference(f"{field}[{number}]", RefersTo.JOB, job_id)


def _disk_params(value: Mapping[str, Any], field: str) -> Iterator[Reference]:
    for name, one in value.items():
        kind = RefersTo.NOTHING if is_plain_disk_param(name) else RefersTo.STORAGE
        kind = _OF_DISK.get(name, kind)
        if one is not None and kind is not RefersTo.NOTHING:
            yield Reference(f"{field}.{name}", kind, str(one))


def _disk_changes(value: Any, field: str) -> Iterator[Reference]:
    for number, change in enumerate(value):
        where = f"{field}[{number}]"
        words = change if isinstance(change, list) else []
        for params in (one for one in words if isinstance(one, dict)):
            if words[0] == "attach":
                for one in params.values():
                    yield Reference(where, RefersTo.DETACHED_DISK, str(one))
            else:
                yield from _disk_params(params, where)


def _nic_changes(value: Any, field: str) -> Iterator[Reference]:
    for number, change in enumerate(value):
        for params in (one for one in change if isinstance(one, dict)):
            for name, kind in _OF_NIC.items():
                if kind is not RefersTo.NOTHING and params.get(name) not in _DEFAULTS:
                    yield Reference(f"{field}[{number}].{name}", kind, str(params[name]))


def _hypervisor_params(value: Mapping[str, Any], field: str) -> Iterator[Reference]:
    for name, one in value.items():
        if name in _HOST_PARAMS and one not in _DEFAULTS:
            yield Reference(f"{field}.{name}", RefersTo.PATH, str(one))


def _os_params(value: Mapping[str, Any], field: str) -> Iterator[Reference]:
    """Yield images of the cluster, and values that look like a path: the OS definition alone knows the others."""
    for name, one in value.items():
        text = str(one).strip()
        if name == STORED_IMAGE and text:
            yield Reference(f"{field}.{name}", RefersTo.IMAGE, text)
        elif text.startswith(_PATH_STARTS) or "/../" in text:
            yield Reference(f"{field}.{name}", RefersTo.PATH, text)


_COMPOSED: dict[RefersTo, Callable[[Any, str], Iterator[Reference]]] = {
    RefersTo.DESTINATION: _destination,
    RefersTo.ALLOCATORS: _allocators,
    RefersTo.DEPENDENCIES: _dependencies,
    RefersTo.DISK_PARAMS: _disk_params,
    RefersTo.DISK_CHANGES: _disk_changes,
    RefersTo.NIC_CHANGES: _nic_changes,
    RefersTo.HYPERVISOR_PARAMS: _hypervisor_params,
    RefersTo.OS_PARAMS: _os_params,
}
