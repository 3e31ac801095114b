"""The archive of jobs: kept for good, once, and read back as it was."""

import sqlite3
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ganeti.base.errors import Refused, StoreError
from ganeti.store.archive import JobArchive
from ganeti.store.worker import Worker
from tests.unit.store.scripted_connection import Script, sqlite_error


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    worker = Worker("archive")
    yield worker
    await worker.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.db"


async def test_jobs_are_found_by_id_and_listed_from_the_last(worker: Worker, path: Path) -> None:
    archive = await JobArchive.open(path, worker)
    assert (await archive.count(), await archive.greatest_id(), await archive.ids()) == (0, 0, [])
    await archive.append([(number, f"job {number}".encode()) for number in (3, 1, 12, 7)])
    assert await archive.get(12) == b"job 12"
    assert await archive.get(2) is None
    assert await archive.ids() == [12, 7, 3, 1]
    assert await archive.ids(limit=2) == [12, 7]
    assert await archive.ids(limit=2, below=7) == [3, 1]
    assert (await archive.count(), await archive.greatest_id()) == (4, 12)
    await archive.close()


@pytest.mark.requirement("F10")
async def test_archiving_again_is_harmless(worker: Worker, path: Path) -> None:
    archive = await JobArchive.open(path, worker)
    await archive.append([(1, b"one")])
    await archive.append([(1, b"one"), (2, b"two"), (2, b"two")])
    assert await archive.ids() == [2, 1]
    await archive.close()


async def test_another_content_under_an_id_is_refused_as_a_whole(
    worker: Worker, path: Path
) -> None:
    archive = await JobArchive.open(path, worker)
    await archive.append([(1, b"one")])
    with pytest.raises(StoreError, match="job 1 is in the archive"):
        await archive.append([(2, b"two"), (1, b"changed")])
    assert await archive.get(1) == b"one"
    assert await archive.ids() == [1]
    await archive.close()


async def test_the_archive_survives_a_restart_and_is_private(worker: Worker, path: Path) -> None:
    archive = await JobArchive.open(path, worker)
    await archive.append([(1, b"one")])
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    await archive.close()
    with pytest.raises(StoreError, match="closed"):
        await archive.get(1)
    again = await JobArchive.open(path, worker)
    assert await again.get(1) == b"one"
    await again.close()


@pytest.mark.requirement("G16")
async def test_a_full_disk_refuses_and_the_archive_goes_on(worker: Worker, path: Path) -> None:
    script = Script()
    archive = await JobArchive.open(path, worker, script.connect)
    script.failures["COMMIT"] = sqlite_error(sqlite3.SQLITE_FULL, "disk is full")
    with pytest.raises(Refused, match="disk is full"):
        await archive.append([(1, b"one")])
    assert await archive.ids() == []
    await archive.append([(2, b"two")])
    script.failures["COMMIT"] = sqlite_error(sqlite3.SQLITE_IOERR_FSYNC, "I/O error")
    with pytest.raises(StoreError, match="I/O error"):
        await archive.append([(3, b"three")])
    await archive.close()


@pytest.mark.requirement("G3")
async def test_damage_is_refused(worker: Worker, path: Path) -> None:
    archive = await JobArchive.open(path, worker)
    await archive.append([(1, b"one")])
    await archive.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE jobs SET content = X'00'")
    connection.close()
    archive = await JobArchive.open(path, worker)
    with pytest.raises(StoreError, match=r"job 1 .* is damaged"):
        await archive.get(1)
    await archive.close()
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="failed"):
        await JobArchive.open(path, worker)


async def test_a_newer_archive_is_refused(worker: Worker, path: Path) -> None:
    await (await JobArchive.open(path, worker)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(StoreError, match="newer version"):
        await JobArchive.open(path, worker)
