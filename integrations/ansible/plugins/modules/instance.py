#!/usr/bin/python
"""Instances of a Ganeti cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: instance
short_description: Create, change, start, stop and remove instances
description:
  - Makes an instance what the options say. Options without a value are left as they are.
  - An existing instance is never moved, reinstalled or converted, and its disks only grow.
options:
  name:
    description: Full name of the instance.
    type: str
    required: true
  state:
    description:
      - V(present) creates the instance, running, if it does not exist.
      - V(started) and V(stopped) also start or stop it.
      - V(absent) removes it with its disks.
    type: str
    choices: [present, started, stopped, absent]
    default: present
  os:
    description: OS definition, only for a new instance.
    type: str
  osparams:
    description: Parameters of the OS definition, only for a new instance.
    type: dict
  image:
    description: Image whose content the disks get, only for a new instance.
    type: str
  disk_template:
    description: Disk template, only for a new instance. Default is the cluster's first.
    type: str
  disks:
    description: Disks in their order. A present disk that is smaller grows.
    type: list
    elements: dict
    suboptions:
      size:
        description: Size in MiB.
        type: int
        required: true
      name:
        description: Name, only for a new instance.
        type: str
      mode:
        description: V(rw) or V(ro), only for a new instance.
        type: str
      vg:
        description: Volume group, only for a new instance.
        type: str
  nics:
    description: Network interfaces with C(network), C(ip), C(mac), C(mode), C(link), C(vlan), C(name); only for a new instance.
    type: list
    elements: dict
  primary_node:
    description: Primary node, only for a new instance. Without it an allocator chooses.
    type: str
  secondary_node:
    description: Secondary node, only for a new instance.
    type: str
  iallocator:
    description: Allocator, only for a new instance. Default is the cluster's.
    type: str
  group:
    description: Node group for the choice of the allocator, only for a new instance.
    type: str
  hypervisor:
    description: Hypervisor, only for a new instance.
    type: str
  beparams:
    description: Backend parameters, for example C(maxmem), C(minmem) in MiB and C(vcpus).
    type: dict
  hvparams:
    description: Hypervisor parameters.
    type: dict
  tags:
    description: All tags of the instance. Others are removed.
    type: list
    elements: str
  install:
    description: Run the OS create script for a new instance.
    type: bool
    default: true
extends_documentation_fragment: [ganeti.cluster.connection]
author: The Ganeti rebuild authors (@ganeti)
"""
EXAMPLES = r"""
- name: A web server
  ganeti.cluster.instance:
    address: cluster.example.com
    token: "{{ vault_ganeti_token }}"
    ca_file: /etc/ganeti/rapi.pem
    name: web1.example.com
    state: started
    os: debootstrap+default
    disk_template: drbd
    disks: [{size: 10240}]
    nics: [{network: front, ip: pool}]
    beparams: {maxmem: 2048, minmem: 2048, vcpus: 2}
    tags: [web]
"""
RETURN = r"""
instance:
  description: The instance after the change, as in GET /2/instances/NAME; null if it does not exist.
  type: dict
  returned: success
jobs:
  description: Numbers of the jobs.
  type: list
  elements: int
  returned: success
"""

from typing import Any

from ansible_collections.ganeti.cluster.plugins.module_utils.cluster import (
    Plan,
    differing,
    found,
    plan_tags,
    run_module,
)
from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest import Client

DISK = {
    "size": {"type": "int", "required": True},
    "name": {"type": "str"},
    "mode": {"type": "str"},
    "vg": {"type": "str"},
}
OPTIONS: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "state": {
        "type": "str",
        "choices": ["present", "started", "stopped", "absent"],
        "default": "present",
    },
    "os": {"type": "str"},
    "osparams": {"type": "dict"},
    "image": {"type": "str"},
    "disk_template": {"type": "str"},
    "disks": {"type": "list", "elements": "dict", "options": DISK},
    "nics": {"type": "list", "elements": "dict"},
    "primary_node": {"type": "str"},
    "secondary_node": {"type": "str"},
    "iallocator": {"type": "str"},
    "group": {"type": "str"},
    "hypervisor": {"type": "str"},
    "beparams": {"type": "dict"},
    "hvparams": {"type": "dict"},
    "tags": {"type": "list", "elements": "str"},
    "install": {"type": "bool", "default": True},
}


