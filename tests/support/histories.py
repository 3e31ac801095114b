"""Random histories of a whole cluster in one loop: jobs, configuration and units under everything that fails.

Four clients submit, cancel and look; masters are killed, paused, cut off and replaced while they live;
nodes lose calls and answers, are cut off and crash; the disk of the state fills up. The seed decides all.
`World.check_no_guest_runs_twice` holds after every act. Two judges look from outside while it goes on:
`JudgedDisk` at what becomes durable of each job, and `Ledger` at each call that reaches a node. `History`
checks at the end that everything was done or undone.
"""

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

from ganeti.base.errors import CommitUnknown, GanetiError, RpcFailed
from ganeti.config.kinds.instance import INSTANCE
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.record import JOB_KIND
from ganeti.jobs.view import JobView
from ganeti.model import wire
from ganeti.model.job import StoredJob, UndoStep
from ganeti.model.names import JobStatus, RebootType
from ganeti.model.objects import Instance, Node
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.model.opcodes.instance import (
    OpInstanceCreate,
    OpInstanceMigrate,
    OpInstanceReboot,
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.model.opcodes.moving import OpInstanceMove
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.model.opcodes.tags import OpTagsDel, OpTagsSet
from ganeti.model.opcodes.test import OpTestDelay
from ganeti.rpc.calls import Call
from ganeti.rpc.headers import EPOCH_REFUSED, UNREACHABLE
from ganeti.rpc.procedures.disks import BLOCKDEV_REMOVE
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.procedures.programs import OS_CREATE
from ganeti.simulation.counting_ids import CountingIds
from ganeti.simulation.faulty_store import FaultyStore, MemoryDisk, Unknown
from ganeti.store.interface import Follower, Lost, Position, Put, Transaction
from ganeti.units import context
from ganeti.units.services import Services
from ganeti.units.undo.disks import RemoveDisk
from ganeti.units.undo.run import run_steps
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, WatchedRpc, World, node_name
from tests.support.virtual_time import StrictVirtualTimeLoop

CLIENTS, FAULTS_S, DRAIN_S = 4, 12.0, 900.0
NAMES = [f"i{number}.example.com" for number in range(1, 5)]
QUORUM_LEASE_S = 10.0
SCRIPT_S = 8.0
"""How long a create script goes on whose call was given up."""


class Violation(AssertionError):
    """A promise was broken."""


_OPCODE_CALL = re.compile(r"(\d+)/(\d+)/\d+")
_UNDO_CALL = re.compile(r"(\d+)/undo/")


class JudgedDisk(MemoryDisk):
    """Looks at every row of a job that becomes durable (G6, G7, G9)."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[int, StoredJob] = {}
        self._cancelled: dict[int, int] = {}
        """Job -> the epoch in which its cancel became durable."""
        self.broken: list[str] = []

    def write(self, epoch: int, txn: Transaction) -> Position:
        position = super().write(epoch, txn)
        for operation in txn.operations:
            if isinstance(operation, Put) and operation.kind == JOB_KIND:
                job = wire.decode(operation.value, StoredJob)
                if (before := self.jobs.get(job.id)) is not None:
                    self._compare(before, job, epoch)
                elif any(op.status is not JobStatus.QUEUED for op in job.ops):
                    self.broken.append(f"job {job.id} was never submitted, and is {job.ops}")
                self.jobs[job.id] = job
                if job.cancel_requested:
                    self._cancelled.setdefault(job.id, epoch)
        return position

    def half_done_before(self, epoch: int, instance: str | None) -> list[int]:
        """The jobs of which an opcode on an instance runs, as far as anybody knows, that an older master began."""
        return [
            job.id
            for job in self.jobs.values()
            if job.epoch < epoch
            and instance
            in [_instance_of(op.op) for op in job.ops if op.status is JobStatus.RUNNING]
        ]

    def owner(self, node: str, disk: str) -> str:
        """The instance that has this disk on this node; '' if none has."""
        for (kind, _), value in self.rows.items():
            if kind == INSTANCE.name:
                instance = wire.decode(value, Instance)
                has_it = any(one.uuid == disk for one in instance.disks)
                if has_it and node in instance.all_nodes:
                    return instance.name
        return ""

    def running_with_pending(self) -> list[StoredJob]:
        """Jobs of which an opcode runs, and an earlier one has left something to be undone."""
        return [
            job
            for job in self.jobs.values()
            if job.pending and any(op.status is JobStatus.RUNNING for op in job.ops)
        ]

    def _compare(self, before: StoredJob, after: StoredJob, epoch: int) -> None:
        if before.cancel_requested and not after.cancel_requested:
            self.broken.append(f"job {after.id} was cancelled, and is not any more")
        for number, (old, new) in enumerate(zip(before.ops, after.ops, strict=True)):
            what = f"opcode {number} of job {after.id}"
            if old.status.is_final and old.status is not new.status:
                self.broken.append(f"{what} was {old.status}, and is {new.status}")
            if old.status is JobStatus.RUNNING and new.status is JobStatus.QUEUED:
                self.broken.append(f"{what} ran, and is queued again")
            if old.status is new.status is JobStatus.RUNNING and before.epoch != after.epoch:
                self.broken.append(f"{what} ran, and runs again under the next master")
            starts = old.status is JobStatus.QUEUED and new.status is JobStatus.RUNNING
            if starts and epoch > self._cancelled.get(after.id, epoch):
                self.broken.append(f"{what} starts although the job was cancelled")
            ends = new.status.is_final and not old.status.is_final
            if ends and after.cancel_requested and not all(op.status.is_final for op in after.ops):
                self.broken.append(f"job {after.id} was cancelled, and goes on after {what}")


class Ledger:
    """Looks at each changing call that reaches a node: who may do that, and not a second time (G7)."""

    def __init__(self, disk: JudgedDisk) -> None:
        self._disk = disk
        self._done: set[str] = set()

    def note(
        self, key: str, epoch: int, procedure: Procedure[Any, Any], node: Node, args: Any
    ) -> None:
        """A call is about to be carried out."""
        broken = self._disk.broken
        if (found := _OPCODE_CALL.fullmatch(key)) is not None:
            job_id, index = int(found[1]), int(found[2])
            if key in self._done:
                broken.append(f"{procedure.name} of {key} is done twice")
            self._done.add(key)
            job = self._disk.jobs.get(job_id)
            if job is None or job.ops[index].status is not JobStatus.RUNNING:
                broken.append(f"{procedure.name} of {key}: that the opcode runs is not durable")
            instance = None if job is None else _instance_of(job.ops[index].op)
            if others := self._disk.half_done_before(epoch, instance):
                broken.append(f"job {job_id} acts on {instance} while jobs {others} are half done")
        elif _UNDO_CALL.match(key) and procedure is BLOCKDEV_REMOVE:
            self._check_removal(node, args.disk.uuid)

    def _check_removal(self, node: Node, disk: str) -> None:
        """What is undone, or cleaned up, is never a disk that an instance has there."""
        if name := self._disk.owner(node.uuid, disk):
            self._disk.broken.append(
                f"undoing takes a disk of {name} away that is recorded on {node.name}"
            )


def _instance_of(op: OpCode) -> str | None:
    name: str | None = getattr(op, "instance_name", None)
    return name


class FencedStore(FaultyStore):
    """The store of one of several masters: a greater epoch fences it, and its links may be cut."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        super().__init__(disk, sync_s=0.002)
        self.link = asyncio.Event()
        self.link.set()
        self.own_epoch = 0

    def _sync(self) -> None:
        if self.link.is_set() or not self._queue:
            super()._sync()
        else:
            self._syncing = asyncio.create_task(self._sync_once_linked(), name="waits for its link")

    async def _sync_once_linked(self) -> None:
        try:
            async with asyncio.timeout(QUORUM_LEASE_S):
                await self.link.wait()
        except TimeoutError:
            self._give_up("ten seconds without a majority")
            return
        super()._sync()

    def _write(self, waiting: Any) -> bool:
        if waiting.epoch < self.disk.epoch or not self.link.is_set():
            self._give_up("a greater epoch")
            return False
        return super()._write(waiting)

    def _give_up(self, why: str) -> None:
        self._step_down(why)
        self._fail_queue(CommitUnknown(why))
        self._end_syncing()


class HistoryRpc(WatchedRpc):
    """Calls that take time, get lost, or do not get through; nodes refuse epochs that are over."""

    master: "HistoryMaster"

    async def call(
        self, node: Node, procedure: Procedure[Any, Any], args: Any, *, key: str = ""
    ) -> Any:
        master, history = self.master, self.master.history
        await asyncio.sleep(history.dice.uniform(0.001, 0.05))
        await master.awake.wait()
        if not history.reaches(master, node.name):
            raise RpcFailed(node.name, "no connection", UNREACHABLE)
        if procedure is OS_CREATE and history.disk.running_with_pending():
            # A long script: meanwhile other jobs work on what this one's has left.
            await asyncio.sleep(history.dice.uniform(0, SCRIPT_S))
        if procedure.changes and master.epoch < history.epochs.get(node.name, 0):
            master.depose("a node has promised a greater epoch")
            raise RpcFailed(node.name, "the epoch is over", EPOCH_REFUSED)
        if procedure.changes or key.startswith("earlier"):
            history.epochs[node.name] = max(history.epochs.get(node.name, 0), master.epoch)
        fault = None
        loss = history.script_loss if procedure is OS_CREATE else history.loss
        if procedure is BLOCKDEV_REMOVE and _UNDO_CALL.match(key):
            loss = history.undo_loss
        if procedure.changes and history.dice.random() < loss:
            fault = history.dice.choice(list(Fault))
            self.fail(1, fault)
        if procedure.changes and fault in (None, Fault.LOST_ANSWER):
            history.ledger.note(key, master.epoch, procedure, node, args)
        if procedure is OS_CREATE and fault in (Fault.LOST_CALL, Fault.LOST_ANSWER):
            late = fault is Fault.LOST_CALL
            call = Call(master.epoch, "master", key)
            history.spawn(history.script_goes_on(node.name, args, call, begins_late=late))
        model = history.world.nodes[node.name]
        model.scripts_stay = procedure is OS_CREATE and fault is Fault.LOST_ANSWER
        try:
            return await super().call(node, procedure, args, key=key)
        finally:
            model.scripts_stay = False
            await asyncio.sleep(history.dice.uniform(0.001, 0.02))
            await master.awake.wait()


class HistoryMaster(Master):
    """A master that may be paused, cut off, and replaced while it lives."""

    store_type = FencedStore
    rpc_type = HistoryRpc
    history: "History"

    def join(self, history: "History") -> None:
        self.history = history
        self.awake = asyncio.Event()
        self.awake.set()
        self.is_cut = self.is_over = False
        self.epoch = self._lease.epoch
        assert isinstance(self.rpc, HistoryRpc)
        self.rpc.master = self
        self.queue.on_lost = self.config.on_lost = lambda err: self.depose(err.message)

    @property
    def links(self) -> FencedStore:
        assert isinstance(self.store, FencedStore)
        return self.store

    def depose(self, why: str) -> None:
        """It is the master no more, and its daemon knows it."""
        if not self.is_over:
            self.is_over = True
            self.history.spawn(self.history.bury(self))

    def is_serving(self) -> bool:
        role = self.store.statistics().role
        return not self.is_over and not isinstance(role, Lost | Follower)


class History:
    """One history; `run` raises Violation."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.disk = JudgedDisk()
        self.ledger = Ledger(self.disk)
        self.world = World(ids=CountingIds(), disk=self.disk)
        self.loss = self.dice.choice((0.0, 0.02, 0.15))
        self.script_loss = max(self.loss, self.dice.choice((0.0, 0.0, 0.5)))
        self.undo_loss = max(self.loss, self.dice.choice((0.0, 0.5)))
        self.masters: list[HistoryMaster] = []
        self.current: HistoryMaster | None = None
        self.epochs: dict[str, int] = {}
        self.cut_nodes: set[str] = set()
        self.acknowledged: dict[int, list[OpCode]] = {}
        self.finals: dict[int, JobStatus] = {}
        self.crashed_nodes: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_ending = False
        self._electing = asyncio.Lock()

    # --- what the masters' calls meet ---

    def reaches(self, master: HistoryMaster, node: str) -> bool:
        own = node == node_name(1)
        return own or not (master.is_cut or node in self.cut_nodes)

    async def script_goes_on(self, node: str, args: Any, call: Call, *, begins_late: bool) -> None:
        """The call was given up, but its script runs for a while, or its call arrives only now."""
        model = self.world.nodes[node]
        if begins_late:
            await asyncio.sleep(self.dice.uniform(0.05, 2))
            if call.epoch >= self.epochs.get(node, 0):
                model.scripts_stay = True
                try:
                    await model.handlers()[OS_CREATE.name](args, call)
                except GanetiError:
                    return
                finally:
                    model.scripts_stay = False
        await asyncio.sleep(SCRIPT_S)
        model.scripts.pop(call.key, None)

    async def run_steps(self, services: Services, job_id: int, steps: Any) -> Any:
        """An opcode undoes what it has done: only a master may begin that."""
        master = next(one for one in self.masters if one.config is services.config)
        role = master.store.statistics().role
        if isinstance(role, Lost | Follower):
            self.disk.broken.append(f"job {job_id} is undone by a master that is none any more")
        return await run_steps(services, job_id, steps)

    # --- masters ---

    def spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def elect(self) -> HistoryMaster:
        """A new master takes over, whatever the old one does; no node that it reaches obeys that one then."""
        async with self._electing:
            master = await HistoryMaster.begin(self.world)
            master.join(self)
            for node in self.world.nodes:
                if node not in self.cut_nodes:
                    self.epochs[node] = max(self.epochs.get(node, 0), master.epoch)
            self.masters.append(master)
            self.current = master
            return master

    async def bury(self, master: HistoryMaster) -> None:
        master.is_over = True
        master.die()
        master.awake.set()
        await master.end()
        if master is self.current and not self._is_ending:
            await asyncio.sleep(self.dice.uniform(0.1, 2))
            if master is self.current:
                await self.elect()

    # --- clients ---

    def _operation(self, name: str | None = None) -> OpCode:
        dice = self.dice
        name = name or dice.choice(NAMES)
        node = node_name(dice.randint(1, 3))
        choices: list[Callable[[], OpCode]] = [
            lambda: self._create(name, node),
            lambda: self._create(name, node),
            lambda: OpInstanceRemove(instance_name=name),
            lambda: OpInstanceStartup(instance_name=name),
            lambda: OpInstanceShutdown(instance_name=name),
            lambda: OpInstanceReboot(instance_name=name, reboot_type=RebootType.HARD),
            lambda: OpInstanceMigrate(instance_name=name, target_node=node),
            lambda: OpInstanceMove(instance_name=name, target_node=node),
            lambda: OpInstanceMove(instance_name=name, target_node=node),
            lambda: OpTagsSet(kind="instance", name=name, tags=[f"t{dice.randint(1, 3)}"]),
            lambda: OpTagsDel(kind="instance", name=name, tags=[f"t{dice.randint(1, 3)}"]),
            lambda: OpNodeSetParams(node_name=node_name(3), drained=dice.random() < 0.5),
            lambda: OpTestDelay(duration=dice.random()),
        ]
        return dice.choice(choices)()

    def _create(self, name: str, node: str, template: str = "") -> OpCode:
        return OpInstanceCreate(
            instance_name=name,
            pnode=node,
            disk_template=template or self.dice.choice(("sharedfile", "file")),
            disks=[DiskRequest(size=64)] * self.dice.randint(1, 2),
            nics=[NicRequest()],
            os_type="tiny",
            beparams={"memory": 64},
        )

    async def _client(self) -> None:
        master = self.current
        while not self._is_ending:
            await asyncio.sleep(self.dice.uniform(0.0, 1.2))
            if master is None or not master.is_serving() or self.dice.random() < 0.1:
                master = self.current
            if master is not None and master.is_serving():
                await self._ask(master)

    async def _ask(self, master: HistoryMaster) -> None:
        if self.dice.random() < 0.15:
            for ops in self._there_and_back(master.snapshot):
                await self._submit(master, ops)
                await asyncio.sleep(self.dice.uniform(0.1, 1))
        else:
            count = self.dice.choice((1, 1, 2, 3))
            await self._submit(master, [self._operation() for _ in range(count)])

    def _there_and_back(self, snapshot: Snapshot) -> list[list[OpCode]]:
        """A job that has moved an instance and works on others while a second job moves the first back."""
        movable = [one for one in snapshot.instances.values() if one.disk_template == "file"]
        if not movable:
            return [[self._create(self.dice.choice(NAMES), node_name(1), template="file")]]
        instance = self.dice.choice(movable)
        here = snapshot.nodes[instance.primary_node].name
        there = self.dice.choice(
            [node_name(number) for number in (1, 2, 3) if node_name(number) != here]
        )
        others = [name for name in NAMES if name != instance.name]
        work = [self._create(name, self.dice.choice((here, there))) for name in others]
        to, back = (
            OpInstanceMove(instance_name=instance.name, target_node=node) for node in (there, here)
        )
        return [[to, self.dice.choice(work)], [back]]

    async def _submit(self, master: HistoryMaster, ops: list[OpCode]) -> None:
        try:
            async with asyncio.timeout(self.dice.uniform(1, 15)):
                await master.awake.wait()
                job_id = await master.queue.submit(ops)
                await master.awake.wait()
        except (GanetiError, TimeoutError, asyncio.CancelledError):
            return  # whether it was taken is not known; a master that ends cancels who waits
        if job_id in self.acknowledged:
            raise Violation(f"job id {job_id} is given out again")
        self.acknowledged[job_id] = ops
        if self.dice.random() < 0.15:
            await self._cancel(master, job_id)
        if self.dice.random() < 0.5:
            await self._look(master, job_id)

    async def _cancel(self, master: HistoryMaster, job_id: int) -> None:
        """One administrator, or two at once."""
        times = self.dice.randint(1, 2)
        cancels = [self._try(lambda: master.queue.cancel(job_id)) for _ in range(times)]
        await asyncio.gather(*cancels)

    async def _look(self, master: HistoryMaster, job_id: int) -> None:
        """Follow a job for a while; a final status that was shown stays (G6)."""
        previous: list[Any] | None = None

        async def follow() -> None:
            nonlocal previous
            for _ in range(20):
                answer = await master.queue.wait_for_change(
                    job_id, lambda view: [view.status], previous, 2**40, 2.0
                )
                previous = answer[0] if answer else previous
                if previous and JobStatus(previous[0]).is_final:
                    self._saw(job_id, JobStatus(previous[0]))
                    return

        await self._try(follow)

    def _saw(self, job_id: int, status: JobStatus) -> None:
        if self.finals.setdefault(job_id, status) is not status:
            raise Violation(f"job {job_id} ended as {self.finals[job_id]}, and now as {status}")

    async def _try(self, act: Callable[[], Awaitable[Any]]) -> None:
        try:
            async with asyncio.timeout(20):
                await act()
        except (GanetiError, TimeoutError, asyncio.CancelledError):
            return

    # --- faults ---

    async def _faults(self) -> None:
        faults = (
            self._kill,
            self._kill_with_pending_undo,
            self._pause,
            self._cut_off,
            self._take_over,
            self._lose_node,
            self._crash_node,
            self._fill_disk,
            self._unknown_commit,
            self._unknown_commit,
        )
        while not self._is_ending:
            await asyncio.sleep(self.dice.uniform(0.2, 5))
            if self.current is not None and self.current.is_serving() and not self._is_ending:
                await self.dice.choice(faults)(self.current)

    async def _kill(self, master: HistoryMaster) -> None:
        master.depose("killed")

    async def _kill_with_pending_undo(self, master: HistoryMaster) -> None:
        """If there is such a moment soon: while an opcode runs whose job has left something to be undone.

        Preferably when that is somebody's again: another job has brought back what it was to remove.
        """
        for _ in range(200):
            await asyncio.sleep(0.05)
            left = [step for job in self.disk.running_with_pending() for step in job.pending]
            taken = [step for step in left if self._is_taken(step)]
            if taken or (left and self.dice.random() < 0.02):
                break
        master.depose("killed")

    def _is_taken(self, step: UndoStep) -> bool:
        if step.procedure != RemoveDisk.kind:
            return False
        return bool(self.disk.owner(step.arguments["node"], step.arguments["disk"]["uuid"]))

    async def _pause(self, master: HistoryMaster) -> None:
        """SIGSTOP; after a while it wakes up, and perhaps there is another one."""
        master.awake.clear()
        master.links.link.clear()
        await asyncio.sleep(self.dice.uniform(0.1, 6))
        if self.dice.random() < 0.5 and self.current is master:
            await self.elect()
            await asyncio.sleep(self.dice.uniform(0.0, 6))
        master.links.link.set()
        master.awake.set()

    async def _cut_off(self, master: HistoryMaster) -> None:
        """The master is alone; the others have another one, or not."""
        master.is_cut = True
        master.links.link.clear()
        await asyncio.sleep(self.dice.uniform(0.1, 8))
        if self.dice.random() < 0.7 and self.current is master:
            await self.elect()
            await asyncio.sleep(self.dice.uniform(0.0, 8))
        master.is_cut = False
        master.links.link.set()

    async def _take_over(self, master: HistoryMaster) -> None:
        await self.elect()

    async def _lose_node(self, master: HistoryMaster) -> None:
        node = node_name(self.dice.randint(2, 3))
        self.cut_nodes.add(node)
        await asyncio.sleep(self.dice.uniform(0.1, 6))
        self.cut_nodes.discard(node)

    async def _crash_node(self, master: HistoryMaster) -> None:
        node = node_name(self.dice.randint(1, 3))
        self.crashed_nodes.add(node)
        self.world.nodes[node].guests.clear()
        self.world.nodes[node].scripts.clear()

    async def _fill_disk(self, master: HistoryMaster) -> None:
        master.store.set_full(full=True)
        await asyncio.sleep(self.dice.uniform(0.1, 4))
        master.store.set_full(full=False)

    async def _unknown_commit(self, master: HistoryMaster) -> None:
        fault = Unknown(written=self.dice.random() < 0.5)
        master.store.inject(fault, after=self.dice.randint(0, 4))

    # --- the whole ---

    async def run(self) -> int:
        """How many jobs were acknowledged."""
        loop = asyncio.get_running_loop()
        problems: list[BaseException] = []

        def failed(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            found = context.get("exception") or Violation(str(context))
            if not isinstance(found, GanetiError):  # of a request whose client has given up
                problems.append(found)

        loop.set_exception_handler(failed)
        await self.elect()
        workers = [asyncio.create_task(self._client()) for _ in range(CLIENTS)]
        workers.append(asyncio.create_task(self._faults()))
        done, _running = await asyncio.wait(
            workers, timeout=FAULTS_S, return_when=asyncio.FIRST_EXCEPTION
        )
        self._is_ending = True
        await asyncio.wait(workers, timeout=120)
        for worker in done:
            worker.result()
        await self._settle()
        for worker in workers:
            worker.result()
        if problems:
            raise problems[0]
        self._check_judges()
        return len(self.acknowledged)

    async def _settle(self) -> None:
        """All is well again: the last master ends every job, and nothing is lost or left over."""
        self.loss = self.script_loss = self.undo_loss = 0.0
        self.cut_nodes.clear()
        for master in self.masters:
            master.is_cut = False
            master.links.link.set()
            master.awake.set()
            await self.bury(master)
        async with asyncio.timeout(60):
            while self._tasks:
                await asyncio.wait(list(self._tasks))
        last = await self.elect()
        async with asyncio.timeout(DRAIN_S):
            await last.idle()
        await last.nothing_is_left()
        try:
            self._check(last)
            await self._clear(last)
        finally:
            await self.bury(last)

    def _check_judges(self) -> None:
        if self.disk.broken:
            raise Violation(self.disk.broken[0])

    def _check(self, master: HistoryMaster) -> None:
        self._check_judges()
        views: dict[int, JobView] = {}
        for job_id, ops in self.acknowledged.items():
            view = master.queue.view(job_id)
            said = [op.summary() for op in ops]
            if view is None:
                raise Violation(f"job {job_id} ({said}) was acknowledged and is not there")
            if [state.op.summary() for state in view.ops] != said:
                raise Violation(f"job {job_id} is another one than was acknowledged")
            if not view.status.is_final:
                raise Violation(f"job {job_id} does not end: {view.status}")
            views[job_id] = view
        for job_id, status in self.finals.items():
            if views[job_id].status is not status:
                raise Violation(f"job {job_id} was seen as {status}, and is {views[job_id].status}")
        master.check_nothing_is_held()
        self._check_disks(master, [master.queue.view(one) for one in master.queue.ids()])
        self._check_guests(master)

    def _check_disks(self, master: HistoryMaster, views: list[JobView | None]) -> None:
        known = {
            str(disk.logical_id[1])
            for instance in master.snapshot.instances.values()
            for disk in instance.disks
        }
        results = [str(op.result) for view in views if view is not None for op in view.ops]
        faults = ("internal error", "lost a disk under its hands")
        if broken := [one for one in results if any(fault in one for fault in faults)]:
            raise Violation(broken[0])
        left = self.world.disks() - known
        if left:
            raise Violation(f"disks that belong to nobody: {sorted(left)}")
        for node in master.snapshot.nodes.values():
            there = {
                str(disk.logical_id[1])
                for instance in master.snapshot.instances.values()
                if node.uuid in (*instance.all_nodes, instance.migrating_to)
                for disk in instance.disks
            }
            if more := set(self.world.nodes[node.name].local.disks) - there:
                raise Violation(f"disks on {node.name} that belong elsewhere: {sorted(more)}")
        removed = {
            op.instance_name
            for view in views
            if view is not None
            for op in (state.op for state in view.ops if state.status is JobStatus.ERROR)
            if isinstance(op, OpInstanceRemove)
        }
        for instance in master.snapshot.instances.values():
            missing = {str(disk.logical_id[1]) for disk in instance.disks} - self.world.disks()
            if missing and instance.name not in removed:
                raise Violation(f"{instance.name} has lost {sorted(missing)}")

    def _check_guests(self, master: HistoryMaster) -> None:
        self.world.check_no_guest_runs_twice()
        for node in master.snapshot.nodes.values():
            for uuid, guest in self.world.nodes[node.name].guests.items():
                instance = master.snapshot.instances.get(uuid)
                if instance is None:
                    raise Violation(f"{node.name} runs {guest.spec.name}, which does not exist")
                places = (instance.primary_node, instance.migrating_to)
                if node.uuid not in places:
                    raise Violation(f"{node.name} runs {guest.spec.name}, which belongs elsewhere")

    async def _clear(self, master: HistoryMaster) -> None:
        """Every instance can still be removed, with all that it has."""
        before = self.world.disks()
        for instance in list(master.snapshot.instances.values()):
            if instance.migrating_to is not None:
                await master.run(OpInstanceMigrate(instance_name=instance.name, cleanup=True))
            view = await master.run(OpInstanceRemove(instance_name=instance.name))
            if view.status is not JobStatus.SUCCESS:
                raise Violation(f"{instance.name} cannot be removed: {view.ops[-1].result}")
            gone = {str(disk.logical_id[1]) for disk in instance.disks}
            if gone & self.world.disks():
                raise Violation(f"{instance.name} was removed, and its disks were not")
            before -= gone
        if self.world.disks() != before:
            raise Violation("removing instances touched other disks")


def run_history(seed: int) -> int:
    """How many jobs were acknowledged; Violation, or whatever broke."""
    history = History(seed)
    with (
        mock.patch.object(context, "run_steps", history.run_steps),
        asyncio.Runner(debug=False, loop_factory=StrictVirtualTimeLoop) as runner,
    ):
        return runner.run(history.run())
