"""The answer of QueryHaStatus: automatic recovery as people and programs see it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ganeti.config.snapshot import Snapshot
from ganeti.model.recovery import NodeState, Recovery
from ganeti.recovery.instance import InstanceState
from ganeti.recovery.status import InstanceStatus, NodeStatus, RecoveryStatus
from ganeti.units.cluster.recovery_findings import recovery_limits


@dataclass(frozen=True)
class HaStatus:
    """Reads the state of automatic recovery."""

    snapshot: Callable[[], Snapshot]
    status: Callable[[], RecoveryStatus]
    elects_master: bool

    def answer(self) -> dict[str, Any]:
        """Return each watched node and protected instance, sorted by name, the alarms, and the known limits."""
        found, snapshot = self.status(), self.snapshot()
        master = snapshot.nodes[snapshot.cluster.master_node].name
        states = {one.name: one.state for one in found.nodes}
        limits = recovery_limits(snapshot, elects_master=self.elects_master)
        return {
            "nodes": [
                {**_node(one), "master": one.name == master}
                for one in sorted(found.nodes, key=lambda one: one.name)
            ],
            "instances": [
                {**_instance(one), "why": one.why or _waits(one, states)}
                for one in sorted(found.instances, key=lambda one: one.name)
            ],
            "alarms": list(found.alarms),
            "limits": list(limits),
        }

    def figures(self) -> dict[str, Any]:
        """Return how many nodes and instances are in each state, for metrics."""
        found = self.status()
        nodes = dict.fromkeys(NodeState, 0)
        instances = dict.fromkeys(InstanceState, 0)
        for node in found.nodes:
            nodes[node.state] += 1
        for instance in found.instances:
            instances[instance.state] += 1
        return {
            "recovery_nodes": {state.value: count for state, count in nodes.items()},
            "recovery_instances": {state.value: count for state, count in instances.items()},
            "recovery_alarms": len(found.alarms),
            "recovery_unarmed_nodes": sum(not node.is_armed for node in found.nodes),
        }


def _node(one: NodeStatus) -> dict[str, Any]:
    return {
        "name": one.name,
        "state": one.state.value,
        "maintenance": one.in_maintenance,
        "state_s": round(one.state_s, 1),
        "silent_s": round(one.silent_s, 1),
        "fence_methods": [method.value for method in one.methods],
        "watchdog_armed": one.is_armed,
        "why_unarmed": one.why_unarmed,
        "why": one.why,
    }


def _instance(one: InstanceStatus) -> dict[str, Any]:
    return {
        "name": one.name,
        "node": one.node,
        "recovery": one.recovery.value,
        "priority": one.priority,
        "state": one.state.value,
        "state_s": round(one.state_s, 1),
        "attempts": one.attempts,
    }


def _waits(one: InstanceStatus, states: Mapping[str, NodeState]) -> str:
    """Return what an instance waits for if its node is lost and not fenced yet."""
    state = states.get(one.node, NodeState.HEALTHY)
    if one.state is not InstanceState.PROTECTED or state not in _NOT_FENCED:
        return ""
    until = "is fenced" if one.recovery is Recovery.FAILOVER else "returns"
    return f"its node is {state.value}; it is started again when the node {until}"


_NOT_FENCED = (NodeState.SUSPECT, NodeState.FENCING, NodeState.STUCK)
