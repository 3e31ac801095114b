"""The archive of jobs: kept for good, once, and read back as it was."""

import asyncio
import sqlite3
import stat
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import Refused, StoreError
from ganeti.store import archive as archive_module
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
async def test_full_disk_refuses_and_archive_continues(worker: Worker, path: Path) -> None:
    script = Script()
    archive = await JobArchive.open(path, worker, script.connect)
    for statement in ("COMMIT", "PRAGMA wal_checkpoint"):
        script.failures[statement] = sqlite_error(sqlite3.SQLITE_FULL, "disk is full")
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
    with pytest.raises(StoreError, match="newer release"):
        await JobArchive.open(path, worker)


def is_even(content: bytes) -> bool:
    return int(content.split()[1]) % 2 == 0


async def filled(path: Path, worker: Worker, count: int) -> JobArchive:
    archive = await JobArchive.open(path, worker)
    await archive.append([(number, f"job {number}".encode()) for number in range(1, count + 1)])
    return archive


@pytest.mark.requirement("F10", "G8")
async def test_forgotten_jobs_are_gone_and_their_ids_are_not_lacking(
    worker: Worker, path: Path
) -> None:
    archive = await filled(path, worker, 10)
    assert await archive.forget(is_even) == 5
    assert await archive.ids() == [9, 7, 5, 3, 1]
    assert await archive.get(4) is None
    assert await archive.missing([(1, 12)]) == [11, 12]
    assert await archive.forget(lambda _: True) == 5
    assert (await archive.count(), await archive.greatest_id()) == (0, 10)
    await archive.close()
    again = await JobArchive.open(path, worker)
    assert await again.missing([(1, 4), (9, 11)]) == [11]
    await again.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT * FROM forgotten").fetchall() == [(1, 10)]
    connection.close()


async def test_a_forgotten_job_that_is_archived_again_is_there(worker: Worker, path: Path) -> None:
    archive = await filled(path, worker, 3)
    await archive.forget(is_even)
    await archive.append([(2, b"job 2")])
    assert await archive.get(2) == b"job 2"
    assert await archive.forget(is_even) == 1
    await archive.close()


async def test_only_lots_after_one_that_is_young_are_not_looked_at(
    worker: Worker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_module, "FORGET_AT_ONCE", 10)
    archive = await filled(path, worker, 100)
    seen = []

    def is_old(content: bytes) -> bool:
        seen.append(number := int(content.split()[1]))
        return number < 30 or number > 95

    assert await archive.forget(is_old) == 29
    assert seen == list(range(1, 41))
    await archive.close()


@pytest.mark.requirement("F10", "G16")
async def test_a_job_is_forgotten_with_its_id_or_not_at_all(worker: Worker, path: Path) -> None:
    script = Script()
    archive = await JobArchive.open(path, worker, script.connect)
    await archive.append([(1, b"job 1"), (2, b"job 2")])
    script.failures["INSERT INTO forgotten"] = sqlite_error(sqlite3.SQLITE_FULL, "disk is full")
    with pytest.raises(Refused, match="disk is full"):
        await archive.forget(is_even)
    assert await archive.ids() == [2, 1]
    assert await archive.missing([(1, 3)]) == [3]
    assert await archive.forget(is_even) == 1
    await archive.close()


async def test_a_damaged_job_stays_and_others_are_forgotten(worker: Worker, path: Path) -> None:
    archive = await filled(path, worker, 4)
    await archive.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE jobs SET content = X'00' WHERE id = 2")
    connection.close()
    archive = await JobArchive.open(path, worker)
    assert await archive.forget(is_even) == 1
    assert await archive.ids() == [3, 2, 1]
    await archive.close()


async def test_room_is_given_back(worker: Worker, path: Path) -> None:
    archive = await JobArchive.open(path, worker)
    await archive.append([(number, bytes(50_000)) for number in range(1, 101)])
    await archive.close()
    before = path.stat().st_size
    archive = await JobArchive.open(path, worker)
    await archive.forget(lambda _: True)
    await archive.close()
    assert path.stat().st_size < before / 10


async def test_an_archive_of_before_learns_to_forget(worker: Worker, path: Path) -> None:
    await (await filled(path, worker, 2)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE forgotten")
    connection.close()
    archive = await JobArchive.open(path, worker)
    assert (await archive.greatest_id(), await archive.missing([(1, 3)])) == (2, [3])
    assert await archive.forget(is_even) == 1
    await archive.close()


async def test_jobs_are_forgotten_beside_a_daemon_that_uses_the_file(
    worker: Worker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As two processes do: each has a connection and a thread of its own."""
    monkeypatch.setattr(archive_module, "FORGET_AT_ONCE", 20)
    daemon, cleaner = await filled(path, worker, 200), Worker("cleaner")
    other = await JobArchive.open(path, cleaner)
    forgetting = asyncio.create_task(other.forget(is_even))
    for number in range(1001, 1401, 2):
        await daemon.append([(number, f"job {number}".encode())])
    assert await forgetting == 100
    assert await daemon.count() == 100 + 200
    assert await daemon.missing([(1, 200), (1399, 1400)]) == [1400]
    await daemon.close()
    await other.close()
    await cleaner.close()


@given(st.lists(st.tuples(st.booleans(), st.sets(st.integers(1, 30), max_size=12)), max_size=8))
def test_ids_are_here_forgotten_or_missing(steps: list[tuple[bool, set[int]]]) -> None:
    """Against sets: what was added or forgotten is never missing, whatever the order."""

    async def go(path: Path) -> None:
        worker = Worker("archive")
        archive = await JobArchive.open(path, worker)
        here: set[int] = set()
        known: set[int] = set()
        for adds, ids in steps:
            if adds:
                await archive.add([(number, f"job {number}".encode()) for number in sorted(ids)])
                here |= ids
                known |= ids
            else:
                await archive.forget(lambda content: int(content.split()[1]) in ids)  # noqa: B023
                here -= ids
            assert sorted(await archive.ids()) == sorted(here)
            assert await archive.missing([(1, 31)]) == sorted(set(range(1, 32)) - known)
            assert await archive.greatest_id() == max(known, default=0)
        await archive.close()
        await worker.close()

    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as place:
        asyncio.run(go(Path(place) / "archive.db"))
