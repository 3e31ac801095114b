"""Why a node was not chosen: the first rule against it, the rule that decided between groups, or its score."""

from functools import cached_property

import msgspec
import numpy as np

from ganeti.placement.allocate import CAUSES, allocate_in, primary_causes, secondary_causes
from ganeti.placement.dedicated import decided
from ganeti.placement.description import RUNNING, SWITCHED_OFF, Failure, Instance
from ganeti.placement.digits import digits
from ganeti.placement.places import (
    ALLOCATION_ORDER,
    NO_NODE,
    TIE,
    Cost,
    Rules,
    SearchResult,
    winner,
)
from ganeti.placement.policy import InstanceSize, policy_failure, policy_violations
from ganeti.placement.redundancy import unplaced_by_loss
from ganeti.placement.score import everywhere
from ganeti.placement.spread import Chunk, Field
from ganeti.placement.state import Floats, State


def explain(
    state: State, wanted: Instance, rules: Rules, chosen: tuple[int, ...] = ()
) -> list[tuple[str, str]]:
    """Return (node, reason) for each node that is not in `chosen`, in the order of the nodes."""
    state.admit([wanted])
    try:
        chunk = Chunk(Field(state, everywhere(state)), np.array([len(state.names) - 1]))
        primary = primary_causes(chunk, force=rules.ignore_soft_errors)
        secondary = secondary_causes(chunk, force=rules.ignore_soft_errors)
    finally:
        state.dismiss()
    comparison = _Comparison(state, wanted, rules, chosen)
    reasons = []
    for node, one in enumerate(state.nodes):
        if node in chosen:
            continue
        reason = _closed(state, wanted, node, rules)
        if not reason and primary[node]:
            reason = short_of(state, wanted, node, Failure(str(primary[node])))
        if not reason and chosen and wanted.nodes_needed > 1 and secondary[chosen[0], node]:
            cause = CAUSES[secondary[chosen[0], node]]
            reason = f"as secondary: {short_of(state, wanted, node, cause, chosen[0])}"
        reasons.append((one.name, reason or comparison.reason(node)))
    return reasons


class _Comparison:
    """Possible nodes, compared with the chosen ones, or with the choice of these rules."""

    def __init__(
        self, state: State, wanted: Instance, rules: Rules, chosen: tuple[int, ...]
    ) -> None:
        self.state, self.rules, self.chosen = state, rules, chosen
        rules = msgspec.structs.replace(decided(state, rules), all_scores=True)
        self.places = [
            allocate_in(state, wanted, group, rules) for group in range(len(state.groups))
        ]
        self._before: dict[int, str] = {}

    @cached_property
    def group(self) -> int | None:
        """Return the group that was chosen, or that these rules would choose."""
        if self.chosen:
            return int(self.state.group[self.chosen[0]])
        best = winner(self.state, self.places, self.rules)
        return None if best is None else best.group

    def reason(self, node: int) -> str:
        """Return the reason against this node."""
        place = self.places[int(self.state.group[node])]
        if place.scores is None:
            return "not enough online nodes in its group"
        own, primary = _own(place.scores, node)
        if not np.isfinite(own):
            return "no node of its group can be its partner"
        is_refused = primary in place.blockers and own <= place.score + TIE
        if not place.nodes or is_refused:
            return self._blocking(place, primary)
        if place.costs is not None:
            return self._by_cost(place, place.costs.least_with(node, place.scores))
        if self.group is not None and self.group != place.group:
            return self._other_group(place, self.places[self.group], own)
        return self._compared(own, self._chosen_score(place))

    def _by_cost(self, place: SearchResult, own: Cost) -> str:
        """Return the reason on exclusive storage, where lost allocations decide between nodes and between groups."""
        other = place if self.group is None else self.places[self.group]
        best = other.cost if not self.chosen or other.costs is None else other.costs.of(self.chosen)
        if other is not place and (why := self._preferred(place, other)):
            return why
        if best is None or own == best:
            return f"as good as the chosen node ({_cost(own)})"
        if own < best:
            return f"{_cost(own)}, better than {_cost(best)}: the choice did not follow these rules"
        return f"{_cost(own)}, against {_cost(best)}"

    def _preferred(self, place: SearchResult, other: SearchResult) -> str:
        """Return the allocation policy that decided between the node's group and the chosen one, if one did."""
        mine, theirs = (self.state.groups[one.group] for one in (place, other))
        if ALLOCATION_ORDER[theirs.alloc_policy] < ALLOCATION_ORDER[mine.alloc_policy]:
            return f"its group is {mine.alloc_policy}, group {theirs.name} is {theirs.alloc_policy}"
        if theirs.alloc_policy != mine.alloc_policy:
            return f"group {theirs.name} was chosen, although it is {theirs.alloc_policy}"
        return ""

    def _chosen_score(self, place: SearchResult) -> float:
        if not self.chosen or place.scores is None:
            return place.score
        first, *rest = self.chosen
        row = place.scores[first]
        score = float(row[rest[0] if rest and len(row) > 1 else 0])
        return score if np.isfinite(score) else place.score

    def _compared(self, own: float, best: float) -> str:
        if own < best - TIE:
            return f"score {digits(own)}, better than {digits(best)}: the choice did not follow these rules"
        if own <= best + TIE:
            return f"as good as the chosen node (score {digits(own)})"
        return f"score {digits(own)} against {digits(best)}"

    def _other_group(self, place: SearchResult, other: SearchResult, own: float) -> str:
        """Return the rule that decided between the node's group and the chosen one."""
        if why := self._preferred(place, other):
            return why
        theirs = self.state.groups[other.group]
        best, score = place.score, self._chosen_score(other)
        same = f"group {theirs.name} has a place with score {digits(score)}, its own has {digits(best)}"
        return same if own <= best + TIE else f"{same}, this node {digits(own)}"

    def _blocking(self, place: SearchResult, primary: int) -> str:
        """Return the node whose loss forbids a placement, and which part of the violation is new."""
        lost = place.blockers.get(primary, place.blockers.get(NO_NODE))
        if lost is None:
            return "some instances could not be recovered if their node failed"
        if lost not in self._before:
            self._before[lost] = self._trouble_before(lost)
        name, before = self.state.nodes[lost].name, self._before[lost]
        more = "more of " if before and self.rules.before is not None else ""
        text = f"{more}the instances of {name} could not be recovered if that node failed"
        return f"{text}; before: {before}" if before else text

    def _trouble_before(self, lost: int) -> str:
        """Return how many instances could not be recovered without the new one, and why; empty if all could."""
        before = self.rules.before
        found = unplaced_by_loss(self.state, lost) if before is None else before.of(lost)
        return ", ".join(f"{number} {cause}" for cause, number in sorted(found.items()))


