"""What happens to the simulated cluster, and when: steps as people write them, and events by node names.

A step is one entry of a scenario file or one option of the command. `events` turns steps into events in the order of
their times, for one source and one seed.
"""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ganeti.base.errors import InputError
from ganeti.base.sizes import parse_mib
from ganeti.base.suggestions import did_you_mean
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.objects import Node, NodeGroup
from ganeti.model.recovery import Recovery
from ganeti.protocols.iallocator_requests import ALL_ROLES, PRIMARY_ONLY
from ganeti.whatif.source import Source

DAY_S = 86400.0
LONGEST_S = 366 * DAY_S
MOST_CREATED, MOST_ADDED, MOST_EVENTS = 20_000, 1_000, 20_000
LARGEST_RATIO = 1000.0
DEFAULT_REBOOT_S = 300.0
"""The time for which a node of a rolling upgrade is away."""
ALL = "all"
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY_S, "w": 7 * DAY_S}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([smhdw]?)", re.ASCII)
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)/([smhdw])", re.ASCII)


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The size of new instances, as people write it."""

    memory: str = "1g"
    disk: str = "10g"
    vcpus: int = 1
    template: str = "drbd"


class Created(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"
):
    """New instances of one size, at a rate."""

    count: int
    spec: Spec = Spec()
    rate: str = ""
    """`60/h`; '' creates all at once."""


class Random(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Random failures of nodes: exponential times between failures, and until repair."""

    days: float
    mtbf: str
    """The mean time between failures of one node."""
    mttr: str
    """The mean time until a node is back."""


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """New values of policies of the cluster."""

    recovery: Recovery | None = None
    vcpu_ratio: float | None = None
    spindle_ratio: float | None = None
    n_plus_1: bool | None = msgspec.field(default=None, name="n+1")
    """False lets allocations ignore whether the cluster survives the loss of a node."""
    fence_methods: str | None = None


Names = str | list[str]


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """One entry of a scenario: a time, and exactly one action."""

    at: str | None = None
    """The time after the beginning; None is the time of the step before."""
    duration: str | None = msgspec.field(default=None, name="for")
    """The time until failed nodes are back; None is never. For a drain, the time for which each node is away."""
    fail_node: Names | None = None
    fail_rack: str | None = None
    fail_group: str | None = None
    fail_switch: str | None = None
    drain: Names | None = None
    evacuate: Names | None = None
    evacuate_primaries: Names | None = None
    add_nodes: int | None = None
    create: Created | None = None
    set: Change | None = None
    random: Random | None = None

    @property
    def action(self) -> str:
        """Return the name of the action; InputError unless there is exactly one."""
        given = [name for name in ACTIONS if getattr(self, name.replace("-", "_")) is not None]
        if len(given) != 1:
            what = f"has {' and '.join(given)}" if given else "has no action"
            raise InputError(f"{what}; a step has exactly one of {', '.join(ACTIONS)}")
        return given[0]


ACTIONS = ("fail-node", "fail-rack", "fail-group", "fail-switch", "drain", "evacuate",
           "evacuate-primaries", "add-nodes", "create", "set", "random")  # fmt: skip
_LASTING = ("fail-node", "fail-rack", "fail-group", "fail-switch", "drain")
"""Actions that accept `for`."""


class Scenario(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"
):
    """A scenario file."""

    name: str = ""
    watch: str | None = None
    """How long the cluster is observed after the last event; None is until all is settled."""
    steps: list[Step] = []


# The events


@dataclass(frozen=True)
class NodesFail:
    """Nodes lose their power."""

    nodes: tuple[str, ...]


@dataclass(frozen=True)
class NodesCutOff:
    """Nodes lose their network; their guests continue to run."""

    nodes: tuple[str, ...]


@dataclass(frozen=True)
class NodesReturn:
    """Nodes that failed or were cut off are back."""

    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Drain:
    """A rolling upgrade: one node after the other is emptied, rebooted and filled again."""

    nodes: tuple[str, ...]
    away_s: float


@dataclass(frozen=True)
class Evacuate:
    """Instances leave nodes, which stay in service."""

    nodes: tuple[str, ...]
    mode: str = ALL_ROLES


@dataclass(frozen=True)
class AddNodes:
    """New nodes like an existing one."""

    count: int
    like: str


@dataclass(frozen=True)
class Create:
    """One new instance; sizes in MiB."""

    number: int
    memory: int
    disk: int
    vcpus: int
    template: str


