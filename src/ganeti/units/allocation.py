"""Requests to allocators for the nodes of instances."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ganeti.base.errors import ErrorCode, InputError, PrereqError, RpcError
from ganeti.config.storage_units import storage_unit
from ganeti.model import wire
from ganeti.model.iallocator import (
    BUILT_IN,
    AllocatorAnswer,
    RequestType,
    default_allocators,
    named_allocators,
)
from ganeti.model.names import AdminState
from ganeti.model.objects import Cluster, Node, NodeUuid
from ganeti.model.reasons import grouped, summary
from ganeti.protocols import iallocator, iallocator_requests
from ganeti.rpc.procedures.programs import ALLOCATOR_RUN, AllocatorArgs, AllocatorOutput
from ganeti.units.allocator_message import cluster_message
from ganeti.units.context import UnitContext
from ganeti.units.demand import Demand
from ganeti.units.placements import Placement

T = TypeVar("T")
Message = dict[str, Any]
Options = Mapping[str, Any]
"""Options of an allocator beside the message, by name without dashes; True for an option without a value."""

_NEXT = (ErrorCode.NO_RESOURCES, ErrorCode.ENVIRONMENT, ErrorCode.UNKNOWN_ENTITY)
"""Failures of one allocator after which the next one of a list is tried."""


@dataclass(frozen=True)
class PlacementRequest:
    """A request to an allocator for one instance."""

    demand: Demand
    will_run: bool = True
    relocate_from: Node | None = None
    ignore_policy: bool = False
    group_name: str | None = None
    explain: bool = False

    @property
    def kind(self) -> RequestType:
        return RequestType.ALLOCATE if self.relocate_from is None else RequestType.RELOCATE

    def message(self) -> dict[str, Any]:
        """Return the request of the message."""
        demand = self.demand
        if self.relocate_from is None:
            spec = demand.message()
            return iallocator_requests.allocate(
                demand.name, demand.required_nodes, spec, self.group_name
            )
        return iallocator_requests.relocate(
            demand.name, 1, demand.disk_space_total, [self.relocate_from.name]
        )

    def placed_on(self, ctx: UnitContext, *nodes: Node) -> Placement:
        """Return the placement that results if the request is granted on these nodes, the primary first."""
        message = {
            **self.demand.message(),
            "admin_state": AdminState.UP if self.will_run else AdminState.DOWN,
            "nodes": [node.name for node in nodes],
        }
        unit = storage_unit(ctx.snapshot.cluster, self.demand.disk_template)
        uuids = tuple(NodeUuid(node.uuid) for node in nodes)
        return Placement(ctx.job_id, uuids, self.demand.name, message, self.will_run, unit)


@dataclass(frozen=True)
class Choice:
    """The allocator that chose, the chosen nodes, and on request the reasons against the others: (node, reason)."""

    allocator: str
    nodes: list[Node]
    why_not: list[tuple[str, str]]


def allocators_for(cluster: Cluster, kind: RequestType, given: str | None) -> tuple[str, ...]:
    """Return the named allocators, or the cluster's list for this kind of request (S184); may be empty."""
    return named_allocators(given) or default_allocators(cluster.default_iallocator, kind)


async def choose_nodes(
    ctx: UnitContext, allocators: Sequence[str], request: PlacementRequest
) -> Choice:
    """Choose nodes for an instance and record them as its placement; PrereqError gives the reasons (S182)."""
    required = 1 if request.relocate_from is not None else request.demand.required_nodes

    def read(allocator: str, answer: AllocatorAnswer) -> list[Node]:
        names = iallocator.chosen_names(allocator, answer, required)
        return [usable_node(ctx, allocator, name) for name in names]

    async def make(*, fresh: bool) -> Message:
        return await cluster_message(
            ctx,
            request.message(),
            template=request.demand.disk_template,
            ignore_policy=request.ignore_policy,
            fresh=fresh,
        )

    placements = ctx.services.placements
    async with placements.deciding:
        try:
            allocator, nodes = await ask(ctx, allocators, make, read)
        except PrereqError as err:
            if not request.explain or err.code is not ErrorCode.NO_RESOURCES:
                raise
            why = await _explained(ctx, await make(fresh=True), [])
            raise PrereqError(_with_reasons(err.message, why), err.code) from err
        chosen = [node.name for node in nodes]
        why = await _explained(ctx, await make(fresh=False), chosen) if request.explain else []
        placements.place(request.placed_on(ctx, *nodes))
    return Choice(allocator, nodes, why)


async def _explained(
    ctx: UnitContext, message: Message, chosen: list[str]
) -> list[tuple[str, str]]:
    """Explain why other nodes were not chosen, by the rules of the built-in allocator, whichever allocator chose."""
    built_in = ctx.services.built_in
    if built_in is None:
        return []
    options = ctx.snapshot.cluster.default_iallocator_params
    reasons = await built_in.explain(message, chosen, options)
    return [(node, _with_names(ctx, reason)) for node, reason in reasons]