def make_plan(client: Client, params: dict[str, Any]) -> Plan:
    """Return what has to change."""
    name, state = params["name"], params["state"]
    present = found(client.instance, name)
    plan = Plan(present is not None)
    if state == "absent":
        if present is not None:
            plan.note("state", "present", "absent")
            plan.job(lambda: client.instance_remove(name))
    elif present is None:
        _plan_creation(plan, client, params)
    else:
        _plan_changes(plan, client, params, present)
    return plan


def _plan_creation(plan: Plan, client: Client, params: dict[str, Any]) -> None:
    plan.note("state", "absent", params["state"])
    node = params["primary_node"]
    disks = [
        {key: value for key, value in one.items() if value is not None}
        for one in params["disks"] or ()
    ]
    fields: dict[str, Any] = {
        "disk_template": params["disk_template"],
        "os": params["os"],
        "osparams": params["osparams"],
        "image": params["image"],
        "pnode": node,
        "snode": params["secondary_node"],
        "iallocator": params["iallocator"] or (None if node else "."),
        "group_name": params["group"],
        "hypervisor": params["hypervisor"],
        "beparams": params["beparams"],
        "hvparams": params["hvparams"],
        "tags": params["tags"],
        "no_install": not params["install"],
        "start": params["state"] != "stopped",
    }
    plan.job(
        lambda: client.instance_create(
            name=params["name"], disks=disks, nics=params["nics"] or [], **fields
        )
    )


def _plan_changes(
    plan: Plan, client: Client, params: dict[str, Any], present: dict[str, Any]
) -> None:
    name = params["name"]
    changes = {}
    for field in ("beparams", "hvparams"):
        values = differing(params[field], present[field] or {})
        if values:
            before = {key: (present[field] or {}).get(key) for key in values}
            plan.note(field, before, values)
            changes[f"custom_{field}"] = values
    if changes:
        plan.job(lambda: client.instance_modify(name, **changes))
    _plan_disks(plan, client, name, params["disks"], present["disk.sizes"] or [])
    plan_tags(
        plan,
        name,
        (params["tags"], present["tags"]),
        client.instance_tags_add,
        client.instance_tags_remove,
    )
    runs, state = present["admin_state"] == "up", params["state"]
    if state == "started" and not (runs and present["oper_state"]):
        plan.note("state", "stopped", "started")
        plan.job(lambda: client.instance_startup(name))
    if state == "stopped" and (runs or present["oper_state"]):
        plan.note("state", "started", "stopped")
        plan.job(lambda: client.instance_shutdown(name))


def _plan_disks(
    plan: Plan, client: Client, name: str, wanted: list[Any] | None, present: list[int]
) -> None:
    if wanted is None:
        return
    if len(wanted) != len(present):
        raise ValueError(
            f"{name} has {len(present)} disks, not {len(wanted)}; this module adds and removes none"
        )
    sizes = [one["size"] for one in wanted]
    for index, (size, old) in enumerate(zip(sizes, present, strict=True)):
        if size < old:
            raise ValueError(
                f"disk {index} of {name} has {old} MiB and cannot shrink to {size} MiB"
            )
        if size > old:
            plan.note("disks", present, sizes)
            plan.job(
                lambda index=index, amount=size - old: client.instance_disk_grow(
                    name, index, amount=amount
                )
            )


def main() -> None:
    """Run the module."""
    run_module(OPTIONS, make_plan, "instance", mutually_exclusive=[("primary_node", "iallocator")])


if __name__ == "__main__":
    main()