def _cost(cost: Cost) -> str:
    lost = ",".join(f"{one:.0f}" for one in cost.lost)
    return f"loses [{lost}] later allocations and leaves {_mib(cost.disk_left)} of disk"


def _own(scores: Floats, node: int) -> tuple[float, int]:
    """Return (the best score of placements with the node, the primary node there)."""
    best, primary = float(scores[node].min(initial=np.inf)), node
    if scores.shape[1] > 1 and scores[:, node].min(initial=np.inf) < best:
        primary = int(scores[:, node].argmin())
        best = float(scores[primary, node])
    return best, primary


def _closed(state: State, wanted: Instance, node: int, rules: Rules) -> str:
    """Return the reason that excludes the node whatever its free resources."""
    one, group = state.nodes[node], state.groups[state.group[node]]
    if one.offline:
        return one.why_offline
    if rules.groups is not None and int(state.group[node]) not in rules.groups:
        return "in another node group"
    if group.alloc_policy == "unallocable" and not rules.allow_unallocable:
        return "its group is unallocable"
    if rules.only_nodes is not None and one.name not in rules.only_nodes:
        return "not among the requested nodes"
    if missing := [network for network in wanted.networks if network not in group.networks]:
        return f"its group is not connected to network {missing[0]}"
    exclusive = bool(state.exclusive[node])
    if policy_failure(group.policy, wanted, exclusive=exclusive) is None:
        return ""
    if exclusive and wanted.spindles is None:
        return short_of(state, wanted, node, Failure.SPINDLES)
    size = InstanceSize(
        memory=int(wanted.memory),
        vcpus=int(wanted.vcpus),
        disks=tuple(int(disk) for disk in wanted.disks),
        nics=wanted.nics or 0,
        disk_template=wanted.template,
        spindle_use=int((wanted.spindles or 0) if exclusive else wanted.spindle_use),
    )
    wrong = policy_violations(group.policy, size)
    return f"the policy of its group forbids it: {'; '.join(wrong)}"


def short_of(
    state: State, wanted: Instance, node: int, cause: Failure, partner: int | None = None
) -> str:
    """Return the resource that the node lacks; as the secondary node of `partner` if that is given."""
    if cause is Failure.MEMORY:
        return _short_of_memory(state, wanted, node, partner)
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
        if wanted.spindles is None:
            return "the node has exclusive storage, and the disks have no number of spindles"
        return f"only {state.free_spindles[node]:g} spindles are free"
    return str(cause)


def _short_of_memory(state: State, wanted: Instance, node: int, partner: int | None) -> str:
    free, reserved = float(state.free[node]), float(state.reserved[node])
    if partner is None:
        takes = wanted.memory if wanted.status in RUNNING else 0.0
        needs, held = takes + reserved, f"for failovers, of {_mib(reserved)} reserved"
    else:
        takes = wanted.memory if wanted.status != SWITCHED_OFF and wanted.auto_balance else 0.0
        needs = max(reserved, float(state.peers[node, partner]) + takes)
        held = f"after it, of {_mib(needs)} reserved"
    if takes >= free:
        return f"{_mib(takes - free + 1)} of memory short"
    if needs >= free and not state.fails[node]:
        return f"{_mib(needs - free + 1)} of memory short {held}"
    missing = wanted.memory - float(state.free_if_all[node]) + 1
    return f"{_mib(missing)} of memory short once its stopped instances run"


def _mib(size: float) -> str:
    return f"{size / 1024:.1f} GiB" if size >= 1024 else f"{size:g} MiB"  # noqa: PLR2004 - a GiB
