"""A cluster in one process, without sockets: the real queue, locks, configuration and units over model nodes.

`World` is what survives the master's death: the disk of the state, and the nodes. `Master` is one
life of the master; `Master.restart` is what the next one does with what it finds.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Self

from ganeti.base.errors import ExecError, NotMaster
from ganeti.config.config import Config
from ganeti.config.fill import instance_spec
from ganeti.config.snapshot import Snapshot
from ganeti.config.ssconf_writer import ssconf_values
from ganeti.config.transaction import Draft, put_row
from ganeti.jobs.queue import JobQueue
from ganeti.jobs.view import JobView
from ganeti.locking.manager import LockManager
from ganeti.model.disk_templates import ENABLED_BY_DEFAULT
from ganeti.model.names import JobStatus
from ganeti.model.objects import (
    Cluster,
    GroupUuid,
    Instance,
    InstanceUuid,
    Node,
    NodeGroup,
    NodeUuid,
)
from ganeti.model.opcodes import OpCode
from ganeti.model.stored import Stored
from ganeti.query.job_filters import job_rules
from ganeti.recovery.status import RecoveryStatus
from ganeti.rpc.procedures.files import WRITE_SSCONF, SsconfArgs
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.stale_work import StaleWorkFence
from ganeti.simulation.counting_ids import CountingIds
from ganeti.simulation.faulty_store import FaultyStore, MemoryDisk
from ganeti.simulation.nodes.model import ModelNode
from ganeti.simulation.nodes.storage import SharedDirectory
from ganeti.simulation.virtual_time import LoopClock
from ganeti.store.backend import become_master
from ganeti.store.encoding import encode_ceiling
from ganeti.store.interface import (
    JOB_ID_CEILING_KEY,
    META_KIND,
    Lease,
    Lost,
    Put,
    Transaction,
)
from ganeti.units.node_data import NodeData
from ganeti.units.placements import Placements
from ganeti.units.processor import Processor
from ganeti.units.services import (
    BuiltInAllocator,
    NothingWatched,
    RecoveryService,
    Services,
    WebhookPost,
    no_secret,
)
from tests.support.fake_rpc import FakeRpc

CLUSTER = "00000000-0000-4000-9000-000000000001"
GROUP = GroupUuid("00000000-0000-4000-9000-00000000000a")


def _uuid(number: int) -> NodeUuid:
    return NodeUuid(f"00000000-0000-4000-9000-0000000000b{number}")


NODES = tuple(map(_uuid, (1, 2, 3)))


def node_name(number: int) -> str:
    return f"node{number}.example.com"


def certificate(number: int) -> str:
    return f"{number}" * 64


def _first_rows(templates: tuple[str, ...]) -> list[Put]:
    cluster = Cluster(
        uuid=CLUSTER,
        name="cluster.example.com",
        master_node=NODES[0],
        enabled_hypervisors=("fake", "kvm"),
        enabled_disk_templates=templates,
        ipolicy={} if templates == ENABLED_BY_DEFAULT else {"disk-templates": list(templates)},
        file_storage_dir="/local",
        vg_name="xenvg" if "plain" in templates else "",
        shared_file_storage_dir="/shared",
        candidate_pool_size=1,
    )
    nodes = [
        Node(
            uuid=uuid,
            name=node_name(number),
            primary_ip=f"192.0.2.{number}",
            secondary_ip=f"192.0.2.{number}",
            group=GROUP,
            certificate=certificate(number),
            master_candidate=number == 1,
        )
        for number, uuid in enumerate(NODES, 1)
    ]
    things: list[Stored] = [cluster, NodeGroup(uuid=GROUP, name="default"), *nodes]
    return [put_row(thing) for thing in things]


@dataclass
class World:
    """The nodes and the disk of the state; a fourth node has joined and is not in the cluster yet."""

    disk: MemoryDisk = field(default_factory=MemoryDisk)
    archive: dict[int, bytes] = field(default_factory=dict)
    ids: CountingIds = field(default_factory=CountingIds)
    shared: SharedDirectory = field(default_factory=SharedDirectory)
    nodes: dict[str, ModelNode] = field(default_factory=dict)
    built_in: BuiltInAllocator | None = None
    """None: also the allocator hail is a program of the master's node."""
    webhook_post: WebhookPost | None = None
    node_data_age_s: float = 0.0
    domain_secret: str = ""
    node_type: type[ModelNode] = ModelNode
    enabled_disk_templates: tuple[str, ...] = ENABLED_BY_DEFAULT

    def __post_init__(self) -> None:
        for number in range(1, 5):
            name = node_name(number)
            self.nodes[name] = self.node_type(name, CLUSTER, self.shared)
            self.nodes[name].uuid = _uuid(number)
        peers = {f"192.0.2.{number}": self.node(number) for number in range(1, 5)}
        for node in self.nodes.values():
            node.peers = {**peers, **self.nodes}

    def node(self, number: int) -> ModelNode:
        return self.nodes[node_name(number)]

    def disks(self) -> set[str]:
        """Every disk on every node."""
        local = [path for node in self.nodes.values() for path in node.local.disks]
        return {*local, *self.shared.disks}

    def where(self, uuid: str) -> dict[str, str]:
        """Node -> state, of every end of a guest."""
        return {
            name: node.guests[uuid].state
            for name, node in self.nodes.items()
            if uuid in node.guests
        }

    def check_no_guest_runs_twice(self) -> None:
        """G5, to be held after every single act; and nothing else that must never happen has."""
        for node in self.nodes.values():
            assert node.violations == []
        for uuid in {uuid for node in self.nodes.values() for uuid in node.guests}:
            running = [
                name
                for name, state in self.where(uuid).items()
                if state not in ("incoming", "postmigrate")
            ]
            if len(running) > 1:
                raise AssertionError(f"{uuid} runs on {running}")


