"""What the cleaner removes, what it keeps, and what it says about it."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti.base.files import AtomicFile, exclusive_file
from ganeti.base.paths import Paths
from ganeti.images.uploads import copy_in
from ganeti.jobs.view import ArchivedJob, archived_end
from ganeti.model import wire
from ganeti.model.job import OpState, StoredJob
from ganeti.model.opcodes.test import OpTestDelay
from ganeti.store.archive import JobArchive
from ganeti.store.worker import Worker
from ganeti.tools.cleaner import KEEP_LOGS, clean_node, main
from tests.support.node_certificates import Authority

DAY_S = 24 * 3600.0


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    paths = Paths(tmp_path)
    paths.data.mkdir(parents=True)
    Authority().equip(paths, "node1.example.com")
    return paths


def archived(job_id: int, end: float) -> tuple[int, bytes]:
    op = OpState(op=OpTestDelay(duration=0.0))
    job = StoredJob(id=job_id, ops=(op,), received=end - 60, end=end)
    return job_id, wire.encode(ArchivedJob(job=job))


def in_archive(paths: Paths, *given: tuple[int, bytes]) -> list[int]:
    """The ids in the archive, after these are added."""

    async def go() -> list[int]:
        worker = Worker("archive")
        archive = await JobArchive.open(paths.job_archive, worker)
        await archive.add(given)
        ids = await archive.ids()
        await archive.close()
        await worker.close()
        return ids

    return asyncio.run(go())


def age(path: Path, days: float) -> None:
    moment = time.time() - days * DAY_S
    os.utime(path, (moment, moment))


def said(paths: Paths, directory: str) -> str:
    return "".join(sorted(path.read_text() for path in (paths.log / directory).iterdir()))


@pytest.mark.requirement("F10")
def test_archived_jobs_are_forgotten_after_three_weeks(paths: Paths) -> None:
    now = time.time()
    assert main(["master"]) == 0
    assert not paths.job_archive.exists()
    young, old = archived(2, now - 20 * DAY_S), archived(1, now - 22 * DAY_S)
    assert in_archive(paths, young, old, (3, b"from the future")) == [3, 2, 1]
    assert main(["master"]) == 0
    assert in_archive(paths) == [3, 2]
    assert "removed 1 jobs" in said(paths, "master-cleaner")
    assert main(["node"]) == 0
    assert in_archive(paths) == [3, 2]


def test_the_end_of_a_job_is_read_from_what_any_version_archives() -> None:
    assert archived_end(archived(1, 1234.5)[1]) == 1234.5
    assert archived_end(b'{"job":{"end":7.0,"of_later":[]},"also":1}') == 7.0
    assert archived_end(b"{}") is archived_end(b"no JSON") is None


def test_what_was_interrupted_is_removed_after_a_day(paths: Paths) -> None:
    keep = AtomicFile(paths.data / "half")
    gone = AtomicFile(paths.data / "other")
    [young] = paths.data.glob(".half.*")
    [old] = paths.data.glob(".other.*")
    (paths.data / ".other.name").touch()
    for path in (old, paths.data / ".other.name"):
        age(path, 2)
    works: dict[str, Callable[[Path], None]] = {
        "web1": lambda path: age(path, 2),
        "web2": lambda path: age(path, 0),
    }
    for name, make in works.items():
        (paths.image_work / name).mkdir(parents=True)
        (paths.image_work / name / "image").touch()
        make(paths.image_work / name / "image")
        age(paths.image_work / name, 2)
    assert main(["node"]) == 0
    assert young.exists()
    assert (paths.data / ".other.name").exists()
    assert not old.exists()
    assert [path.name for path in paths.image_work.iterdir()] == ["web2"]
    assert "whose writer died" in said(paths, "cleaner")
    keep.discard()
    gone.discard()


def test_the_last_logs_are_kept(paths: Paths) -> None:
    place = paths.log / "cleaner"
    place.mkdir(parents=True)
    for number in range(60):
        (place / f"cleaner-2001-01-01T00_{number:02d}.1.log").touch()
    assert main(["node"]) == 0
    names = sorted(path.name for path in place.iterdir())
    assert len(names) == KEEP_LOGS
    assert names[0] == "cleaner-2001-01-01T00_11.1.log"
    assert f".{os.getpid()}.log" in names[-1]


def test_nothing_is_done_outside_a_cluster_nor_twice_at_once(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    paths.run.mkdir(parents=True)
    with exclusive_file(paths.run / "cleaner.lock"):
        assert main(["node"]) == 0
    assert list((paths.log / "cleaner").iterdir()) == []
    paths.node_certificate.unlink()
    (paths.log / "cleaner").rmdir()
    assert main(["node"]) == 0
    assert not (paths.log / "cleaner").exists()
    with pytest.raises(SystemExit) as ended:
        main(["both"])
    assert ended.value.code == 2
    assert "node, master" in capsys.readouterr().err.replace("'", "")


def test_an_archive_that_cannot_be_opened_is_reported(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    paths.job_archive.write_bytes(b"no database at all" * 100)
    assert main(["master"]) == 1
    assert "archive" in capsys.readouterr().err


def test_uploads_of_a_former_master_are_removed(paths: Paths) -> None:
    source = paths.root / "disk"
    source.write_bytes(b"content")
    old, new = (copy_in(paths.image_uploads, source) for _ in range(2))
    age(paths.image_uploads / old, 2)
    [said] = clean_node(paths, time.time())
    assert said == f"removed upload {old}, which had not changed for a day"
    assert [path.name for path in paths.image_uploads.iterdir()] == [new]
