"""The services that a logical unit may use, bound to the opcode that it runs."""

import functools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import msgspec

from ganeti.base.errors import GanetiError, RpcError
from ganeti.base.ids import IdSource
from ganeti.config.config import Config
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change, OpRun
from ganeti.jobs.undo_log import UndoLog
from ganeti.model.job import UndoStep
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.procedures.stale_work import END_STALE_WORK, EndWorkArgs
from ganeti.units.calls import Rpc
from ganeti.units.services import Services
from ganeti.units.shared_queries import Shared
from ganeti.units.undo.run import run_steps

A = TypeVar("A", bound=msgspec.Struct)
R = TypeVar("R")

_log = logging.getLogger(__name__)


class KillableCalls:
    """Calls of one opcode: if its job is killed, the programs of the calls under way are ended."""

    def __init__(self, rpc: Rpc, run: OpRun) -> None:
        self._rpc = rpc
        self._run = run
        self._reads = 0

    async def call(self, node: Node, procedure: Procedure[A, R], args: A, *, key: str = "") -> R:
        """Call a node as `RpcClient.call` does. A call that changes nothing gets a key as well, to find its program."""
        if not key:
            self._reads += 1
            key = f"{self._run.job_id}/{self._run.index}/r{self._reads}"
        with self._run.killable(functools.partial(self._end, node, key)):
            return await self._rpc.call(node, procedure, args, key=key)

    async def call_all(
        self, nodes: Iterable[Node], procedure: Procedure[A, R], args: A
    ) -> dict[NodeUuid, R | RpcError]:
        """Call nodes as `RpcClient.call_all` does: these calls have short deadlines and are not ended."""
        return await self._rpc.call_all(nodes, procedure, args)

    async def _end(self, node: Node, key: str) -> None:
        """Order the node to end the programs of a call, which then fails."""
        try:
            args = EndWorkArgs(keys=[key], wait_s=0)
            await self._rpc.call(node, END_STALE_WORK, args, key=f"{key}/kill")
        except GanetiError as err:
            _log.warning("job %d: call %s is not ended: %s", self._run.job_id, key, err)


class Hooks(Protocol):
    """The hooks of the opcode (`ganeti.units.hooks.operation`)."""

    async def run_now(self, nodes: Sequence[Node]) -> None:
        """Run the post hooks on nodes that leave the cluster."""
        ...


@dataclass
class UnitContext:
    """The services, and the opcode that uses them."""

    services: Services
    run: OpRun
    hooks: Hooks | None = field(default=None, init=False)
    """For units that remove a node, on which hooks must run before."""
    _calls: int = field(default=0, init=False)
    _rpc: KillableCalls = field(init=False)
    _undo_logs: list[UndoLog] = field(default_factory=list, init=False)
    """The open blocks, the innermost last."""

    def __post_init__(self) -> None:
        self._rpc = KillableCalls(self.services.rpc, self.run)

    @property
    def config(self) -> Config:
        return self.services.config

    @property
    def snapshot(self) -> Snapshot:
        """The acknowledged configuration."""
        return self.services.config.snapshot

    @property
    def ids(self) -> IdSource:
        return self.services.ids

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self.services.clock.time()

    @property
    def job_id(self) -> int:
        return self.run.job_id

    def log(self, message: str) -> None:
        """Notify the watchers of the job."""
        self.run.log(message)

    def step(self, message: str) -> None:
        """Report the part of the work that begins."""
        self.run.log(f"* {message}...")

    def info(self, message: str) -> None:
        self.run.log(f" - INFO: {message}")

    def warn(self, message: str) -> None:
        self.run.log(f" - WARNING: {message}")

    def check_change(self, change: Change) -> None:
        """Refuse a change that the configuration would reject, before any step is done for it (F24)."""
        draft = Draft(self.snapshot, self.services.clock)
        change(draft)
        draft.check()

    @property
    def next_key(self) -> str:
        """The key of the next changing call."""
        return f"{self.run.job_id}/{self.run.index}/{self._calls + 1}"

    async def call(self, node: Node, procedure: Procedure[A, R], args: A) -> R:
        """Call a node. A changing call waits for the durable start (T2) and carries the key of its step.

        RpcError also if the job was killed: so the unit follows its normal path for failed calls, and the calls by
        which it then restores order are not prevented.
        """
        key = ""
        if procedure.changes:
            await self.run.started()
        self._check_not_killed(node)
        if procedure.changes:
            key = self.next_key
            self._calls += 1
        try:
            return await self._rpc.call(node, procedure, args, key=key)
        except RpcError:
            self.run.takes_kill()  # whatever failed, the unit restores order from here on
            raise

    async def ask_shared(self, node: Node, procedure: Procedure[A, R], args: A) -> Shared[R]:
        """Query a node, with one call for all jobs that ask the same at the same time. The answer is not older than this."""
        self._check_not_killed(node)
        return await self.services.shared.ask(node, procedure, args)

    def _check_not_killed(self, node: Node) -> None:
        if self.run.takes_kill():
            raise RpcError(
                node.name, "is not called: the job was cancelled (gnt-job cancel --kill)"
            )

    async def ask_beside(self, node: Node, procedure: Procedure[A, R], args: A) -> R:
        """Query a node while another call is under way; a kill ends that call, not this query."""
        return await self._rpc.call(node, procedure, args)

    async def call_all(
        self, nodes: Iterable[Node], procedure: Procedure[A, R], args: A
    ) -> dict[NodeUuid, R | RpcError]:
        """Query many nodes; only for procedures that change nothing."""
        return await self._rpc.call_all(nodes, procedure, args)

    def undo_log(self) -> UndoLog:
        """The durable record of the steps that undo the next action."""
        return UndoLog(self.run, self._run_undo, self._undo_logs)

    async def _run_undo(self, steps: Sequence[UndoStep]) -> list[tuple[UndoStep, str]]:
        return await run_steps(replace(self.services, rpc=self._rpc), self.run.job_id, steps)