class _Archive:
    def __init__(self, content: dict[int, bytes]) -> None:
        self._content = content

    async def append(self, jobs: Sequence[tuple[int, bytes]]) -> None:
        self._content.update(jobs)

    async def get(self, job_id: int) -> bytes | None:
        return self._content.get(job_id)

    async def ids(self, *, limit: int, below: int | None) -> list[int]:
        ids = sorted(self._content, reverse=True)
        return [one for one in ids if below is None or one < below][:limit]

    async def greatest_id(self) -> int:
        return max(self._content, default=0)


class WatchedRpc(FakeRpc):
    """Checks after every act that no guest runs twice, and can let the master die around one."""

    def __init__(self, world: World, is_dead: Callable[[], bool], epoch: int = 1) -> None:
        nodes = {name: node.handlers() for name, node in world.nodes.items()}
        super().__init__(nodes, lambda: (epoch, "master"))
        self._world = world
        self._is_dead = is_dead
        self.before_act: Callable[[int], None] | None = None
        self.after_act: Callable[[int], None] | None = None

    async def call(
        self, node: Node, procedure: Procedure[Any, Any], args: Any, *, key: str = ""
    ) -> Any:
        number = len(self.changing_calls) + 1
        if procedure.changes and self.before_act is not None:
            self.before_act(number)
        self._check_alive()
        try:
            return await super().call(node, procedure, args, key=key)
        finally:
            self._world.check_no_guest_runs_twice()
            if procedure.changes and self.after_act is not None:
                self.after_act(number)
            self._check_alive()

    def _check_alive(self) -> None:
        if self._is_dead():
            raise NotMaster("this master is dead")

    def acts(self) -> list[str]:
        """The changing procedures that were called, in order."""
        return [call.procedure for call in self.changing_calls]


class PushedFiles:
    """The facts that nodes have as files, as if the distributor were always done."""

    def __init__(self, config: Config, rpc: WatchedRpc) -> None:
        self._config = config
        self._rpc = rpc
        self.late: list[str] = []

    @property
    def position(self) -> int:
        return self._config.snapshot.position

    async def push_now(self, node: Node) -> None:
        snapshot = self._config.snapshot
        args = SsconfArgs(position=snapshot.position, values=ssconf_values(snapshot))
        await self._rpc.call(node, WRITE_SSCONF, args, key="ssconf")

    async def settle(self, limit_s: float) -> list[str]:
        assert limit_s <= 3
        return self.late


