"""The check of an instance policy's form, before any code relies on it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from ganeti.base.errors import InputError
from ganeti.model.disk_templates import TEMPLATES
from ganeti.placement.description import Policy

AllocationPolicy = Literal["preferred", "last_resort", "unallocable"]


class _Size(msgspec.Struct, rename="kebab"):
    memory_size: int
    cpu_count: int
    disk_size: int
    disk_count: int
    nic_count: int
    spindle_use: int


class _Bounds(msgspec.Struct):
    min: _Size
    max: _Size


class _Form(msgspec.Struct, rename="kebab"):
    std: _Size
    minmax: Annotated[list[_Bounds], msgspec.Meta(min_length=1)]
    disk_templates: list[str]
    vcpu_ratio: float
    spindle_ratio: float


def checked_policy(value: Mapping[str, Any], what: str) -> Policy:
    """Return the given policy, complete and of the right form; InputError names the key."""
    try:
        form = msgspec.convert(value, _Form)
    except (msgspec.ValidationError, RecursionError) as err:
        raise InputError(str(err), what) from err
    for one in form.disk_templates:
        if one not in TEMPLATES:
            raise InputError(f"unknown disk template {one!r:.40}", what)
    return value


def checked_allocation_policy(value: Any, what: str) -> AllocationPolicy:
    """Return the allocation policy of a group; InputError if it is not one."""
    try:
        policy: AllocationPolicy = msgspec.convert(value, AllocationPolicy)
    except msgspec.ValidationError as err:
        raise InputError(f"{value!r:.40} is not an allocation policy", what) from err
    return policy