@dataclass(frozen=True)
class SetPolicy:
    """New values of the cluster's parameters."""

    change: Change = field(default_factory=Change)


Action = NodesFail | NodesCutOff | NodesReturn | Drain | Evacuate | AddNodes | Create | SetPolicy


@dataclass(frozen=True, order=True)
class Event:
    """An action and its time, in seconds after the beginning."""

    at: float
    order: int
    """Of events with the same time."""
    action: Action = field(compare=False)


class StepError(InputError):
    """A step that cannot be simulated."""

    def __init__(self, number: int, err: InputError) -> None:
        self.number = number
        self.cause = err
        super().__init__(err.message, f"step {number + 1}")


def events(steps: Sequence[Step], source: Source, seed: int) -> list[Event]:
    """Return the events of a scenario by their times; StepError names the wrong step."""
    found: list[Event] = []
    planner = _Planner(source, seed)
    at = 0.0
    for number, step in enumerate(steps):
        try:
            at = at if step.at is None else parse_duration(step.at, "at")
            for when, action in planner.actions(step, at):
                found.append(Event(when, len(found), action))
                _check_limits(found)
        except InputError as err:
            raise StepError(number, err) from err
    return sorted(found)


def _check_limits(found: Sequence[Event]) -> None:
    if len(found) > MOST_EVENTS:
        raise InputError(f"the scenario has more than {MOST_EVENTS} events; shorten it")
    if found[-1].at > LONGEST_S:
        raise InputError("the step ends more than a year after the beginning; shorten it")


class _Planner:
    """Turns steps into actions; new instances are numbered over all steps."""

    def __init__(self, source: Source, seed: int) -> None:
        self._source = source
        self._random = random.Random(f"scenario {seed}")  # noqa: S311 - a schedule, not a key
        self._created = 0

    def actions(self, step: Step, at: float) -> Iterator[tuple[float, Action]]:
        name = step.action
        if step.duration is not None and name not in _LASTING:
            raise InputError(f"'for' has no meaning for {name}; remove it")
        lasting = None if step.duration is None else parse_duration(step.duration, "for")
        if name in ("fail-node", "fail-rack", "fail-group", "fail-switch"):
            nodes = self._failing(name, step)
            yield at, (NodesCutOff if name == "fail-switch" else NodesFail)(nodes)
            if lasting is not None:
                yield at + lasting, NodesReturn(nodes)
        elif step.drain is not None:
            nodes = self._drained(step.drain)
            yield at, Drain(nodes, DEFAULT_REBOOT_S if lasting is None else lasting)
        elif name in ("evacuate", "evacuate-primaries"):
            yield at, self._evacuation(step)
        elif step.add_nodes is not None:
            yield at, self._added(step.add_nodes)
        elif step.create is not None:
            yield from self._creations(step.create, at)
        elif step.set is not None:
            yield at, _policy(step.set)
        elif step.random is not None:
            yield from self._failures(step.random, at)

    @property
    def _online(self) -> list[Node]:
        return [one for one in self._source.nodes if not one.offline]

    def _failing(self, name: str, step: Step) -> tuple[str, ...]:
        if step.fail_node is not None:
            return self._named(step.fail_node)
        if step.fail_group is not None:
            groups = {
                one.name: one.uuid for one in self._source.objects if isinstance(one, NodeGroup)
            }
            uuid = groups.get(step.fail_group) or _refuse("node group", step.fail_group, groups)
            return _some(
                (one.name for one in self._online if one.group == uuid),
                f"node group {step.fail_group} has no online node",
            )
        tag = step.fail_rack or step.fail_switch or ""
        tags = {own for one in self._online for own in one.tags}
        if tag not in tags:
            known = did_you_mean(tag, sorted(tags))
            raise InputError(
                f"no online node has the tag {tag!r:.60}{known}; 'gnt-node add-tags NODE {tag:.60}'"
                " marks the nodes of a rack or a switch",
                name,
            )
        return tuple(one.name for one in self._online if tag in one.tags)

    def _evacuation(self, step: Step) -> Evacuate:
        if step.evacuate_primaries is not None:
            return Evacuate(self._named(step.evacuate_primaries), PRIMARY_ONLY)
        return Evacuate(self._named(step.evacuate or []))

    def _drained(self, given: Names) -> tuple[str, ...]:
        """Return the nodes to reboot; ALL are those that are online."""
        return tuple(one.name for one in self._online) if given == ALL else self._named(given)

    def _named(self, given: Names) -> tuple[str, ...]:
        """Return full names of online nodes for names that are complete or end before a dot."""
        known = {one.name: one for one in self._source.nodes}
        found = []
        for name in [given] if isinstance(given, str) else given:
            alike = (
                [name] if name in known else [one for one in known if one.startswith(f"{name}.")]
            )
            if len(alike) != 1:
                _refuse("node", name, known)
            if known[alike[0]].offline:
                raise InputError(
                    f"node {alike[0]} is marked offline in the source; choose another one"
                )
            found.append(alike[0])
        return _some(dict.fromkeys(found), "the list of nodes is empty")

    def _added(self, count: int) -> AddNodes:
        if not 1 <= count <= MOST_ADDED:
            raise InputError(f"must be from 1 to {MOST_ADDED}", "add-nodes")
        if not self._online:
            raise InputError("no online node is there whose size new nodes could have", "add-nodes")
        largest = max(self._online, key=lambda one: (self._source.sizes[one.uuid].memory, one.name))
        return AddNodes(count, largest.name)

    def _creations(self, given: Created, at: float) -> Iterator[tuple[float, Action]]:
        spec = given.spec
        if not 1 <= given.count <= MOST_CREATED:
            raise InputError(f"must be from 1 to {MOST_CREATED}", "create.count")
        if spec.vcpus < 1:
            raise InputError("must be at least 1", "create.spec.vcpus")
        if spec.template not in DISK_TEMPLATES:
            _refuse("disk template", spec.template, DISK_TEMPLATES)
        memory, disk = (
            parse_mib(spec.memory, "create.spec.memory"),
            parse_mib(spec.disk, "create.spec.disk"),
        )
        between = 1 / parse_rate(given.rate, "create.rate") if given.rate else 0.0
        for index in range(given.count):
            self._created += 1
            yield (
                at + index * between,
                Create(self._created, memory, disk, spec.vcpus, spec.template),
            )

    def _failures(self, given: Random, at: float) -> Iterator[tuple[float, Action]]:
        """Yield failures and returns of each node; a node that is down does not fail again."""
        mtbf, mttr = parse_duration(given.mtbf, "mtbf"), parse_duration(given.mttr, "mttr")
        end = at + given.days * DAY_S
        if not 0 < given.days * DAY_S <= LONGEST_S or not mtbf or not mttr:
            raise InputError("days, mtbf and mttr must be above 0, and days at most 366", "random")
        for node in self._online:
            now = at + self._random.expovariate(1 / mtbf)
            while now < end:
                yield now, NodesFail((node.name,))
                now += self._random.expovariate(1 / mttr)
                yield now, NodesReturn((node.name,))
                now += self._random.expovariate(1 / mtbf)


