"""The state moves between the back ends though the command dies at any step: nothing is lost, one master.

The command runs in a process of its own with a real etcd, a real database and real registers of three nodes, and
ends as by kill -9 before or after its n-th request, vote, file or transaction. What the master daemon does, the
test does.
"""

import asyncio
import functools
import os
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.clock import SystemClock
from ganeti.base.errors import GanetiError
from ganeti.base.paths import Paths
from ganeti.base.state_kinds import ExternalServers
from ganeti.bootstrap import switch_state
from ganeti.config.transaction import put_row
from ganeti.model.objects import NodeUuid
from ganeti.model.stored import Stored
from ganeti.store import restoring
from ganeti.store.backend import StateBackend, become_master
from ganeti.store.backends import join_cluster, open_state
from ganeti.store.etcd.back_end import EtcdBackEnd
from ganeti.store.etcd.backend import EtcdBackend
from ganeti.store.etcd.gateway import Gateway
from ganeti.store.etcd.keys import Keys
from ganeti.store.etcd.messages import put
from ganeti.store.etcd.settings import Access
from ganeti.store.etcd.upkeep import EtcdOptions
from ganeti.store.interface import (
    META_KIND,
    Campaign,
    CampaignKind,
    Follower,
    Identity,
    Lease,
    Master,
    MemberChange,
    Put,
    Row,
    Transaction,
)
from ganeti.store.ports import NoPeers, Ports
from ganeti.store.register import RegisterFile
from ganeti.store.settings import state_settings
from tests.support.etcd_servers import EtcdServers, etcd_servers
from tests.support.patience import patience
from tests.support.switching import NoDaemons, Registers, SteppedSwitch
from tests.unit.config.sample import NODES, sample_cluster, sample_group, sample_node

pytestmark = [pytest.mark.cluster, pytest.mark.in_turn, pytest.mark.timeout(600)]
CLUSTER = "99999999-2222-4333-8444-555555555555"
ME, OTHER = NODES[0], NODES[1]
DIED = 9
ROWS = 300
MOST_STEPS = 200


class Scene:
    """One candidate's files, three registers, an etcd, and what must never be lost."""

    def __init__(self, root: Path, servers: EtcdServers) -> None:
        self.paths, self.servers = Paths(root / "node1"), servers
        for directory in (self.paths.data, self.paths.log, self.paths.run):
            directory.mkdir(parents=True)
        self.registers = Registers(
            ME, {node: RegisterFile(root / f"register-{node}") for node in NODES}
        )
        # This node's own is where everything expects it.
        self.registers.files[ME] = RegisterFile(self.paths.register)
        self.identity = Identity(CLUSTER, ME)
        self.written: dict[str, bytes] = {}
        self.epoch = 0
        self.number = 0

    def ports(self) -> Ports:
        return Ports(self.registers, NoPeers(), self.registers.files[ME])

    async def begin(self) -> None:
        """A cluster of three nodes in the embedded store; the other candidate is away."""
        for node, register in self.registers.files.items():
            join_cluster(register, Identity(CLUSTER, node))
        things: list[Stored] = [sample_cluster(), sample_group()]
        things += [sample_node(number) for number in (1, 2, 3)]
        opened = await open_state(self.paths, self.identity, self.ports())
        store = opened.backend
        lease = await become_master(store)
        for node in NODES[1:]:
            change = MemberChange(node, is_voter=True, is_candidate=node == OTHER)
            await store.change_members(lease, change)
        rows = [
            *(put_row(thing) for thing in things),
            *(Put("instance", f"i{n}", bytes(500)) for n in range(ROWS)),
        ]
        for start in range(0, len(rows), 50):
            await store.commit(lease, Transaction(tuple(rows[start : start + 50])))
        self.written = {row.key: row.value for row in rows}
        self.epoch = lease.epoch
        await store.close()

    async def as_master(self, act: Callable[[StateBackend, Lease], Awaitable[None]]) -> None:
        """What the daemon does when it starts where the state is said to be; NotMaster."""
        opened = await open_state(self.paths, self.identity, self.ports())
        try:
            lease = await become_master(opened.backend, Campaign(CampaignKind.RESUME))
            await opened.fence.promise(lease.epoch)
            await act(opened.backend, lease)
        finally:
            await opened.backend.close()

    async def serve(self) -> None:
        """Be the master: everything is there, in a new epoch, and something is written."""

        async def look_and_write(store: StateBackend, lease: Lease) -> None:
            assert await rows_of(store) == self.written
            assert lease.epoch > self.epoch
            self.epoch, self.number = lease.epoch, self.number + 1
            row = Put("instance", f"w{self.number}", b"written by a master")
            await store.commit(lease, Transaction((row,)))
            self.written[row.key] = row.value

        await self.as_master(look_and_write)

    async def move(self, kind: str) -> None:
        """The command."""
        switch = SteppedSwitch(
            self.paths, NoDaemons(self.paths), SystemClock(), self.identity, lambda _line: None
        )
        await switch.resumed()
        if state_settings(self.paths).kind == kind:
            await switch.clean()
        else:
            external = ExternalServers(self.servers.endpoints) if kind == "etcd" else None
            await switch.move(kind, external)

    async def candidate(self, node: NodeUuid) -> EtcdBackend:
        """The back end of a node that believes the state to be in etcd."""
        access = Access(self.servers.endpoints)
        options = EtcdOptions(is_managed=False)
        backend = EtcdBackend(Gateway(access), Identity(CLUSTER, node), options=options)
        await backend.start()
        return backend

    async def nobody_is_elected_in_etcd(self) -> None:
        """The other candidate, who has not heard of the move, is not the master of what is left there."""
        backend = await self.candidate(OTHER)
        try:
            await asyncio.sleep(0.7)
            assert isinstance(backend.statistics().role, Follower)
        finally:
            await backend.close()

    async def let_leases_end(self) -> None:
        """What a while does."""
        gateway = Gateway(Access(self.servers.endpoints))
        await gateway.delete(Keys(CLUSTER).leader)
        await gateway.close()


