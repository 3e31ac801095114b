#!/usr/bin/python
"""Node groups of a Ganeti cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: group
short_description: Create, change and remove node groups
description: Options without a value are left as they are.
options:
  name:
    description: Name of the group.
    type: str
    required: true
  state:
    description: V(present) creates the group if it does not exist; V(absent) removes it, if it has no nodes.
    type: str
    choices: [present, absent]
    default: present
  alloc_policy:
    description: Whether allocators choose nodes of the group.
    type: str
    choices: [preferred, last_resort, unallocable]
  ndparams:
    description: Node parameters of the group.
    type: dict
  nodes:
    description: Nodes to move into the group. Others stay.
    type: list
    elements: str
  tags:
    description: All tags of the group. Others are removed.
    type: list
    elements: str
extends_documentation_fragment: [ganeti.cluster.connection]
author: The Ganeti rebuild authors (@ganeti)
"""
EXAMPLES = r"""
- name: A group of one rack
  ganeti.cluster.group:
    address: cluster.example.com
    token: "{{ vault_ganeti_token }}"
    name: rack1
    nodes: [node1.example.com, node2.example.com]
"""
RETURN = r"""
group:
  description: The group after the change, as in GET /2/groups/NAME; null if it does not exist.
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

OPTIONS: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "alloc_policy": {"type": "str", "choices": ["preferred", "last_resort", "unallocable"]},
    "ndparams": {"type": "dict"},
    "nodes": {"type": "list", "elements": "str"},
    "tags": {"type": "list", "elements": "str"},
}


def make_plan(client: Client, params: dict[str, Any]) -> Plan:
    """Return what has to change."""
    name = params["name"]
    present = found(client.group, name)
    plan = Plan(present is not None)
    if params["state"] == "absent":
        if present is not None:
            plan.note("state", "present", "absent")
            plan.job(lambda: client.group_remove(name))
        return plan
    if present is None:
        plan.note("state", "absent", "present")
        given = {"alloc_policy": params["alloc_policy"], "ndparams": params["ndparams"]}
        plan.job(lambda: client.group_create(name=name, **given))
        present = {"alloc_policy": params["alloc_policy"], "ndparams": params["ndparams"] or {}, "node_list": [],
                   "tags": []}  # fmt: skip
    changes: dict[str, Any] = {}
    if params["alloc_policy"] not in (None, present["alloc_policy"]):
        plan.note("alloc_policy", present["alloc_policy"], params["alloc_policy"])
        changes["alloc_policy"] = params["alloc_policy"]
    if values := differing(params["ndparams"], present["ndparams"] or {}):
        plan.note("ndparams", {key: present["ndparams"].get(key) for key in values}, values)
        changes["ndparams"] = values
    if changes:
        plan.job(lambda: client.group_modify(name, **changes))
    if new := sorted(set(params["nodes"] or ()) - set(present["node_list"] or ())):
        plan.note(
            "nodes",
            sorted(present["node_list"] or ()),
            sorted({*(present["node_list"] or ()), *new}),
        )
        plan.job(lambda: client.group_assign_nodes(name, nodes=new))
    plan_tags(
        plan,
        name,
        (params["tags"], present["tags"]),
        client.group_tags_add,
        client.group_tags_remove,
    )
    return plan


def main() -> None:
    """Run the module."""
    run_module(OPTIONS, make_plan, "group")


if __name__ == "__main__":
    main()
