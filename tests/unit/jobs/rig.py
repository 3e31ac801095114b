"""A job queue on a store in memory, with an executor that does what a test says."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ganeti.base.errors import ExecError
from ganeti.config.config import Config
from ganeti.jobs.executor import OpRun, Outcome
from ganeti.jobs.queue import JobQueue
from ganeti.jobs.view import JobView
from ganeti.locking.levels import Level
from ganeti.locking.manager import LockManager
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.job import UndoStep
from ganeti.model.names import JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.instance import OpInstanceCreate, OpInstanceStartup
from ganeti.model.opcodes.test import OpTestDelay
from ganeti.query.job_filters import job_rules
from ganeti.simulation.counting_ids import CountingIds
from ganeti.simulation.faulty_store import FaultyStore, MemoryDisk
from ganeti.simulation.virtual_time import LoopClock
from ganeti.store.encoding import encode_ceiling
from ganeti.store.interface import (
    JOB_ID_CEILING_KEY,
    META_KIND,
    Lease,
    Put,
    Transaction,
)
from tests.unit.config.sample import sample_objects, store_with

Behaviour = Callable[[OpRun], Awaitable[Outcome]]


def delay(**fields: Any) -> OpTestDelay:
    """An opcode that only reads."""
    return OpTestDelay(duration=0.0, **fields)


def act(name: str = "web1.example.com", **fields: Any) -> OpInstanceStartup:
    """An opcode that changes a host."""
    return OpInstanceStartup(instance_name=name, **fields)


def create(**fields: Any) -> OpInstanceCreate:
    return OpInstanceCreate(instance_name="web1.example.com", **fields)


@dataclass(frozen=True)
class Step:
    """An undo step as a unit has it."""

    procedure: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def record(self) -> UndoStep:
        return UndoStep(self.procedure, self.arguments)


@dataclass
class World:
    """What survives a crash of the master: disks, and what opcodes have done to hosts."""

    disk: MemoryDisk = field(default_factory=MemoryDisk)
    archive: dict[int, bytes] = field(default_factory=dict)
    effects: list[tuple[int, int]] = field(default_factory=list)
    """(job id, opcode) for each act."""
    undone: list[tuple[int, list[UndoStep]]] = field(default_factory=list)


class MemoryArchive:
    """The archive of jobs, in memory."""

    def __init__(self, content: dict[int, bytes]) -> None:
        self.content = content

    async def append(self, jobs: Sequence[tuple[int, bytes]]) -> None:
        for job_id, value in jobs:
            if self.content.setdefault(job_id, value) != value:
                raise AssertionError(f"job {job_id} is archived twice, and differently")

    async def get(self, job_id: int) -> bytes | None:
        return self.content.get(job_id)

    async def ids(self, *, limit: int, below: int | None) -> list[int]:
        ids = sorted(self.content, reverse=True)
        return [one for one in ids if below is None or one < below][:limit]

    async def greatest_id(self) -> int:
        return max(self.content, default=0)


class MemoryRoom:
    """Room on the disk of a store, if a test wants some: a full one takes writes again once it is given up."""

    def __init__(self, store: FaultyStore) -> None:
        self._store = store
        self.is_kept = False
        self.has_space = False

    def fill_disk(self) -> None:
        self.has_space = False
        self._store.set_full(full=True)

    async def give(self) -> bool:
        had, self.is_kept = self.is_kept, False
        if had:
            self._store.set_full(full=False)
        return had

    async def keep(self) -> bool:
        self.is_kept = self.is_kept or self.has_space
        return self.is_kept


class Puppet:
    """An executor: acts after the durable start, and lets a test hold or fail any opcode."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.behaviours: dict[str, Behaviour] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.started: list[int] = []
        self.undo_error: Exception | None = None
        self.stuck: dict[str, str] = {}
        """Undo steps that fail, and why."""
        self.deferred: list[bool] = []
        self.undo_gates: dict[str, asyncio.Event] = {}

    async def run(self, run: OpRun) -> Outcome:
        self.started.append(run.job_id)
        name = run.op.comment or ""
        behaviour = self.behaviours.get(name)
        if behaviour is not None:
            return await behaviour(run)
        await run.acquire([])
        if name in self.gates:
            await self.gates[name].wait()
        if run.op.host_changing:
            await run.started()
            self.world.effects.append((run.job_id, run.index))
        return Outcome(None)

    def describe_undo(self, step: UndoStep) -> str:
        return f"{step.procedure} somewhere"

    def undo_locks(self, steps: Sequence[UndoStep]) -> list[LockRequest]:
        return [lock(Level.INSTANCE, [str(step.arguments.get("lock", "web1")) for step in steps])]

    async def undo(
        self, job_id: int, steps: Sequence[UndoStep], *, deferred: bool = False
    ) -> list[tuple[UndoStep, str]]:
        self.world.undone.append((job_id, list(steps)))
        self.deferred.append(deferred)
        if self.undo_error is not None:
            raise self.undo_error
        for step in steps:
            if step.procedure in self.undo_gates:
                await self.undo_gates[step.procedure].wait()
        return [
            (step, self.stuck[step.procedure]) for step in steps if step.procedure in self.stuck
        ]

    def hold(self, name: str) -> asyncio.Event:
        """Opcodes with this comment wait for the event once they run."""
        self.gates[name] = asyncio.Event()
        return self.gates[name]

    def hold_undo(self, procedure: str) -> asyncio.Event:
        """Undo steps of this kind wait for the event."""
        self.undo_gates[procedure] = asyncio.Event()
        return self.undo_gates[procedure]

    def fail(self, name: str, error: Exception | None = None) -> None:
        """Opcodes with this comment fail."""

        async def behaviour(run: OpRun) -> Outcome:
            await run.acquire([])
            raise error or ExecError("it broke")

        self.behaviours[name] = behaviour


