"""The results of hooks, as a job reports them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ganeti.base.errors import RpcError, RpcFailed
from ganeti.rpc.headers import UNREACHABLE
from ganeti.rpc.procedures.hooks import HookResult
from ganeti.units.context import UnitContext

SHOWN_LINES, SHOWN_LENGTH = 20, 200
"""The part of a program's output that goes to the job."""


@dataclass(frozen=True)
class NodeResults:
    """The results of the hooks on one node; `error` if they are unknown, or the node cannot run hooks."""

    node: str
    results: Sequence[HookResult] = ()
    error: RpcError | None = None

    @property
    def refuses(self) -> bool:
        """True if the node answered that it cannot run its hooks."""
        return isinstance(self.error, RpcFailed) and self.error.wire_error != UNREACHABLE

    def refusals(self) -> Iterator[tuple[str, str, str]]:
        """`(node, script, output)` of each program that has failed."""
        if self.error is not None and self.refuses:
            yield self.node, "(hooks)", self.error.reason
        for one in self.results:
            if one.problem:
                yield self.node, one.script, shown(one.output) or one.problem

    def lines(self) -> Iterator[tuple[str, bool]]:
        """Yield messages, each with whether it is a warning."""
        if self.error is not None:
            yield f"hooks were not run on {self.node}: {self.error.reason}", True
        for one in self.results:
            said = shown(one.output)
            if one.problem:
                yield (
                    f"hook {one.script} on {self.node} failed ({one.problem}): {said or 'no output'}",
                    True,
                )
            elif said:
                yield f"hook {one.script} on {self.node}: {said}", False


def shown(output: str) -> str:
    """The beginning of a program's output."""
    lines = output.strip().splitlines()
    more = [f"[{len(lines) - SHOWN_LINES} more lines]"] if len(lines) > SHOWN_LINES else []
    return "\n".join([line[:SHOWN_LENGTH] for line in lines[:SHOWN_LINES]] + more)


def say(ctx: UnitContext, ran: Iterable[NodeResults]) -> None:
    """Report the results of hooks to the job."""
    for one in ran:
        for text, is_warning in one.lines():
            (ctx.warn if is_warning else ctx.info)(text)
