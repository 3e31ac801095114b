"""The node's lease: who renews it, and that no restart of the daemon changes it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from ganeti.base.errors import NotMaster
from ganeti.base.paths import Paths
from ganeti.model.recovery import GuestFault, Token
from ganeti.node.lease_record import BOOT_ID, read_lease
from ganeti.node.recovery import NodeRecovery
from ganeti.recovery.times import LEASE_S
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.recovery import HeartbeatArgs
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


def started(paths: Paths, clock: FrozenClock) -> NodeRecovery:
    return NodeRecovery(paths, clock, check_master, lambda _wanted: {})


async def beat(
    node: NodeRecovery, token: Token | None = None, protected: tuple[str, ...] = ()
) -> Token:
    answer = await node.heartbeat(HeartbeatArgs(token=token, protected=protected), FROM_MASTER)
    return answer.token


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

    node = NodeRecovery(paths, clock, check_master, faults)
    answer = await node.heartbeat(HeartbeatArgs(wanted=("a", "b")), FROM_MASTER)
    assert (wanted, answer.faults) == (["a", "b"], {"a": GuestFault.CRASHED})
