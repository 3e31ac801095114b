#!/usr/bin/python
"""Networks of a Ganeti cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: network
short_description: Create, change, connect and remove networks
description: Options without a value are left as they are.
options:
  name:
    description: Name of the network.
    type: str
    required: true
  state:
    description: V(present) creates the network if it does not exist; V(absent) disconnects and removes it.
    type: str
    choices: [present, absent]
    default: present
  network:
    description: Addresses, for example V(192.0.2.0/24); only for a new network, which needs them.
    type: str
  gateway:
    description: Address of the gateway.
    type: str
  network6:
    description: IPv6 addresses.
    type: str
  gateway6:
    description: IPv6 address of the gateway.
    type: str
  mac_prefix:
    description: First three bytes of the MAC addresses.
    type: str
  connections:
    description: All connections to node groups. Others are removed, and those that differ are made again.
    type: list
    elements: dict
    suboptions:
      group:
        description: Name of the group.
        type: str
        required: true
      mode:
        description: V(bridged), V(routed) or V(openvswitch).
        type: str
        required: true
      link:
        description: Bridge, routing table or switch.
        type: str
        required: true
      vlan:
        description: VLAN of an Open vSwitch.
        type: str
        default: ""
  tags:
    description: All tags of the network. Others are removed.
    type: list
    elements: str
extends_documentation_fragment: [ganeti.cluster.connection]
author: The Ganeti rebuild authors (@ganeti)
"""
EXAMPLES = r"""
- name: The network of the web servers
  ganeti.cluster.network:
    address: cluster.example.com
    token: "{{ vault_ganeti_token }}"
    name: front
    network: 192.0.2.0/24
    gateway: 192.0.2.1
    connections:
      - {group: default, mode: bridged, link: br0}
"""
RETURN = r"""
network:
  description: The network after the change, as in GET /2/networks/NAME; null if it does not exist.
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
    found,
    plan_tags,
    run_module,
)
from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest import Client

CONNECTION_OPTIONS = {
    "group": {"type": "str", "required": True},
    "mode": {"type": "str", "required": True},
    "link": {"type": "str", "required": True},
    "vlan": {"type": "str", "default": ""},
}
OPTIONS: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    **{
        name: {"type": "str"}
        for name in ("network", "gateway", "network6", "gateway6", "mac_prefix")
    },
    "connections": {"type": "list", "elements": "dict", "options": CONNECTION_OPTIONS},
    "tags": {"type": "list", "elements": "str"},
}
CHANGEABLE = ("gateway", "network6", "gateway6", "mac_prefix")


def make_plan(client: Client, params: dict[str, Any]) -> Plan:
    """Return what has to change; ValueError."""
    name = params["name"]
    present = found(client.network, name)
    plan = Plan(present is not None)
    connections = {one[0]: tuple(one[1:]) for one in (present or {}).get("group_list") or ()}
    if params["state"] == "absent":
        if present is not None:
            plan.note("state", "present", "absent")
            _plan_connections(plan, client, name, [], connections)
            plan.job(lambda: client.network_remove(name))
        return plan
    if present is None:
        _plan_creation(plan, client, params)
    else:
        _plan_changes(plan, client, params, present)
    if params["connections"] is not None:
        _plan_connections(plan, client, name, params["connections"], connections)
    return plan


def _plan_creation(plan: Plan, client: Client, params: dict[str, Any]) -> None:
    name = params["name"]
    if not params["network"]:
        raise ValueError(f"network {name} does not exist; a new one needs the option network")
    plan.note("state", "absent", "present")
    fields = {key: params[key] for key in (*CHANGEABLE, "tags")}
    plan.job(lambda: client.network_create(name=name, network=params["network"], **fields))


def _plan_changes(
    plan: Plan, client: Client, params: dict[str, Any], present: dict[str, Any]
) -> None:
    name = params["name"]
    if params["network"] not in (None, present["network"]):
        raise ValueError(
            f"network {name} has the addresses {present['network']}, which cannot change"
        )
    changes = {key: params[key] for key in CHANGEABLE if params[key] not in (None, present[key])}
    for key, value in changes.items():
        plan.note(key, present[key], value)
    if changes:
        plan.job(lambda: client.network_modify(name, **changes))
    plan_tags(
        plan,
        name,
        (params["tags"], present["tags"]),
        client.network_tags_add,
        client.network_tags_remove,
    )


def _plan_connections(
    plan: Plan,
    client: Client,
    name: str,
    wanted: list[dict[str, Any]],
    present: dict[str, tuple[Any, ...]],
) -> None:
    desired = {one["group"]: (one["mode"], one["link"], one["vlan"]) for one in wanted}
    if desired != {group: _padded(one) for group, one in present.items()}:
        plan.note("connections", present, desired)
    for group, one in present.items():
        if desired.get(group) != _padded(one):
            plan.job(lambda group=group: client.network_disconnect(name, group_name=group))
    for group, (mode, link, vlan) in desired.items():
        if group not in present or _padded(present[group]) != (mode, link, vlan):
            fields = {"network_mode": mode, "network_link": link, "network_vlan": vlan or None}
            plan.job(
                lambda group=group, fields=fields: client.network_connect(
                    name, group_name=group, **fields
                )
            )


def _padded(one: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(str(value or "") for value in (*one, "", "")[:3])


def main() -> None:
    """Run the module."""
    run_module(OPTIONS, make_plan, "network")


if __name__ == "__main__":
    main()