def _with_names(ctx: UnitContext, text: str) -> str:
    """Return the text with the names of networks instead of the UUIDs that a message has."""
    for uuid, network in ctx.snapshot.networks.items():
        text = text.replace(uuid, network.name)
    return text


def _with_reasons(text: str, why: Sequence[tuple[str, str]]) -> str:
    """Return the error with the reasons against the nodes, unless the allocator gave them (S237)."""
    is_said = any(one.reason in text for one in grouped(why))
    return text if is_said or not why else f"{text}; {summary(why)}"


def usable_node(ctx: UnitContext, allocator: str, name: str) -> Node:
    """Return the node that an allocator chose; PrereqError if it does not accept instances (S168)."""
    node = ctx.snapshot.node_by_name(name)
    if node is None or node.offline or node.drained or not node.vm_capable:
        raise PrereqError(
            f"iallocator '{allocator}' chose {name!r:.80}, which is not a node that accepts instances",
            ErrorCode.ENVIRONMENT,
        )
    return node


class MakeMessage(Protocol):
    """Makes a message; with `fresh` from the present answers of the nodes."""

    def __call__(self, *, fresh: bool) -> Awaitable[Message]: ...


async def ask(
    ctx: UnitContext,
    allocators: Sequence[str],
    make: MakeMessage,
    read: Callable[[str, AllocatorAnswer], T],
    options: Options | None = None,
) -> tuple[str, T]:
    """Return the first successful answer of several allocators, in order (S184); `options` add to the cluster's.

    If a request fails on node reports that are some seconds old, it is repeated with fresh ones.
    """
    if not allocators:
        raise InputError(
            "no allocator given, and the cluster has no default allocator (gnt-cluster modify -I hail)",
            "iallocator",
        )
    if ctx.services.node_data.is_remembering:
        try:
            return await _first(ctx, allocators, await make(fresh=False), read, options)
        except PrereqError as err:
            if err.code is not ErrorCode.NO_RESOURCES:
                raise
    return await _first(ctx, allocators, await make(fresh=True), read, options)


async def _first(
    ctx: UnitContext,
    allocators: Sequence[str],
    message: Message,
    read: Callable[[str, AllocatorAnswer], T],
    options: Options | None,
) -> tuple[str, T]:
    failures: list[PrereqError] = []
    for allocator in allocators:
        try:
            found = read(allocator, await ask_one(ctx, allocator, message, options))
        except PrereqError as err:
            if err.code not in _NEXT or len(allocators) == 1:
                raise
            failures.append(err)
        else:
            for failure in failures:
                ctx.warn(f"{failure.message}; iallocator '{allocator}' answered instead")
            return allocator, found
    raise PrereqError("; ".join(err.message for err in failures), failures[-1].code)


async def check_exists(ctx: UnitContext, allocators: Iterable[str]) -> None:
    """Raise PrereqError unless the master's node has each of these allocators."""
    master = ctx.snapshot.nodes[ctx.snapshot.cluster.master_node]
    for allocator in allocators:
        if allocator != BUILT_IN or ctx.services.built_in is None:
            args = AllocatorArgs(name=allocator, message=None)
            _check_found(allocator, master, await ctx.call(master, ALLOCATOR_RUN, args))


def _check_found(allocator: str, master: Node, output: AllocatorOutput) -> None:
    if not output.found:
        raise PrereqError(
            f"Can't find iallocator '{allocator}' on {master.name}: it is in no directory of the search path",
            ErrorCode.UNKNOWN_ENTITY,
        )


async def ask_one(
    ctx: UnitContext, allocator: str, message: Message, options: Options | None = None
) -> AllocatorAnswer:
    """Return what one allocator answers; the built-in one without starting a program."""
    every = {**ctx.snapshot.cluster.default_iallocator_params, **(options or {})}
    if allocator == BUILT_IN and ctx.services.built_in is not None:
        answer = await ctx.services.built_in.answer(message, every)
        if answer is not None:
            return AllocatorAnswer(**{**answer, "info": _with_names(ctx, answer["info"])})
    output = await _run_allocator(ctx, allocator, message, every)
    return iallocator.parse_answer(allocator, output.stdout)


async def _run_allocator(
    ctx: UnitContext, allocator: str, message: Message, params: Options
) -> AllocatorOutput:
    """Run the program on the master; an error includes all of its output (S162)."""
    problem = f"Can't compute nodes using iallocator '{allocator}'"
    master = ctx.snapshot.nodes[ctx.snapshot.cluster.master_node]
    text = wire.encode(message).decode()
    options = [
        f"--{name}" if value is True else f"--{name}={value}" for name, value in params.items()
    ]
    args = AllocatorArgs(name=allocator, message=text, options=options)
    try:
        output = await ctx.call(master, ALLOCATOR_RUN, args)
    except RpcError as err:
        raise PrereqError(f"{problem}: {err}", ErrorCode.ENVIRONMENT) from err
    _check_found(allocator, master, output)
    if output.status:
        said = f"{output.stdout}{output.stderr}".strip()
        raise PrereqError(
            f"{problem}: it ended with status {output.status}: {said}", ErrorCode.ENVIRONMENT
        )
    return output
