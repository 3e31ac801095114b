"""A backup file is whole, private and in place, or nothing of it is there."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ganeti.base.errors import HostError, StoreError
from ganeti.base.files import AtomicFile
from ganeti.simulation.faulty_store import FaultyStore
from ganeti.store.backend import become_master
from ganeti.store.backup import read_backup
from ganeti.store.backup_file import BackupFiles
from ganeti.store.interface import Row
from ganeti.store.worker import Worker
from tests.unit.store.conformance import VOTE, put


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    worker = Worker("rest")
    yield worker
    await worker.close()


async def store_with_rows(count: int) -> FaultyStore:
    store = FaultyStore()
    lease = await become_master(store, VOTE)
    for number in range(count):
        await store.commit(lease, put(f"{number}", bytes(700_000)))
    return store


class Failing(AtomicFile):
    """The operating system says no at one call of one kind."""

    fails_at = ""
    calls = 0

    def _meet(self, step: str) -> None:
        if Failing.fails_at == step:
            Failing.calls -= 1
            if Failing.calls < 0:
                raise OSError(28, "No space left on device")

    def __init__(self, path: Path) -> None:
        self._meet("open")
        super().__init__(path)

    def write(self, data: bytes) -> None:
        self._meet("write")
        super().write(data)

    def sync(self) -> None:
        self._meet("sync")
        super().sync()


@pytest.mark.requirement("G3", "G23")
@pytest.mark.parametrize(
    ("step", "number"),
    [("open", 0), ("write", 0), ("write", 3), ("write", 5), ("sync", 0), ("sync", 1)],
)
async def test_wherever_writing_fails_the_old_backup_stays(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    path = tmp_path / "backup"
    path.write_bytes(b"the old one")
    store = await store_with_rows(9)
    monkeypatch.setattr(Failing, "fails_at", step)
    monkeypatch.setattr(Failing, "calls", number)
    files = BackupFiles(store, worker, make=Failing)
    with pytest.raises(HostError, match="No space left"):
        await files.write(path)
    assert path.read_bytes() == b"the old one"
    assert [one.name for one in tmp_path.iterdir()] == ["backup"]
    monkeypatch.setattr(Failing, "fails_at", "")
    position = await files.write(path)
    assert position == store.statistics().position
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("rb") as file:
        assert sum(isinstance(item, Row) for item in read_backup(file.read)) == 9
    await store.close()


async def test_a_backup_whose_client_hangs_up_leaves_nothing(
    worker: Worker, tmp_path: Path
) -> None:
    store = await store_with_rows(5)
    task = asyncio.create_task(BackupFiles(store, worker).write(tmp_path / "backup"))
    while not list(tmp_path.iterdir()):  # noqa: ASYNC110 - the file is the event
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(tmp_path.iterdir()) == []
    await store.close()


async def test_a_place_that_is_not_there_is_named(worker: Worker, tmp_path: Path) -> None:
    store = await store_with_rows(0)
    with pytest.raises(HostError, match=r"nowhere/backup: No such file"):
        await BackupFiles(store, worker).write(tmp_path / "nowhere" / "backup")
    await store.close()
    with pytest.raises(StoreError):
        await BackupFiles(store, worker).write(tmp_path / "closed")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("F35", "A59")
async def test_backup_is_never_readable_by_other_users(worker: Worker, tmp_path: Path) -> None:
    """Not while it is written, whatever the umask is, and not where an open one was before."""
    path = tmp_path / "backup"
    path.touch(0o644)
    modes: set[int] = set()

    class Watched(AtomicFile):
        def write(self, data: bytes) -> None:
            super().write(data)
            modes.update(one.stat().st_mode & 0o777 for one in tmp_path.glob(".backup.*"))

    before = os.umask(0)
    try:
        await BackupFiles(await store_with_rows(3), worker, make=Watched).write(path)
    finally:
        os.umask(before)
    assert modes == {0o600}
    assert [one.stat().st_mode & 0o777 for one in tmp_path.iterdir()] == [0o600]
