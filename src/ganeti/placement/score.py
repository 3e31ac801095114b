"""The cluster score: the imbalance and the violations of a cluster; lower is better.

Components and weights are those that `hbal` publishes, so that figures are comparable. A
component is a standard deviation over the online nodes, a sum over them, or a count on offline ones.
"""

from typing import NamedTuple

import numpy as np

from ganeti.placement.state import Bools, Floats, Indices, State
from ganeti.placement.weights import (
    CONFLICT_WEIGHT,
    CPU,
    DISK,
    FAILING_WEIGHT,
    LOAD,
    MEMORY,
    MEMORY_IF_ALL,
    OF_SPREADS,
    OFFLINE_PRIMARY_WEIGHT,
    OFFLINE_WEIGHT,
    RESERVED,
    RESERVED_TOTAL_WEIGHT,
    SPINDLES,
)

SPREAD_WEIGHTS = np.array(OF_SPREADS)


class Component(NamedTuple):
    """One line of the score."""

    name: str
    value: float
    weight: float


def _ratio(part: Floats, whole: Floats, otherwise: float = 0.0) -> Floats:
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), otherwise)


def spreads(state: State, nodes: Indices | slice = slice(None)) -> Floats:
    """(spreads, nodes): the values of which the score takes standard deviations."""
    total_memory, free_disk = state.total_memory[nodes], state.free_disk[nodes]
    disk = np.where(
        state.exclusive[nodes],
        _ratio(state.free_spindles[nodes], state.total_spindles[nodes], 1.0),
        np.where(free_disk == 0, 1.0, _ratio(free_disk, state.total_disk[nodes], 1.0)),
    )
    cpus = _ratio(state.used_cpus[nodes], state.total_cpus[nodes])
    return np.stack(
        [
            _ratio(state.free[nodes], total_memory),
            _ratio(state.free_if_all[nodes], total_memory),
            disk,
            _ratio(cpus, state.cpu_speed[nodes]),
            _ratio(state.reserved[nodes], total_memory),
            *state.loads[:, nodes],
            _ratio(state.used_spindles[nodes], state.most_spindles[nodes]),
        ]
    )


def above_policy(state: State) -> Bools:
    """Return the nodes with more spindles or virtual processors in use than the ratios of their policy allow."""
    cpus = _ratio(state.used_cpus, state.total_cpus)
    return np.asarray((state.used_spindles > state.most_spindles) | (cpus > state.cpu_ratio))


def everywhere(state: State) -> Bools:
    """Return all nodes, as a scope."""
    return np.ones(len(state.nodes), dtype=bool)


def group_scope(state: State, group: int) -> Bools:
    """Return the nodes of one group, as a scope."""
    return np.asarray(state.group == group)


def components(state: State, scope: Bools | None = None) -> list[Component]:
    """Return the components of the nodes in `scope` (None: all), in the order in which `hbal` prints them.

    If no node is online, there are no components, and the score is 0.
    """
    scope = everywhere(state) if scope is None else scope
    live, gone = scope & ~state.offline, scope & state.offline
    if not live.any():
        return []
    values = spreads(state)
    deviation = _deviations(values[:, live])
    both = state.primaries + state.secondaries
    rules = state.tags
    half = 0.5
    loads = ("cpu_load_cv", "mem_load_cv", "disk_load_cv", "net_load_cv")
    return [
        Component("free_mem_cv", deviation[MEMORY], half),
        Component("free_disk_cv", deviation[DISK], half),
        Component("n1_cnt", float(both[live & state.fails].sum()), FAILING_WEIGHT),
        Component("reserved_mem_cv", deviation[RESERVED], 1.0),
        Component("offline_all_cnt", float(both[gone].sum()), OFFLINE_WEIGHT),
        Component("offline_pri_cnt", float(state.primaries[gone].sum()), OFFLINE_PRIMARY_WEIGHT),
        Component("vcpu_ratio_cv", deviation[CPU], half),
        *(Component(name, deviation[LOAD + number], 1.0) for number, name in enumerate(loads)),
        Component("pri_tags_score", float(rules.conflicts()[live].sum()), CONFLICT_WEIGHT),
        Component("spindles_cv", deviation[SPINDLES], half),
        Component("free_mem_cv_forth", deviation[MEMORY_IF_ALL], half),
        Component("free_disk_cv_forth", deviation[DISK], half),
        Component("vcpu_ratio_cv_forth", deviation[CPU], half),
        Component("spindles_cv_forth", deviation[SPINDLES], half),
        Component("location_score", location_score(state, live), 1.0),
        Component("location_exclusion_score", rules.same_domain(live.astype(float)), 1.0),
        Component(
            "reserved_mem_rtotal",
            float(values[RESERVED, live].sum()),
            RESERVED_TOTAL_WEIGHT,
        ),
    ]


def _deviations(values: Floats) -> list[float]:
    if not values.shape[1]:
        return [0.0] * len(values)
    return [float(one) for one in values.std(axis=1)]


def location_score(state: State, live: Bools) -> float:
    """Return the number of instances with both nodes in one failure domain, and of unmet location requests."""
    rules, primary, secondary = state.tags, state.primary, state.secondary
    if not rules.has_locations and not rules.desires.any():
        return 0.0
    which = np.flatnonzero((primary >= 0) & live[primary])
    total = rules.unmet(which)[np.arange(len(which)), primary[which]].sum()
    mirrored = which[secondary[which] >= 0]
    total += rules.shared_places()[primary[mirrored], secondary[mirrored]].sum()
    return float(total)


def beside_spreads(state: State, scope: Bools, values: Floats) -> float:
    """Return the score without its standard deviations; `values` are the `spreads`."""
    live, gone = scope & ~state.offline, scope & state.offline
    both, rules = state.primaries + state.secondaries, state.tags
    total = FAILING_WEIGHT * float(both[live & state.fails].sum())
    total += OFFLINE_WEIGHT * float(both[gone].sum())
    total += OFFLINE_PRIMARY_WEIGHT * float(state.primaries[gone].sum())
    total += RESERVED_TOTAL_WEIGHT * float(values[RESERVED, live].sum())
    if rules.has_exclusion:
        total += CONFLICT_WEIGHT * float(rules.conflicts()[live].sum())
    if rules.has_locations:
        total += rules.same_domain(live.astype(float))
    return total + location_score(state, live)


def score(state: State, scope: Bools | None = None) -> float:
    """Return the score of the nodes in `scope` (None: all), which is the sum of the `components`."""
    scope = everywhere(state) if scope is None else scope
    if not (scope & ~state.offline).any():
        return 0.0
    values = spreads(state)
    deviation = _deviations(values[:, scope & ~state.offline])
    return float(SPREAD_WEIGHTS @ np.array(deviation)) + beside_spreads(state, scope, values)


def best_possible(state: State, scope: Bools | None = None) -> float:
    """Return the contribution of the reserved memory alone in a perfectly balanced cluster."""
    scope = everywhere(state) if scope is None else scope
    memory = state.total_memory[scope]
    if len(memory) < 2:  # noqa: PLR2004 - nothing can be mirrored on one node
        return 0.0
    total = memory.sum()
    without_biggest = total - memory.max()
    if without_biggest <= 0:
        return 0.0
    mirrored = state.peers[scope].sum()
    return float(RESERVED_TOTAL_WEIGHT * (mirrored / without_biggest - mirrored / total))
