"""The part of a run that only the master does: it collects facts, calls `decide`, and submits jobs."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from ganeti.base.errors import GanetiError
from ganeti.watcher.decide import Job, after_verification, decide
from ganeti.watcher.facts import Facts, Instance, Memory, Node
from ganeti.watcher.records import memory_text, read_memory

ARCHIVE_LIMIT_S = 89
"""Time limit of one run for archiving jobs."""
NORMAL = 0
"""The status of an available value in a query."""
PRIORITY = 10
"""The priority of jobs that can wait."""
FINAL = frozenset({"canceled", "success", "error"})
LOOK_S = 1.0


class Client(Protocol):
    """The master, like `ganeti.clients.luxi_async.AsyncLuxiClient`; errors are GanetiError."""

    async def call(self, method: str, *args: Any) -> Any: ...


@dataclass(frozen=True)
class RoundOptions:
    """The options of the command line."""

    job_age_s: int = 6 * 3600
    verify_disks: bool = True
    wait_s: float = 0.0
    """Time to wait for checks of disks, so that this run repairs the problems that they report."""


@dataclass
class MasterRound:
    """One run on the master; `say` gets messages for the administrator."""

    client: Client
    say: Callable[[str], None]
    options: RoundOptions = RoundOptions()
    now: Callable[[], float] = time.time

    async def run(self) -> None:
        """Archive, collect, decide, submit; decisions are stored before they are carried out (F28)."""
        archived, left = await self.client.call(
            "AutoArchiveJobs", self.options.job_age_s, ARCHIVE_LIMIT_S
        )
        if archived or left:
            self.say(f"{archived} jobs were archived, {left} are left for the next run")
        memory = read_memory(await self.client.call("QueryWatcherMemory"))
        facts, verified = await self._look(memory)
        done = decide(facts, memory, self.now(), verify_disks=self.options.verify_disks)
        await self._keep(done.memory)
        for remark in done.remarks:
            self.say(remark)
        memory = await self._submit(done.memory, done.jobs)
        verified += await self._await_checks(memory)
        needed = [name for result in verified for name in _not_in_use(result)]
        memory = await self._submit(memory, after_verification(facts, memory, needed))
        await self._keep(memory)

    async def _keep(self, memory: Memory) -> None:
        await self.client.call("SetWatcherMemory", memory_text(memory))

    async def _submit(self, memory: Memory, jobs: Iterable[Job]) -> Memory:
        """Return the memory with the submitted jobs; a refused one is not counted as an attempt."""
        running, starts = {**memory.jobs}, {**memory.starts}
        for job in jobs:
            kind, _, name = job.about.partition(" ")
            reason = ["gnt:watcher", job.text, int(self.now() * 1e9)]
            op = {**job.op, "priority": PRIORITY, "reason": [reason]}
            try:
                running[job.about] = await self.client.call("SubmitJob", [op])
            except GanetiError as err:
                if kind == "start":
                    starts[name] = starts[name][:-1]
                if not _is_unknown(err):
                    self.say(f"{job.text}: refused: {err.message}")
            else:
                if kind != "verify":
                    self.say(f"{job.text} (job {running[job.about]})")
        memory = msgspec.structs.replace(memory, jobs=running, starts=starts)
        await self._keep(memory)
        return memory

    async def _look(self, memory: Memory) -> tuple[Facts, list[Any]]:
        """Return the present facts, and the results of checks that have ended since the last run."""
        ids = sorted({*memory.jobs.values()})
        # Jobs first: their effects are then visible.
        rows = await self.client.call("QueryJobs", ids, ["status", "opresult"]) if ids else []
        ended = {
            job: row for job, row in zip(ids, rows, strict=True) if row is None or row[0] in FINAL
        }
        results = [
            row[1][0]
            for about, job in memory.jobs.items()
            if about.startswith("verify ") and (row := ended.get(job)) and row[0] == "success"
        ]
        facts = Facts(
            locked=await self._locked(),
            nodes=tuple(
                Node(
                    name=name,
                    boot_id=boot_id or "",
                    offline=bool(offline),
                    in_maintenance=bool(in_maintenance),
                    away=tuple(away or ()),
                )
                for name, boot_id, offline, in_maintenance, away in await self._query(
                    "node", ["name", "bootid", "offline", "maintenance", "moved_away"]
                )
            ),
            groups=dict(await self._query("group", ["uuid", "name"])),
            instances=tuple(await self._instances()),
            live_jobs=frozenset(ids) - ended.keys(),
        )
        return facts, results

    async def _instances(self) -> list[Instance]:
        fields = ["name", "status", "admin_state", "oper_ram", "pnode.group.uuid", "snodes",
                  "be/recovery_failback"]  # fmt: skip
        found = []
        for name, status, wanted, memory, group, secondaries, returns in await self._query(
            "instance", fields
        ):
            found.append(
                Instance(
                    name=name,
                    status=status,
                    is_wanted=wanted == "up",
                    is_there=memory is not None,
                    group=group or "",
                    secondaries=tuple(secondaries or ()),
                    returns=bool(returns),
                )
            )

        return found

    async def _locked(self) -> frozenset[str]:
        """Return the instances whose locks a job holds or awaits."""
        return frozenset(
            name.removeprefix("instance/")
            for name, mode, pending in await self._query("lock", ["name", "mode", "pending"])
            if name.startswith("instance/") and (mode == "exclusive" or pending)
        )

    async def _query(self, kind: str, fields: list[str]) -> list[list[Any]]:
        """Return rows of values; None for an unavailable one."""
        answer = await self.client.call("Query", kind, fields, None)
        return [
            [value if status == NORMAL else None for status, value in row] for row in answer["data"]
        ]

    async def _await_checks(self, memory: Memory) -> list[Any]:
        """Return the results of the checks that end within the time limit."""
        waiting = {job for about, job in memory.jobs.items() if about.startswith("verify ")}
        end, results = self.now() + self.options.wait_s, []
        while waiting and self.now() < end:
            ids = sorted(waiting)
            for job, row in zip(
                ids, await self.client.call("QueryJobs", ids, ["status", "opresult"]), strict=True
            ):
                if row is None or row[0] in FINAL:
                    waiting.discard(job)
                    results += [row[1][0]] if row and row[0] == "success" else []
            if waiting:
                await asyncio.sleep(LOOK_S)
        return results


def _not_in_use(result: Any) -> list[str]:
    """Return the instances with disks that a check found inactive.

    `[bad nodes, instances, missing disks]`.
    """
    match result:
        case [_, [*names], *_]:
            return [name for name in names if isinstance(name, str)]
    return []


def _is_unknown(err: GanetiError) -> bool:
    """Return whether the master is too old, or has nothing to check."""
    return "OP_GROUP_VERIFY_DISKS" in err.message
