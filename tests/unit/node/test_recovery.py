"""The node's lease: who renews it, and that no restart of the daemon changes it."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from ganeti.base.errors import HostError, NotMaster, PrereqError
from ganeti.base.paths import Paths
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.recovery import GuestFault, Token
from ganeti.node.lease_files import LeaseFiles
from ganeti.node.lease_record import BOOT_ID, LeaseRecord, read_lease, write_lease
from ganeti.node.recovery import NodeRecovery
from ganeti.recovery.times import LEASE_S
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.instances import INSTANCE_SHUTDOWN, INSTANCE_START, StartArgs
from ganeti.rpc.procedures.recovery import HeartbeatArgs
from ganeti.simulation.virtual_time import LoopClock
from tests.support.predictable import FrozenClock

pytestmark = pytest.mark.requirement("D7")

FROM_MASTER = Call(epoch=3, master_uuid="m")


async def check_master(epoch: int, _master: str) -> str | None:
    return None if epoch >= FROM_MASTER.epoch else f"epoch {epoch} is over"


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock(1000.0)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(tmp_path)
    made.run.mkdir(parents=True)
    boot(made, "boot-1")
    return made


def boot(paths: Paths, boot_id: str) -> None:
    file = paths.below(BOOT_ID)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{boot_id}\n")


class FakeWatchdog:
    """Says what a test wants of the watchdog process."""

    def __init__(self, failure: str = "") -> None:
        self.is_running = False
        self.failure = failure

    def why_unarmed(self) -> str:
        return "" if self.is_running else "ganeti-guard does not run"

    def want(self) -> None:
        self.is_running = not self.failure

    async def ensure(self) -> None:
        self.want()
        if self.failure:
            raise HostError(self.failure)

    async def close(self) -> None:
        pass


def started(paths: Paths, clock: FrozenClock, watchdog: FakeWatchdog | None = None) -> NodeRecovery:
    return NodeRecovery(
        LeaseFiles(paths),
        clock,
        check_master,
        watchdog or FakeWatchdog(),
        lambda _wanted: {},
        requests=lambda _disks: (),
    )


async def beat(
    node: NodeRecovery,
    token: Token | None = None,
    protected: tuple[str, ...] = (),
    as_of: int = 0,
) -> Token:
    args = HeartbeatArgs(token=token, protected=protected, as_of=as_of)
    return (await node.heartbeat(args, FROM_MASTER)).token


def end_of_lease(paths: Paths) -> float:
    record = read_lease(paths)
    return record.ends_at if record else 0.0


async def test_a_lease_counts_from_the_sending_of_its_token(
    paths: Paths, clock: FrozenClock
) -> None:
    node = started(paths, clock)
    token = await beat(node)
    assert end_of_lease(paths) == 0.0
    clock.advance(4.0)
    await beat(node, token)
    assert end_of_lease(paths) == 1000.0 + LEASE_S


async def test_heartbeat_of_an_older_master_is_refused(paths: Paths, clock: FrozenClock) -> None:
    node = started(paths, clock)
    token = await beat(node)
    with pytest.raises(NotMaster, match="epoch 2 is over"):
        await node.heartbeat(HeartbeatArgs(token=token), Call(epoch=2, master_uuid="m"))
    assert end_of_lease(paths) == 0.0


async def test_a_token_of_another_boot_renews_nothing(paths: Paths, clock: FrozenClock) -> None:
    token = await beat(started(paths, clock))
    boot(paths, "boot-2")
    await beat(started(paths, clock), token)
    assert end_of_lease(paths) == 0.0


async def test_a_restart_of_the_daemon_keeps_the_lease(paths: Paths, clock: FrozenClock) -> None:
    node = started(paths, clock)
    await beat(node, await beat(node), ("a",))
    before = read_lease(paths)
    clock.advance(3.0)
    again = started(paths, clock)
    assert again.protected == {"a"}
    await beat(again)
    after = read_lease(paths)
    assert before is not None
    assert after is not None
    assert (after.ends_at, set(after.protected)) == (before.ends_at, {"a"})


async def test_a_boot_ends_the_lease_and_its_list(paths: Paths, clock: FrozenClock) -> None:
    node = started(paths, clock)
    await beat(node, await beat(node), ("a",))
    boot(paths, "boot-2")
    assert read_lease(paths) is None
    assert started(paths, clock).protected == frozenset()


async def test_a_damaged_record_is_no_lease(
    paths: Paths, clock: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    paths.lease.write_text('{"boot_id": "boot-1"}')
    node = started(paths, clock)
    assert "the lease of this node is lost" in caplog.text
    await beat(node, await beat(node))
    assert end_of_lease(paths) == 1000.0 + LEASE_S


async def test_late_heartbeat_takes_no_instance_from_the_list(
    paths: Paths, clock: FrozenClock
) -> None:
    """It was built before the instance was listed."""
    node = started(paths, clock)
    old = await beat(node)
    clock.advance(1.0)
    new = await beat(node, old, ("a",))
    await beat(node, old)
    await beat(node)
    assert node.protected == {"a"}
    await beat(node, new)
    assert node.protected == frozenset()


async def test_failed_guests_are_reported(paths: Paths, clock: FrozenClock) -> None:
    wanted: list[str] = []

    def faults(asked: Sequence[str]) -> dict[str, GuestFault]:
        wanted.extend(asked)
        return {"a": GuestFault.CRASHED}

    node = NodeRecovery(
        LeaseFiles(paths), clock, check_master, FakeWatchdog(), faults, requests=lambda _disks: ()
    )
    answer = await node.heartbeat(HeartbeatArgs(wanted=("a", "b")), FROM_MASTER)
    assert (wanted, answer.faults) == (["a", "b"], {"a": GuestFault.CRASHED})


async def test_watchdog_process_is_started_with_the_first_lease(
    paths: Paths, clock: FrozenClock
) -> None:
    watchdog = FakeWatchdog()
    node = started(paths, clock, watchdog)
    first = await node.heartbeat(HeartbeatArgs(), FROM_MASTER)
    assert (first.is_armed, first.why_unarmed) == (False, "ganeti-guard does not run")
    second = await node.heartbeat(HeartbeatArgs(token=first.token), FROM_MASTER)
    assert (second.is_armed, second.why_unarmed) == (True, "")


def test_guests_that_outlived_the_lease_are_killed_at_the_start(
    paths: Paths, clock: FrozenClock
) -> None:
    paths.fake_hypervisor.mkdir()
    guests = [paths.fake_hypervisor / f"{one}.json" for one in ("a", "b")]
    for guest in guests:
        guest.write_text(json.dumps({"instance": {"uuid": guest.stem, "name": guest.stem}}))
    write_lease(paths, LeaseRecord("boot-1", clock.now + 5, {"a": 1.0}))
    started(paths, clock).begin()
    assert [one.exists() for one in guests] == [True, True]
    clock.advance(5.0)
    watchdog = FakeWatchdog()
    started(paths, clock, watchdog).begin()
    assert [one.exists() for one in guests] == [False, True]
    assert watchdog.is_running


class Starts:
    """A node whose starts take as long as a test wants."""

    def __init__(self, node: NodeRecovery) -> None:
        self.ended = asyncio.Event()
        self.calls: list[str] = []
        self.was_cancelled = False
        self.handlers: Handlers = node.under_lease(
            {INSTANCE_START.name: self._start, INSTANCE_SHUTDOWN.name: self._start}
        )

    async def _start(self, args: StartArgs, _call: Call) -> Nothing:
        self.calls.append(args.instance.name)
        try:
            await self.ended.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return Nothing()

    async def start(
        self,
        uuid: str = "a",
        *,
        is_protected: bool = True,
        name: str = INSTANCE_START.name,
        as_of: int = 0,
    ) -> None:
        instance = InstanceSpec(
            name=f"{uuid}.example.com",
            uuid=uuid,
            hypervisor="fake",
            os="",
            memory=1,
            vcpus=1,
            hvparams={},
            is_protected=is_protected,
            as_of=as_of,
        )
        await self.handlers[name](StartArgs(instance=instance), FROM_MASTER)


@pytest.mark.virtual_time
async def test_protected_instance_starts_under_a_lease_only(
    paths: Paths, clock: FrozenClock
) -> None:
    node = started(paths, clock)
    starts = Starts(node)
    starts.ended.set()
    with pytest.raises(PrereqError, match=r"a\.example\.com is protected .*no lease.*ha-status"):
        await starts.start()
    assert (starts.calls, node.protected) == ([], frozenset())
    await starts.start(is_protected=False)
    await starts.start(name=INSTANCE_SHUTDOWN.name)
    waiting = asyncio.create_task(starts.start())
    await beat(node, await beat(node))
    await waiting
    assert len(starts.calls) == 3
    record = read_lease(paths)
    assert record is not None
    assert set(record.protected) == {"a"}, "the watchdog process knows it"


async def test_list_from_before_a_start_does_not_end_its_protection(
    paths: Paths, clock: FrozenClock
) -> None:
    node = started(paths, clock)
    token = await beat(node, await beat(node))
    clock.advance(1.0)
    starts = Starts(node)
    starts.ended.set()
    await starts.start()
    await beat(node, token)
    assert node.protected == {"a"}
    await starts.start(is_protected=False)
    assert node.protected == frozenset(), "the configuration has changed"


@pytest.mark.requirement("D7")
async def test_start_from_before_the_protection_does_not_end_it(
    paths: Paths, clock: FrozenClock
) -> None:
    """The master may rely on the lease by then: the guest must not outlive it."""
    node = started(paths, clock)
    await beat(node, await beat(node), protected=("a",), as_of=20)
    starts = Starts(node)
    starts.ended.set()
    await starts.start(is_protected=False, as_of=19)
    assert node.protected == {"a"}
    again = started(paths, clock)
    starts = Starts(again)
    starts.ended.set()
    await starts.start(is_protected=False, as_of=19)
    assert again.protected == {"a"}, "the next node daemon knows it, too"
    await starts.start(is_protected=False, as_of=21)
    assert again.protected == frozenset(), "the configuration has changed since"


@pytest.mark.requirement("D7")
@pytest.mark.virtual_time
async def test_start_from_before_the_protection_needs_a_lease(
    paths: Paths, clock: FrozenClock
) -> None:
    node = started(paths, clock)
    await beat(node, await beat(node), protected=("a",), as_of=20)
    clock.advance(LEASE_S + 1)
    starts = Starts(node)
    starts.ended.set()
    with pytest.raises(PrereqError, match="no lease"):
        await starts.start(is_protected=False, as_of=19)
    assert starts.calls == []


@pytest.mark.requirement("D7")
@pytest.mark.virtual_time
async def test_guest_that_is_protected_while_it_starts_does_not_outlive_the_lease(
    paths: Paths, clock: FrozenClock
) -> None:
    node = started(paths, clock)
    starts = Starts(node)
    starting = asyncio.create_task(starts.start(is_protected=False, as_of=19))
    await asyncio.sleep(60)
    assert not starting.done(), "it needs no lease"
    await beat(node, await beat(node), protected=("a",), as_of=20)
    clock.advance(LEASE_S + 1)
    with pytest.raises(PrereqError, match="no lease"):
        await starting
    assert starts.was_cancelled


async def test_nothing_protected_starts_without_the_watchdog_process(
    paths: Paths, clock: FrozenClock
) -> None:
    node = started(paths, clock, FakeWatchdog("ganeti-guard cannot be started: no memory"))
    starts = Starts(node)
    await beat(node, await beat(node))
    with pytest.raises(HostError, match="no memory"):
        await starts.start()
    assert starts.calls == []


@pytest.mark.virtual_time
async def test_start_that_takes_longer_than_the_lease_is_cancelled(paths: Paths) -> None:
    clock = LoopClock()
    node = NodeRecovery(
        LeaseFiles(paths),
        clock,
        check_master,
        FakeWatchdog(),
        lambda _wanted: {},
        requests=lambda _disks: (),
    )
    starts = Starts(node)
    await beat(node, await beat(node))
    start = asyncio.create_task(starts.start())
    await asyncio.sleep(LEASE_S / 2)
    await beat(node, await beat(node))
    await asyncio.sleep(LEASE_S - 1)
    assert not start.done(), "the lease was renewed meanwhile"
    with pytest.raises(PrereqError, match="no lease"):
        await start
    assert starts.was_cancelled