@dataclass
class PresentRecovery:
    """The recovery of a master; a test that has a driver puts it here."""

    driver: RecoveryService = field(default_factory=NothingWatched)

    def status(self) -> RecoveryStatus:
        return self.driver.status()

    async def confirm_fenced(self, node: NodeUuid, by: str) -> None:
        await self.driver.confirm_fenced(node, by)

    def letting_join(self, instance: InstanceUuid) -> AbstractContextManager[None]:
        return self.driver.letting_join(instance)


class RecordedCandidates:
    """Who was made fit to be a candidate, and who not any more."""

    def __init__(self) -> None:
        self.acts: list[tuple[str, str]] = []
        self.broken: set[str] = set()

    async def promote(self, node: Node) -> None:
        if node.name in self.broken:
            raise ExecError(f"{node.name} cannot hold the state")
        self.acts.append(("promote", node.name))

    async def enforce(self, node: Node) -> None:
        self.acts.append(("enforce", node.name))

    async def demote(self, node: Node) -> None:
        self.acts.append(("demote", node.name))
        if node.name in self.broken:
            raise ExecError(f"{node.name} does not listen")


class Master:
    """One life of the master."""

    store_type: type[FaultyStore] = FaultyStore
    rpc_type: type[WatchedRpc] = WatchedRpc

    def __init__(self, world: World, store: FaultyStore, lease: Lease, config: Config) -> None:
        self.world = world
        self.store = store
        self.config = config
        clock = LoopClock()
        self.locks = LockManager(clock)
        self.rpc = self.rpc_type(world, lambda: isinstance(store.role, Lost), lease.epoch)
        self.placements = Placements()
        self.ssconf = PushedFiles(config, self.rpc)
        self.candidates = RecordedCandidates()
        self.recovery = PresentRecovery()
        self.services = Services(
            config,
            StaleWorkFence(self.rpc),
            world.ids,
            clock,
            self.placements,
            self.ssconf,
            self.candidates,
            hook_reports=self.rpc.hook_reports,
            built_in=world.built_in,
            webhook_post=world.webhook_post,
            node_data=NodeData(world.node_data_age_s, self.rpc.node_changes),
            domain_secret=lambda: world.domain_secret or no_secret(),
            recovery=self.recovery,
            pending_undo=lambda: self.queue.pending_undo(),  # noqa: PLW0108 - the queue comes later
        )
        self.processor = Processor(self.services)
        self.queue = JobQueue(
            store,
            lease,
            config,
            self.locks,
            self.processor,
            clock=clock,
            archive=_Archive(world.archive),
            raise_ceiling=self._raise_ceiling,
            make_rulebook=job_rules,
        )
        self._lease = lease

    async def _raise_ceiling(self, ceiling: int) -> None:
        row = Put(META_KIND, JOB_ID_CEILING_KEY, encode_ceiling(ceiling))
        await self.store.commit(self._lease, Transaction((row,)))

    @classmethod
    async def begin(cls, world: World) -> Self:
        store = cls.store_type(world.disk)
        lease = await become_master(store)
        if not world.disk.rows:
            await store.commit(lease, Transaction(tuple(_first_rows(world.enabled_disk_templates))))
        config = await Config.load(store, lease, LoopClock(), world.ids)
        master = cls(world, store, lease, config)
        await master.queue.load()
        return master

    async def restart(self) -> Self:
        """Die, and let the next one begin."""
        self.die()
        await self.end()
        return await type(self).begin(self.world)

    def die(self) -> None:
        """Be gone without notice."""
        self.store.crash()

    def die_at_act(self, number: int, *, is_done: bool) -> None:
        """Be gone just before, or just after, the act of that number on a node."""

        def die(act: int) -> None:
            if act == number:
                self.die()

        if is_done:
            self.rpc.after_act = die
        else:
            self.rpc.before_act = die

    async def is_dead_after_a_while(self) -> bool:
        """Let everything happen that can; whether the master died of it."""
        await asyncio.sleep(60)
        return isinstance(self.store.statistics().role, Lost)

    async def end(self) -> None:
        await self.queue.close()
        await self.config.close()
        await self.store.close()

    @property
    def snapshot(self) -> Snapshot:
        return self.config.snapshot

    def instance(self, name: str) -> Instance:
        found = self.snapshot.instance_by_name(name)
        assert found is not None, f"{name} is not in the configuration"
        return found

    def node(self, number: int) -> Node:
        return self.snapshot.nodes[NODES[number - 1]]

    async def change(self, fn: Callable[[Draft], object]) -> None:
        """Change the configuration beside all jobs."""
        await self.config.change(fn)

    async def submit(self, op: OpCode) -> int:
        return await self.queue.submit([op])

    async def run(self, op: OpCode) -> JobView:
        """Submit, and wait for the end."""
        return await self.final(await self.submit(op))

    async def final(self, job_id: int) -> JobView:
        previous: list[Any] | None = None
        async with asyncio.timeout(3600):
            while True:
                view = self.queue.view(job_id)
                assert view is not None
                if view.status.is_final:
                    return view
                answer = await self.queue.wait_for_change(
                    job_id, lambda view: [view.status], previous, 2**40, 10.0
                )
                previous = answer[0] if answer else previous

    async def idle(self) -> None:
        """Wait until every job has ended, and those that they submitted."""
        ended: set[int] = set()
        while new := set(self.queue.ids()) - ended:
            for job_id in sorted(new):
                await self.final(job_id)
            ended |= new

    async def nothing_is_left(self) -> None:
        """Wait until all that ended jobs could not undo is undone."""
        async with asyncio.timeout(3600):
            while self.queue.pending_undo():  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(1)

    def check_nothing_is_held(self) -> None:
        """No lock, no reservation and no placement is left when no job runs (G11)."""
        assert self.config.reservations.count() == 0
        assert self.placements.pending() == []
        assert self.locks.owners() == frozenset()

    def check_disks_are_those_of_the_configuration(self) -> None:
        """What is on the nodes is what the configuration knows (G11)."""
        known = {str(disk.logical_id[1]) for disk, _ in self.snapshot.all_disks()}
        assert self.world.disks() == known
        for node in self.snapshot.nodes.values():
            local = {
                str(disk.logical_id[1])
                for disk, nodes in self.snapshot.all_disks()
                if disk.template == "file" and node.uuid in nodes
            }
            assert set(self.world.nodes[node.name].local.disks) == local, node.name

    def check_guests_are_those_of_the_configuration(self) -> None:
        """Exactly the instances that are to be up run, where they should, and nothing else is there."""
        for node in self.snapshot.nodes.values():
            wanted = {
                instance.uuid
                for instance in self.snapshot.instances_on(node.uuid)
                if instance.admin_state == "up"
            }
            assert set(self.world.nodes[node.name].guests) == wanted, node.name

    def check_guests_have_what_the_configuration_says(self) -> None:
        """Every running guest has the disks and NICs of its instance, in order."""
        for instance in self.snapshot.instances.values():
            guest = self.world.nodes[self.snapshot.nodes[instance.primary_node].name].guests.get(
                instance.uuid
            )
            if guest is not None:
                wanted = instance_spec(self.snapshot, instance)
                assert guest.spec.disks == wanted.disks
                assert guest.spec.nics == wanted.nics

    def check(self) -> None:
        """Everything is as the configuration says, and nothing is left over."""
        self.check_nothing_is_held()
        self.check_disks_are_those_of_the_configuration()
        self.check_guests_are_those_of_the_configuration()
        assert not any(one.migrating_to for one in self.snapshot.instances.values())


def succeeded(view: JobView) -> Any:
    """The result of the last opcode."""
    assert view.status is JobStatus.SUCCESS, view.ops[-1].result
    return view.ops[-1].result


def failed(view: JobView) -> tuple[str, list[Any]]:
    """The error's name and its arguments."""
    assert view.status is JobStatus.ERROR, view.status
    name, arguments = view.ops[-1].result
    json.dumps(arguments)
    return name, arguments


def said(view: JobView) -> str:
    """Everything in the job's log."""
    return "\n".join(str(entry[3]) for entry in view.log_after(0))