class Rig:
    """One master's life; `restart` begins the next one on the same disk."""

    def __init__(
        self, world: World, store: FaultyStore, lease: Lease, config: Config, locks: LockManager
    ) -> None:
        self.world = world
        self.store = store
        self.lease = lease
        self.config = config
        self.locks = locks
        self.executor = Puppet(world)
        self.lost: list[Exception] = []
        self.room = MemoryRoom(store)
        self.queue = JobQueue(
            store,
            lease,
            config,
            locks,
            self.executor,
            clock=LoopClock(),
            archive=MemoryArchive(world.archive),
            raise_ceiling=self._raise_ceiling,
            room=self.room,
            make_rulebook=job_rules,
        )
        self.queue.on_lost = self.lost.append

    async def _raise_ceiling(self, ceiling: int) -> None:
        row = Put(META_KIND, JOB_ID_CEILING_KEY, encode_ceiling(ceiling))
        await self.store.commit(self.lease, Transaction((row,)))

    @classmethod
    async def begin(cls, world: World | None = None) -> "Rig":
        world = world or World()
        objects = [] if world.disk.rows else sample_objects(3)
        store, lease = await store_with(*objects, disk=world.disk)
        clock = LoopClock()
        config = await Config.load(store, lease, clock, CountingIds())
        return cls(world, store, lease, config, LockManager(clock))

    @classmethod
    async def loaded(cls, world: World | None = None) -> "Rig":
        rig = await cls.begin(world)
        await rig.queue.load()
        return rig

    async def crash(self) -> World:
        """Die without notice."""
        self.store.crash()
        await self.end()
        return self.world

    async def restart(self) -> "Rig":
        """Die and begin again."""
        return await Rig.loaded(await self.crash())

    async def end(self) -> None:
        await self.queue.close()
        await self.config.close()
        await self.store.close()

    async def final(self, job_id: int, timeout_s: float = 60.0) -> JobView:
        """Wait until a job has ended."""
        async with asyncio.timeout(timeout_s):
            previous: list[Any] | None = None
            while True:
                answer = await self.queue.wait_for_change(
                    job_id, lambda view: [view.status], previous, 2**40, 10.0
                )
                view = self.queue.view(job_id)
                if view is not None and view.status.is_final:
                    return view
                previous = answer[0] if answer else previous

    async def until(self, job_id: int, status: JobStatus) -> None:
        """Wait until a job has a status."""
        for _ in itertools.repeat(None, 1000):
            view = self.queue.view(job_id)
            if view is not None and view.status is status:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"job {job_id} is never {status}")


def statuses(view: JobView | None) -> list[str]:
    """The job's state and those of its opcodes."""
    assert view is not None
    return [str(view.status), *(str(op.status) for op in view.ops)]


async def settle() -> None:
    """Let everything happen that can happen without time passing much."""
    await asyncio.sleep(0.05)


def ops(*items: OpCode) -> list[OpCode]:
    return list(items)
