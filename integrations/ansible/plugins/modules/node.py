#!/usr/bin/python
"""Nodes of a Ganeti cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node
short_description: Change the role, the parameters and the tags of nodes
description:
  - Options without a value are left as they are. Nodes are added and removed on the master, with C(gnt-node).
options:
  name:
    description: Name of the node.
    type: str
    required: true
  role:
    description: Role of the node. The master keeps its role.
    type: str
    choices: [regular, master-candidate, drained, offline]
  force:
    description: Change the role even if the number of candidates would then be too small.
    type: bool
    default: false
  master_capable:
    description: Whether the node may become the master.
    type: bool
  vm_capable:
    description: Whether the node may run instances.
    type: bool
  ndparams:
    description: Node parameters.
    type: dict
  tags:
    description: All tags of the node. Others are removed.
    type: list
    elements: str
extends_documentation_fragment: [ganeti.cluster.connection]
author: The Ganeti rebuild authors (@ganeti)
"""
EXAMPLES = r"""
- name: Let no new instances onto a node
  ganeti.cluster.node:
    address: cluster.example.com
    token: "{{ vault_ganeti_token }}"
    name: node3.example.com
    role: drained
"""
RETURN = r"""
node:
  description: The node after the change, as in GET /2/nodes/NAME.
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
    plan_tags,
    run_module,
)
from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest import Client

OPTIONS: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "role": {"type": "str", "choices": ["regular", "master-candidate", "drained", "offline"]},
    "force": {"type": "bool", "default": False},
    "master_capable": {"type": "bool"},
    "vm_capable": {"type": "bool"},
    "ndparams": {"type": "dict"},
    "tags": {"type": "list", "elements": "str"},
}


def make_plan(client: Client, params: dict[str, Any]) -> Plan:
    """Return what has to change; NotFound."""
    name, role = params["name"], params["role"]
    present: Any = client.node(name)
    plan = Plan(present=True)
    changes: dict[str, Any] = {}
    for flag in ("master_capable", "vm_capable"):
        if params[flag] is not None and params[flag] != present[flag]:
            plan.note(flag, present[flag], params[flag])
            changes[flag] = params[flag]
    if values := differing(params["ndparams"], present["ndparams"] or {}):
        plan.note("ndparams", {key: (present["ndparams"] or {}).get(key) for key in values}, values)
        changes["ndparams"] = values
    if changes:
        plan.job(lambda: client.node_modify(name, **changes))
    if role is not None and role != (old := client.node_role(name)):
        if old == "master":
            raise ValueError(f"{name} is the master, whose role does not change here")
        plan.note("role", old, role)
        if (
            role == "master-candidate" and old != "regular"
        ):  # the cluster makes no other node a candidate
            plan.job(lambda: client.node_role_set(name, "regular", force=params["force"]))
        plan.job(lambda: client.node_role_set(name, role, force=params["force"]))
    plan_tags(
        plan, name, (params["tags"], present["tags"]), client.node_tags_add, client.node_tags_remove
    )
    return plan


def main() -> None:
    """Run the module."""
    run_module(OPTIONS, make_plan, "node")


if __name__ == "__main__":
    main()
