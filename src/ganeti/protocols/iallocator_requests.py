"""The `request` part of an allocator's message, one function a type (seed 004, S169-S175, X15)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ganeti.base.errors import InputError
from ganeti.model.iallocator import RequestType

Request = dict[str, Any]
Spec = Mapping[str, Any]
"""Return an instance in the allocator's form: memory, vcpus, disks, nics, disk_space_total, … (S171)."""

PRIMARY_ONLY, SECONDARY_ONLY, ALL_ROLES = "primary-only", "secondary-only", "all"
EVACUATION_MODES = (PRIMARY_ONLY, SECONDARY_ONLY, ALL_ROLES)


def allocate(name: str, required_nodes: int, spec: Spec, group_name: str | None = None) -> Request:
    """Request nodes for a new instance, in one group if it is named."""
    request = {
        "type": RequestType.ALLOCATE.value,
        "name": name,
        "required_nodes": required_nodes,
        **spec,
    }
    return request | ({"group_name": group_name} if group_name else {})


def relocate(
    name: str, required_nodes: int, disk_space_total: int, relocate_from: Iterable[str]
) -> Request:
    """Request another node in the group of an existing instance (S172)."""
    return {
        "type": RequestType.RELOCATE.value,
        "name": name,
        "required_nodes": required_nodes,
        "disk_space_total": disk_space_total,
        "relocate_from": list(relocate_from),
    }


def node_evacuate(instances: Iterable[str], evac_mode: str) -> Request:
    """Request the jobs that move instances off their primary, secondary or all nodes (S173); InputError."""
    if evac_mode not in EVACUATION_MODES:
        raise InputError(f"must be one of {', '.join(EVACUATION_MODES)}", "evac_mode")
    return {
        "type": RequestType.NODE_EVACUATE.value,
        "instances": list(instances),
        "evac_mode": evac_mode,
    }


def change_group(instances: Iterable[str], target_groups: Iterable[str] = ()) -> Request:
    """Request the jobs that move instances into other groups: UUIDs, or any but their own (S174)."""
    return {
        "type": RequestType.CHANGE_GROUP.value,
        "instances": list(instances),
        "target_groups": list(target_groups),
    }


def multi_allocate(requests: Sequence[Request]) -> Request:
    """Request nodes for many new instances at once, each with its `allocate` request (S175)."""
    return {"type": RequestType.MULTI_ALLOCATE.value, "instances": list(requests)}


def multi_evacuate(nodes: Iterable[str]) -> Request:
    """Request an evacuation in the old form: new secondary nodes for all instances mirrored to `nodes`."""
    return {"type": RequestType.MULTI_EVACUATE.value, "evac_nodes": list(nodes)}


def balance(max_moves: int | None = None) -> Request:
    """Request at most this number of moves that make the cluster more even (S186)."""
    request: Request = {"type": RequestType.BALANCE.value}
    return request if max_moves is None else request | {"max_moves": max_moves}


def capacity(required_nodes: int, spec: Spec, max_instances: int | None = None) -> Request:
    """Request how many more instances of one size fit, and on which nodes (S187)."""
    request = {"type": RequestType.CAPACITY.value, "required_nodes": required_nodes, **spec}
    return request if max_instances is None else request | {"max_instances": max_instances}
