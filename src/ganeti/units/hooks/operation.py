"""The hooks of one operation, before and after its unit acts.

If a program fails before the operation, the operation is refused; an unreachable node does not refuse it. After the
operation the change of the configuration is committed first, so that programs see it; their output and
failures go to the job.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ganeti.base.errors import HooksAbort, Refused, RpcError, RpcOffline
from ganeti.jobs.executor import Outcome
from ganeti.model.hooks import CONFIG_UPDATE, HOOKS_VERSION, POST_PREFIX, PREFIX, Phase
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.procedures.hooks import HOOKS_RUN, HooksArgs
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.hooks.listing import HookListing, Listed
from ganeti.units.hooks.point import HookPoint, master_of
from ganeti.units.hooks.results import NodeResults, say


@dataclass
class OperationHooks:
    """The hooks around one opcode; without hooks no call is made where the unit has called the nodes itself."""

    listing: HookListing
    ctx: UnitContext
    unit: LogicalUnit[Any, Any]
    plan: Any
    begun: int
    """The moment at which the unit began to check its prerequisites (`HookReports.moment`)."""

    def __post_init__(self) -> None:
        self._point: HookPoint | None = self.unit.hooks(self.ctx.snapshot, self.plan)
        self._listed: dict[NodeUuid, Listed | RpcError] = {}

    @cached_property
    def _before(self) -> dict[str, str]:
        """The variables before the operation; nearly all nodes have no hooks that need them."""
        return {} if self._point is None else self._variables(self._point, PREFIX)

    async def before(self) -> None:
        """Run the pre hooks; HooksAbort if a hook refuses."""
        point = self._point
        if point is None:
            return
        await self._ask((*point.pre, *point.post))
        say(self.ctx, (one for one in self._unanswered(point.pre) if not one.refuses))
        ran = [*self._unanswered(point.pre), *await self._run(point, Phase.PRE, point.pre, {})]
        refusals = [refusal for one in ran for refusal in one.refusals()]
        if refusals:
            raise HooksAbort(refusals)
        say(self.ctx, (one for one in ran if one.error is None))

    async def after(self, outcome: Outcome) -> Outcome:
        """Run the post hooks; return the outcome without the change if it was committed before them."""
        changes = outcome.change is not None or self.ctx.run.has_changed
        if self._point is None and not changes:
            return outcome
        master = master_of(self.ctx.snapshot)
        nodes = self._point.post if self._point else ()
        await self._ask((*nodes, master) if changes else nodes)
        updates = changes and self._has(master, CONFIG_UPDATE)
        if self._point is None or not any(self._has(node, self._point.hook) for node in nodes):
            nodes = ()
        if not updates and not nodes:
            return await self._ended(outcome, [])
        if outcome.change is not None:
            try:
                await self.ctx.run.record_undo((), outcome.change)
            except Refused as err:  # the queue retries the write
                self.ctx.warn(
                    f"post hooks do not run, because the change cannot be recorded yet: {err}"
                )
                return outcome
            outcome = Outcome(outcome.result, None, outcome.jobs)
        if updates:
            await self._config_update(master)
        return await self._ended(outcome, await self._post(nodes))

    async def run_now(self, nodes: Sequence[Node]) -> None:
        """Run the post hooks on nodes that leave the cluster."""
        if self._point is not None:
            await self._ask(nodes)
            say(self.ctx, await self._run(self._point, Phase.POST, nodes, self._before))

    async def _ended(self, outcome: Outcome, ran: Sequence[NodeResults]) -> Outcome:
        if self._point is None:
            return outcome
        # The nodes that were queried before were reported then.
        said = {node.uuid for node in self._point.pre}
        left = self._unanswered([node for node in self._point.post if node.uuid not in said])
        return await self.unit.hooks_ended(self.ctx, [*left, *ran], outcome)

    async def _post(self, nodes: Sequence[Node]) -> list[NodeResults]:
        now = self.unit.hooks(self.ctx.snapshot, self.plan) if nodes else None
        if now is None:
            return []
        after = {**self._before, **self._variables(now, POST_PREFIX)}
        return await self._run(now, Phase.POST, nodes, after)

    async def _config_update(self, master: Node) -> None:
        # As in upstream Ganeti, the hook sees the object of the operation.
        about = self._point.object_type if self._point is not None else None
        point = HookPoint(CONFIG_UPDATE, post=(master,), about=about)
        say(self.ctx, await self._run(point, Phase.POST, point.post, self._before))

    async def _ask(self, nodes: Iterable[Node]) -> None:
        unasked = {node.uuid: node for node in nodes if node.uuid not in self._listed}
        if unasked:
            self._listed |= await self.listing.of_all(
                unasked.values(), self.ctx.snapshot.cluster.master_node, self.begun
            )

    def _has(self, node: Node, hook: str, phase: Phase = Phase.POST) -> bool:
        listed = self._listed.get(node.uuid)
        return isinstance(listed, frozenset) and (hook, phase) in listed

    def _unanswered(self, nodes: Sequence[Node]) -> list[NodeResults]:
        """Return online nodes that have not reported yet whether they have hooks."""
        answers = ((node, self._listed.get(node.uuid)) for node in nodes)
        return [
            NodeResults(node.name, error=said)
            for node, said in answers
            if isinstance(said, RpcError) and not isinstance(said, RpcOffline)
        ]

    async def _run(
        self, point: HookPoint, phase: Phase, nodes: Iterable[Node], variables: dict[str, str]
    ) -> list[NodeResults]:
        with_hooks = [node for node in nodes if self._has(node, point.hook, phase)]
        if not with_hooks:
            return []
        environment = {**self._variables(point, PREFIX), **variables, **self._common(point, phase)}
        args = HooksArgs(hook=point.hook, phase=phase, environment=environment)
        return list(await asyncio.gather(*(self._run_on(node, args) for node in with_hooks)))

    async def _run_on(self, node: Node, args: HooksArgs) -> NodeResults:
        try:
            return NodeResults(node.name, await self.ctx.call(node, HOOKS_RUN, args))
        except RpcError as err:
            return NodeResults(node.name, error=err)

    def _variables(self, point: HookPoint, prefix: str) -> dict[str, str]:
        # An environment cannot hold a NUL.
        return {prefix + name: text.replace("\0", "") for name, text in point.variables.items()}

    def _common(self, point: HookPoint, phase: Phase) -> dict[str, str]:
        snapshot = self.ctx.snapshot
        named = {
            "HOOKS_VERSION": str(HOOKS_VERSION),
            "HOOKS_PHASE": phase,
            "HOOKS_PATH": point.hook,
            "CLUSTER": snapshot.cluster.name,
            "MASTER": master_of(snapshot).name,
            "OP_CODE": self.ctx.run.op.op_id(),
            "OBJECT_TYPE": point.object_type,
        }
        return {PREFIX + name: str(value) for name, value in named.items()}
