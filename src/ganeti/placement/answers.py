"""Answers of an allocator: a message in, `{"success", "info", "result"}` out (S169 to S179, S186, S187)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.model.reasons import summary
from ganeti.placement.allocate import allocate
from ganeti.placement.balance import Goals, balance
from ganeti.placement.capacity import fill
from ganeti.placement.description import Cluster, Instance
from ganeti.placement.digits import digits
from ganeti.placement.evacuate import Evacuation, Mode, change_group, evacuate, relocate
from ganeti.placement.explain import explain
from ganeti.placement.load import message as messages
from ganeti.placement.moves import Step, dependencies, opcodes
from ganeti.placement.places import NO_NODE, Rules, SearchResult, accepted, describe_choice
from ganeti.placement.redundancy import Violations
from ganeti.placement.score import score
from ganeti.placement.secondary import allocate_secondary
from ganeti.placement.state import KeptColumns, State

Request = Mapping[str, Any]
Answer = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """The changes that options of `hail` make."""

    rules: Rules = field(default_factory=Rules)
    ignore_load: bool = False


def answer(message: bytes | Mapping[str, Any], settings: Settings | None = None) -> Answer:
    """Return the answer to a message; the content of a message never makes it raise."""
    settings = settings or Settings()
    try:
        cluster, request = messages.read(message)
        return answered(state_of(cluster, settings), request, settings)
    except PrereqError as err:
        return refusal(err.message)


def state_of(cluster: Cluster, settings: Settings, kept: KeptColumns | None = None) -> State:
    """Return the arrays of a cluster; PrereqError if its description is contradictory."""
    if settings.ignore_load:
        nothing = {one.name: (0.0, 0.0, 0.0, 0.0) for one in cluster.instances}
        cluster = msgspec.structs.replace(cluster, utilisation=nothing)
    return State(cluster, kept=kept)


def answered(state: State, request: Request, settings: Settings) -> Answer:
    """Carry out a request on `state` and return the answer; InputError for a malformed request."""
    kind = request.get("type")
    work = _KINDS.get(str(kind))
    if work is None:
        raise InputError(f"Invalid request type {kind!r:.40}; use one of {', '.join(_KINDS)}")
    try:
        info, result = work(state, request, settings)
    except InputError:
        raise
    except PrereqError as err:
        return refusal(err.message)
    return accepted(info, result)


def explanation(
    state: State, request: Request, settings: Settings, chosen: Sequence[str]
) -> list[tuple[str, str]]:
    """Return (node, reason) for each node that an `allocate` request did not get; InputError for other requests."""
    if request.get("type") != "allocate":
        raise InputError("only an allocation can be explained", "request.type")
    known = {one.name: number for number, one in enumerate(state.nodes)}
    picked = tuple(known[name] for name in chosen if name in known)
    rules = _rules(state, request, settings)
    return explain(state, messages.wanted_instance(request), rules, picked)


def refusal(info: str) -> Answer:
    """Return the negative answer."""
    return {"success": False, "info": f"Request failed: {info}", "result": []}


def _index(state: State, name: str) -> int:
    try:
        return state.names.index(name)
    except ValueError:
        raise InputError(f"instance {name!r:.80} does not exist", "request") from None


def _indices(state: State, request: Request) -> list[int]:
    return [_index(state, name) for name in messages.names(request, "instances")]


def groups_named(state: State, names: Sequence[str]) -> list[int]:
    """Return the indices of groups, given by name or UUID; InputError if one does not exist."""
    known = {one.uuid: number for number, one in enumerate(state.groups)}
    known |= {one.name: number for number, one in enumerate(state.groups)}
    missing = [name for name in names if name not in known]
    if missing:
        raise InputError(f"node group {missing[0]!r:.80} does not exist", "request")
    return [known[name] for name in names]


def _rules(state: State, request: Request, settings: Settings) -> Rules:
    """Return the rules of a request: its group and nodes if it names any, and the violations that exist already."""
    rules = settings.rules
    group, only = request.get("group_name"), request.get("restrict-to-nodes")
    if only is not None and rules.only_nodes is None:
        rules = msgspec.structs.replace(
            rules, only_nodes=frozenset(messages.names(request, "restrict-to-nodes"))
        )
    if group is not None:
        groups = groups_named(state, [str(group)])
        rules = msgspec.structs.replace(rules, groups=groups, allow_unallocable=True)
    return rules if rules.before is not None else _knowing_trouble(state, rules)


def _knowing_trouble(state: State, rules: Rules) -> Rules:
    """Return rules that forbid a change to make existing N+1 violations worse.

    A cluster of one group must be redundant before, as in upstream Ganeti. With several groups, one group with a
    violation would otherwise block all others.
    """
    if not rules.capacity or len(state.groups) < 2:  # noqa: PLR2004 - several
        return rules
    return msgspec.structs.replace(rules, before=Violations(state.copy(), rules.excluded))


def _allocate(state: State, request: Request, settings: Settings) -> tuple[str, Any]:
    wanted = messages.wanted_instance(request)
    rules = _rules(state, request, settings)
    place, info = _placed(state, wanted, rules)
    state.append(wanted, *place.pair)
    return info, [state.nodes[node].name for node in place.nodes]


def _placed(state: State, wanted: Instance, rules: Rules) -> tuple[SearchResult, str]:
    """Return a placement and its description; PrereqError gives the reasons by node."""
    try:
        place, places = allocate(state, wanted, rules)
    except PrereqError as err:
        why = summary(explain(state, wanted, rules))
        # Scripts look for upstream's counts at the end of the line.
        raise PrereqError(f"{why}; {err.message}" if why else err.message, err.code) from None
    return place, describe_choice(state, place, places)


def _multi_allocate(state: State, request: Request, settings: Settings) -> tuple[str, Any]:
    given = request.get("instances")
    if not isinstance(given, list):
        raise InputError("must be a list", "request.instances")
    done: list[tuple[str, list[str]]] = []
    failed: list[str] = []
    reasons: list[str] = []
    settings = replace(settings, rules=_knowing_trouble(state, settings.rules))
    for one in given:
        wanted = messages.wanted_instance(one)
        try:
            place, _info = _placed(state, wanted, _rules(state, {**request, **one}, settings))
        except PrereqError as err:
            failed.append(wanted.name)
            reasons.append(f"{wanted.name}: {err.message}")
            continue
        state.append(wanted, *place.pair)
        done.append((wanted.name, [state.nodes[node].name for node in place.nodes]))
    info = f"{len(failed)} instances failed to allocate and {len(done)} were allocated successfully"
    return "; ".join([info, *reasons]), [done, failed]


def _relocate(state: State, request: Request, settings: Settings) -> tuple[str, Any]:
    index = _index(state, messages.instance_name(request))
    names = [one.name for one in state.nodes]
    leave = messages.names(request, "relocate_from")
    if unknown := [name for name in leave if name not in names]:
        raise InputError(f"node {unknown[0]!r:.80} does not exist", "request.relocate_from")
    if request.get("required_nodes", 1) != 1:
        raise InputError("only one node can be replaced", "request.required_nodes")
    force = settings.rules.ignore_soft_errors
    step = relocate(state, index, [names.index(name) for name in leave], force=force)
    return f"{state.names[index]} to {names[step.move.target]}", [names[step.move.target]]


def _evacuate(state: State, request: Request, settings: Settings) -> tuple[str, Any]:
    try:
        mode = Mode(str(request.get("evac_mode")))
    except ValueError:
        raise InputError(f"must be one of {', '.join(Mode)}", "request.evac_mode") from None
    force = settings.rules.ignore_soft_errors
    return _evacuated(state, evacuate(state, _indices(state, request), mode, force=force))


def _multi_evacuate(state: State, request: Request, settings: Settings) -> tuple[str, Any]:
    """Answer the deprecated form with (instance, new secondary node) for the instances with one of the nodes as secondary.

    The form cannot report instances that do not move, so one such instance fails the whole request.
    """
    names = set(messages.names(request, "evac_nodes"))
    leaving = [index for index, node in enumerate(state.nodes) if node.name in names]
    which = [int(one) for one in np.flatnonzero(np.isin(state.secondary, leaving))]
    force = settings.rules.ignore_soft_errors
    done = evacuate(state, which, Mode.SECONDARY, force=force)
    if done.failed:
        why = summary([(state.names[index], reason) for index, reason in done.failed])
        raise PrereqError(why, ErrorCode.NO_RESOURCES)
    pairs = [
        [state.names[one.instance], state.nodes[one.steps[-1].after[1]].name] for one in done.moved
    ]
    return f"{len(pairs)} instances get another secondary node", pairs


def _change_group(state: State, request: Request, settings: Settings) -> tuple[str, Any]:
    groups = groups_named(state, messages.names(request, "target_groups"))
    rules = _knowing_trouble(state, settings.rules)
    return _evacuated(state, change_group(state, _indices(state, request), groups, rules))


def _evacuated(state: State, done: Evacuation) -> tuple[str, Any]:
    moved = []
    for one in done.moved:
        nodes = [node for node in one.steps[-1].after if node != NO_NODE]
        group = state.groups[state.group[nodes[0]]].name
        moved.append([state.names[one.instance], group, [state.nodes[node].name for node in nodes]])
    failed = [[state.names[index], why] for index, why in done.failed]
    info = f"{len(failed)} instances failed to move and {len(moved)} were moved successfully"
    return info, [moved, failed, done.jobs(state)]


def _allocate_secondary(state: State, request: Request, settings: Settings) -> tuple[str, Any]:
    index = _index(state, messages.instance_name(request))
    place = allocate_secondary(state, index, _knowing_trouble(state, settings.rules))
    return place.describe(state), state.nodes[place.nodes[1]].name


def _balance(state: State, request: Request, _settings: Settings) -> tuple[str, Any]:
    """Answer S186: `max_moves` (default: no limit); the result is that of an evacuation, with job dependencies."""
    limit = request.get("max_moves", -1)
    if not isinstance(limit, int):
        raise InputError("must be a number", "request.max_moves")
    first = score(state)
    steps: list[Step] = []
    for group in range(len(state.groups)):
        goals = Goals(max_moves=limit - len(steps) if limit >= 0 else -1)
        steps += list(balance(state, goals, np.asarray(state.group == group)))
    moved = []
    for step in steps:
        nodes = [node for node in step.after if node != NO_NODE]
        group_name = state.groups[state.group[nodes[0]]].name
        names = [state.nodes[node].name for node in nodes]
        moved.append([state.names[step.move.instance], group_name, names])
    jobs = [opcodes(state, step.move) for step in steps]
    info = f"{len(moved)} moves, score {digits(first)} to {digits(score(state))}"
    return info, [moved, [], jobs, dependencies(steps)]


def _capacity(state: State, request: Request, settings: Settings) -> tuple[str, Any]:
    """Answer S187: how many copies of the described instance fit (at most `max_instances`), and on which nodes."""
    limit = request.get("max_instances")
    wanted = messages.wanted_instance({"name": "new", **request})
    filled = fill(state, wanted, settings.rules, limit if isinstance(limit, int) else None)
    names = [[state.nodes[node].name for node in nodes] for nodes in filled.nodes]
    why = "" if len(names) == limit else f"; most likely failure reason: {filled.main_failure}"
    return f"{len(names)} instances fit{why}", names


_KINDS: dict[str, Callable[[State, Request, Settings], tuple[str, Any]]] = {
    "allocate": _allocate,
    "relocate": _relocate,
    "node-evacuate": _evacuate,
    "change-group": _change_group,
    "multi-allocate": _multi_allocate,
    "multi-evacuate": _multi_evacuate,
    "allocate-secondary": _allocate_secondary,
    "balance": _balance,
    "capacity": _capacity,
}
