"""Where one instance goes: feasibility first, then the most even cluster.

Works on the allocator's message (version 2, `ganeti.protocols.iallocator`), so that the same code
serves the script `hail` and tests. Every node that is not chosen has a reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ganeti.placement.policy import InstanceSize, policy_violations

Message = Mapping[str, Any]

POLICY_RANK = {"preferred": 0, "last_resort": 1}


@dataclass(frozen=True)
class Verdict:
    """One node: `reason` why it cannot, or its `rank` (group policy) and `load` after the placement (lower wins)."""

    node: str
    reason: str = ""
    rank: int = 0
    load: float = 0.0


def answer(message: Message) -> dict[str, Any]:
    """The answer to a message: `{"success", "info", "result"}`; never raises for a well-formed message."""
    request = message["request"]
    kind = request.get("type")
    if kind not in ("allocate", "relocate"):
        return _refusal(
            f"request type {kind!r} is not implemented; implemented: allocate, relocate"
        )
    if request.get("required_nodes", 1) != 1:
        return _refusal("only disk templates with one node are implemented")
    verdicts = judge(message)
    feasible = [verdict for verdict in verdicts if not verdict.reason]
    explained = "; ".join(
        f"{verdict.node}: {verdict.reason}" for verdict in verdicts if verdict.reason
    )
    if not feasible:
        return _refusal(
            f"Can't find a suitable node for position 1 (already selected: ): {explained or 'no nodes'}"
        )
    best = min(feasible, key=lambda verdict: (verdict.rank, verdict.load, verdict.node))
    info = f"Allocation successful: {best.node}, load {best.load:.3f} of {len(feasible)} feasible nodes"
    return {
        "success": True,
        "info": f"{info}; {explained}" if explained else info,
        "result": [best.node],
    }


def _refusal(info: str) -> dict[str, Any]:
    return {"success": False, "info": info, "result": []}


def judge(message: Message) -> list[Verdict]:
    """What speaks against each node, or how loaded it would be, in order of name."""
    request = message["request"]
    demand = request
    if request["type"] == "relocate" and "memory" not in request:
        demand = {**message["instances"][request["name"]], **request}
    wanted = _Wanted(demand, _virtual_cpus(message), _home_group(message, request))
    return [
        _judge_node(name, node, message["nodegroups"].get(node.get("group"), {}), wanted)
        for name, node in sorted(message["nodes"].items())
    ]


def _home_group(message: Message, request: Message) -> str | None:
    """The group that a relocation must not leave (S234)."""
    if request["type"] != "relocate":
        return None
    group: str | None = message["nodes"][request["relocate_from"][0]]["group"]
    return group


def _virtual_cpus(message: Message) -> dict[str, int]:
    used: dict[str, int] = {}
    for instance in message["instances"].values():
        for name in instance["nodes"][:1]:
            used[name] = used.get(name, 0) + instance["vcpus"]
    return used


@dataclass(frozen=True)
class _Wanted:
    """What is to be placed, the virtual processors in use by node, and the only group allowed (None: any)."""

    demand: Message
    used_cpus: Mapping[str, int]
    home: str | None


def _judge_node(name: str, node: Message, group: Message, wanted: _Wanted) -> Verdict:
    policy, demand = group.get("ipolicy", {}), wanted.demand
    used_cpus = wanted.used_cpus.get(name, 0)
    reason = _excluded(name, node, group, wanted) or _short(node, policy, demand, used_cpus)
    if reason:
        return Verdict(name, reason)
    memory = 1 - (node["free_memory"] - demand["memory"]) / max(1, node["total_memory"])
    disk = 1 - (node["free_disk"] - demand["disk_space_total"]) / max(1, node["total_disk"])
    cpu = (used_cpus + demand["vcpus"]) / max(1, node["total_cpus"] * policy.get("vcpu-ratio", 4.0))
    return Verdict(name, rank=POLICY_RANK[group["alloc_policy"]], load=(memory + disk + cpu) / 3)


def _excluded(name: str, node: Message, group: Message, wanted: _Wanted) -> str:
    """Why the node is out of the question whatever it has free."""
    demand, home = wanted.demand, wanted.home
    for flag in ("offline", "drained"):
        if node.get(flag):
            return flag
    if not node.get("vm_capable", True):
        return "not vm_capable"
    if group.get("alloc_policy") not in POLICY_RANK:
        return "its group is unallocable"
    if home is not None and node["group"] != home:
        return "in another node group"
    if name in demand.get("relocate_from", ()):
        return "the instance is to leave it"
    if wrong := policy_violations(group.get("ipolicy", {}), _size(demand)):
        return f"the policy of its group forbids it: {'; '.join(wrong)}"
    return ""


def _size(demand: Message) -> InstanceSize:
    return InstanceSize(
        memory=demand["memory"],
        vcpus=demand["vcpus"],
        disks=tuple(disk["size"] for disk in demand.get("disks", ())),
        nics=len(demand.get("nics", ())),
        disk_template=demand["disk_template"],
        spindle_use=demand.get("spindle_use", 1),
    )


def _short(node: Message, policy: Message, demand: Message, used_cpus: int) -> str:
    """What the node has too little of."""
    if (missing := demand["memory"] - node["free_memory"]) > 0:
        return f"{missing} MiB of memory short"
    if (missing := demand["disk_space_total"] - node["free_disk"]) > 0:
        return f"{missing} MiB of disk short"
    limit = node["total_cpus"] * policy.get("vcpu-ratio", 4.0)
    if used_cpus + demand["vcpus"] > limit:
        return (
            f"{used_cpus + demand['vcpus']} virtual processors would exceed the limit of {limit:g}"
        )
    return ""