def _policy(change: Change) -> SetPolicy:
    for name, value in (("vcpu-ratio", change.vcpu_ratio), ("spindle-ratio", change.spindle_ratio)):
        if value is not None and not 1 <= value <= LARGEST_RATIO:
            raise InputError(f"must be from 1 to {LARGEST_RATIO:.0f}", f"set.{name}")
    if change == Change():
        raise InputError(f"names no value; known: {', '.join(POLICIES)}", "set")
    return SetPolicy(change)


POLICIES = tuple(one.encode_name for one in msgspec.structs.fields(Change))
"""Names of the values that `set` can change."""


def _some(names: Iterable[str], complaint: str) -> tuple[str, ...]:
    found = tuple(names)
    if not found:
        raise InputError(complaint)
    return found


def _refuse(what: str, name: str, known: Iterable[str]) -> Any:
    names = sorted(known)
    close = did_you_mean(name, names)
    listed = "" if close else f"; known: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}"  # noqa: PLR2004
    raise InputError(f"there is no {what} {name!r:.60}{close}{listed}")


def parse_duration(text: str, field_name: str) -> float:
    """Return `90`, `10m`, `2h` or `7d` in seconds; InputError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise InputError(
            f"{text!r:.60} is not a time; use a number with s, m, h, d or w, for example 10m",
            field_name,
        )
    seconds = float(found[1]) * _UNITS[found[2]]
    if seconds > LONGEST_S:
        raise InputError(f"{text!r:.60} is longer than a year", field_name)
    return seconds


def parse_rate(text: str, field_name: str) -> float:
    """Return `60/h` as a number for each second; InputError."""
    found = _RATE.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise InputError(f"{text!r:.60} is not a rate; use for example 60/h", field_name)
    return float(found[1]) / _UNITS[found[2]]