async def rows_of(store: StateBackend) -> dict[str, bytes]:
    async with aclosing(store.load()) as items:
        return {
            item.key: item.value
            async for item in items
            if isinstance(item, Row) and item.kind != META_KIND
        }


class Death:
    """Ends the process at the n-th step."""

    def __init__(self, number: int) -> None:
        self.left = number

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            os._exit(DIED)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function with a step before and after it."""

        @functools.wraps(function)
        def stepped(*args: Any, **kwargs: Any) -> Any:
            self.step()
            done = function(*args, **kwargs)
            self.step()
            return done

        return stepped

    def around_async(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def stepped(*args: Any, **kwargs: Any) -> Any:
            self.step()
            done = await function(*args, **kwargs)
            self.step()
            return done

        return stepped


def moved_until(scene: Scene, kind: str, step: int) -> bool:
    """Run the command in a child that dies at a step; whether it has ended before that step."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, DIED), f"the command failed at step {step}"
        return code == 0
    try:
        death = Death(step)
        places: list[tuple[Any, str]] = [
            (RegisterFile, "decide"),
            (restoring, "replace_state"),
            (switch_state, "keep_state_settings"),
            (EtcdBackEnd, "retire"),
        ]
        for owner, name in places:
            setattr(owner, name, death.around(getattr(owner, name)))
        places = [(Gateway, "_exchange"), (NoDaemons, "stop")]
        for owner, name in places:
            setattr(owner, name, death.around_async(getattr(owner, name)))
        asyncio.run(scene.move(kind))
        os._exit(0)
    except BaseException:  # noqa: BLE001 - a child must not go on with the tests
        traceback.print_exc()
        os._exit(1)


@pytest.fixture(scope="module")
def servers() -> Iterator[EtcdServers]:
    with etcd_servers(1) as running:
        yield running


@pytest.fixture
def scene(tmp_path: Path, servers: EtcdServers, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(tmp_path, servers)
    monkeypatch.setattr(switch_state, "_asked", made.registers.asked)
    monkeypatch.setattr("ganeti.base.tls.client_context", lambda *_files: None)
    asyncio.run(made.begin())
    return made


def swept(scene: Scene, every: int) -> dict[str, int]:
    """Let the command die at each n-th step there and back; how many steps each way has."""
    steps: dict[str, int] = {}
    for kind in ("etcd", "embedded"):
        for step in range(1, MOST_STEPS, every):
            ended = moved_until(scene, kind, step)
            asyncio.run(scene.let_leases_end())
            if kind == "embedded" == state_settings(scene.paths).kind:
                asyncio.run(scene.nobody_is_elected_in_etcd())
            if step // every % 2:
                # The daemon may be started before the command is repeated.
                asyncio.run(served_or_refused(scene))
            asyncio.run(scene.move(kind))
            assert state_settings(scene.paths).kind == kind
            asyncio.run(scene.serve())
            if ended:
                steps[kind] = step
                break
            asyncio.run(scene.move("embedded" if kind == "etcd" else "etcd"))
            asyncio.run(scene.serve())
        asyncio.run(scene.move(kind))
    return steps


async def served_or_refused(scene: Scene) -> None:
    """Nobody is the master, or it has everything."""
    try:
        async with asyncio.timeout(3 * patience()):
            await scene.serve()
    except (GanetiError, TimeoutError):
        return


@pytest.mark.requirement("G1", "G2", "G4", "G8")
def test_the_command_dies_at_every_seventh_step_and_nothing_is_lost(scene: Scene) -> None:
    steps = swept(scene, 7)
    assert min(steps.values()) > 40, steps


@pytest.mark.soak
@pytest.mark.requirement("G1", "G2", "G4", "G8")
def test_the_command_dies_at_every_step_and_nothing_is_lost(scene: Scene) -> None:
    swept(scene, 1)


@pytest.mark.requirement("G19")
async def test_node_that_continues_a_move_is_the_next_master(scene: Scene) -> None:
    await scene.move("etcd")
    gateway = Gateway(Access(scene.servers.endpoints))
    await gateway.txn([], [put(Keys(CLUSTER).moved, ME.encode())])
    opened = [await scene.candidate(OTHER)]

    class OneDaemon(NoDaemons):
        async def start(self, name: str, arguments: object = ()) -> Any:
            del name, arguments
            opened.append(await scene.candidate(ME))

    switch = SteppedSwitch(
        scene.paths, OneDaemon(scene.paths), SystemClock(), scene.identity, lambda _line: None
    )
    await switch.resumed()
    try:
        async with asyncio.timeout(10 * patience()):
            other, ours = opened
            while not isinstance(ours.statistics().role, Master):
                assert isinstance(other.statistics().role, Follower)
                await asyncio.sleep(0.05)
    finally:
        for backend in opened:
            await backend.close()
        await gateway.close()
