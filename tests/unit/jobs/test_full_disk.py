"""While the state's disk is full an administrator can still cancel and archive."""

import asyncio
from pathlib import Path

import pytest

from ganeti.base.errors import Refused
from ganeti.jobs.full_disk import KEEP_AGAIN_S
from ganeti.model.names import JobStatus
from ganeti.store.room import RoomFile
from ganeti.store.worker import Worker
from tests.unit.jobs.rig import Rig, act, delay

pytestmark = pytest.mark.requirement("G16", "G9")


@pytest.mark.virtual_time
@pytest.mark.parametrize("what", ["cancel", "archive", "autoarchive"])
async def test_the_room_is_for_cancelling_and_archiving_and_for_nothing_else(what: str) -> None:
    rig = await Rig.begin()
    rig.room.has_space = True
    await rig.queue.load()
    gate = rig.executor.hold("slow")
    ended = await rig.queue.submit([act()])
    await rig.final(ended)
    running = await rig.queue.submit([act(comment="slow"), act("later.example.com")])
    await rig.until(running, JobStatus.RUNNING)
    rig.room.fill_disk()
    with pytest.raises(Refused, match="no space"):
        await rig.queue.submit([delay()])
    if what == "cancel":
        assert (await rig.queue.cancel(running))[0]
        gate.set()
        assert (await rig.final(running)).status is JobStatus.CANCELED
    elif what == "archive":
        assert await rig.queue.archive(ended)
    else:
        assert (await rig.queue.auto_archive(-1, 60))[0] == 1
    with pytest.raises(Refused, match="reserved space"):
        await rig.queue.submit([delay()])
    await asyncio.sleep(3 * KEEP_AGAIN_S)
    with pytest.raises(Refused, match="reserved space"):
        await rig.queue.submit_many([[delay()]])
    rig.room.has_space = True
    await asyncio.sleep(2 * KEEP_AGAIN_S)
    assert rig.room.is_kept
    await rig.final(await rig.queue.submit([delay()]))
    await rig.end()


@pytest.mark.virtual_time
async def test_room_that_was_not_there_at_the_beginning_is_kept_later() -> None:
    rig = await Rig.begin()
    await rig.queue.load()
    job_id = await rig.queue.submit([delay()])
    await rig.final(job_id)
    rig.room.fill_disk()
    with pytest.raises(Refused, match="no space"):
        await rig.queue.archive(job_id)
    rig.store.set_full(full=False)
    rig.room.has_space = True
    await asyncio.sleep(2 * KEEP_AGAIN_S)
    rig.room.fill_disk()
    assert await rig.queue.archive(job_id)
    await rig.end()


async def test_room_file_reserves_space_until_it_is_removed(tmp_path: Path) -> None:
    worker = Worker("room")
    path = tmp_path / "state.room"
    room = RoomFile(path, worker, (1 << 16,))
    assert not await room.give()
    for _ in range(2):
        assert await room.keep()
        assert path.stat().st_blocks * 512 >= 1 << 16
        assert path.stat().st_mode & 0o777 == 0o600
    assert await room.give()
    assert not path.exists()
    too_large = RoomFile(path, worker, (1 << 62,))
    assert not await too_large.keep()
    assert not path.exists()
    await worker.close()


async def test_databases_inherit_the_room_before_another_program_takes_it(tmp_path: Path) -> None:
    worker = Worker("room")
    heir = tmp_path / "state.db"
    heir.write_bytes(b"x")
    room = RoomFile(tmp_path / "state.room", worker, (1 << 62, 1 << 20), [heir])
    assert await room.keep()
    assert (tmp_path / "state.room").stat().st_size == 1 << 20
    assert await room.give()
    assert heir.stat().st_size == 1
    assert heir.stat().st_blocks * 512 >= 1 << 19
    await worker.close()
