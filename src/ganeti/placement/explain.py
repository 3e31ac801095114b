"""Why an instance is not on a node: the first rule that keeps it away, or its score against the winner's."""

import numpy as np

from ganeti.placement.allocate import (
    CAUSES,
    Place,
    Rules,
    allocate_in,
    primary_causes,
    secondary_causes,
)
from ganeti.placement.description import Failure, Instance
from ganeti.placement.digits import digits
from ganeti.placement.policy import InstanceSize, policy_violations
from ganeti.placement.policy_fit import policy_failure
from ganeti.placement.score import everywhere
from ganeti.placement.singles import TIE
from ganeti.placement.spread import Chunk, Field
from ganeti.placement.state import NO_NODE, Floats, State


def explain(
    state: State, wanted: Instance, rules: Rules, chosen: tuple[int, ...] = ()
) -> list[tuple[str, str]]:
    """(node, reason) for each node that is not in `chosen`, in the order of the nodes."""
    state.admit([wanted])
    try:
        chunk = Chunk(Field(state, everywhere(state)), np.array([len(state.names) - 1]))
        primary = primary_causes(chunk, force=rules.ignore_soft_errors)
        secondary = secondary_causes(chunk, force=rules.ignore_soft_errors)
    finally:
        state.dismiss()
    groups = range(len(state.groups))
    places = {group: allocate_in(state, wanted, group, rules) for group in groups}
    reasons = []
    for node, one in enumerate(state.nodes):
        if node in chosen:
            continue
        group = int(state.group[node])
        reason = _closed(state, wanted, node, rules)
        if not reason and primary[node]:
            reason = short_of(state, wanted, node, Failure(str(primary[node])))
        if not reason and chosen and wanted.nodes_needed > 1 and secondary[chosen[0], node]:
            cause = CAUSES[secondary[chosen[0], node]]
            reason = f"as secondary: {short_of(state, wanted, node, cause, as_secondary=True)}"
        place = places[group]
        reason = reason or _compared(place.scores, node, place.score) or _doomed(state, place, node)
        reasons.append((one.name, reason))
    return reasons


def _compared(scores: Floats | None, node: int, best: float) -> str:
    """How a node that is possible lost against a better one; empty if none leaves the cluster redundant."""
    if scores is None:
        return "not enough online nodes in its group"
    own = float(scores[node].min(initial=np.inf))
    if scores.shape[1] > 1:
        own = min(own, float(scores[:, node].min(initial=np.inf)))
    if not np.isfinite(own):
        return "no node of its group can be its partner"
    if not np.isfinite(best):
        return ""
    if own <= best + TIE:
        return f"as good as the one that was chosen (score {digits(own)})"
    return f"score {digits(own)} against {digits(best)}"


def _doomed(state: State, place: Place, node: int) -> str:
    """The node whose loss speaks against a place."""
    lost = place.doomed.get(node, place.doomed.get(NO_NODE))
    name = "some node" if lost is None else state.nodes[lost].name
    return f"the instances of {name} would find no place if that node failed"


def _closed(state: State, wanted: Instance, node: int, rules: Rules) -> str:
    """Why the node is out of the question whatever it has free."""
    one, group = state.nodes[node], state.groups[state.group[node]]
    if one.offline:
        return one.why_offline
    if rules.groups is not None and int(state.group[node]) not in rules.groups:
        return "in another node group"
    if group.alloc_policy == "unallocable" and not rules.allow_unallocable:
        return "its group is unallocable"
    if rules.only_nodes is not None and one.name not in rules.only_nodes:
        return "not among the nodes that were asked for"
    if missing := [network for network in wanted.networks if network not in group.networks]:
        return f"its group is not connected to network {missing[0]}"
    exclusive = bool(state.exclusive[node])
    if policy_failure(group.policy, wanted, exclusive=exclusive) is None:
        return ""
    size = InstanceSize(
        memory=int(wanted.memory),
        vcpus=int(wanted.vcpus),
        disks=tuple(int(disk) for disk in wanted.disks),
        nics=wanted.nics or 0,
        disk_template=wanted.template,
        spindle_use=int(wanted.spindle_use),
    )
    wrong = policy_violations(group.policy, size)
    return f"the policy of its group forbids it: {'; '.join(wrong)}"


def short_of(
    state: State, wanted: Instance, node: int, cause: Failure, *, as_secondary: bool = False
) -> str:
    """What the node has too little of."""
    free, reserved = float(state.free[node]), float(state.reserved[node])
    if cause is Failure.MEMORY:
        missing = wanted.memory - free + 1
        if missing > 0:
            return f"{_mib(missing)} of memory short"
        held = "after it" if as_secondary else "for failovers"
        return f"{_mib(wanted.memory - free + reserved + 1)} of memory short {held}, of {_mib(reserved)} reserved"
    if cause is Failure.DISK:
        missing = wanted.disk - float(state.free_disk[node] - state.low_disk[node])
        if missing >= 0:
            return f"{_mib(missing + 1)} of disk short"
        return f"more than {state.most_spindles[node]:g} spindles would be used"
    if cause is Failure.CPU:
        limit = float(state.cpu_ratio[node] * state.total_cpus[node])
        then = float(state.used_cpus[node]) + wanted.vcpus
        return f"{then:g} virtual processors would exceed the limit of {limit:g}"
    if cause is Failure.TAGS:
        return "an instance there has the same exclusion tag"
    if cause is Failure.SPINDLES:
        return f"only {state.free_spindles[node]:g} spindles are free"
    return str(cause)


def _mib(size: float) -> str:
    return f"{size / 1024:.1f} GiB" if size >= 1024 else f"{size:g} MiB"  # noqa: PLR2004 - a GiB
