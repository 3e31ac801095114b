"""What is answered is on the disk: the order of the calls that programs of ours make, by `strace`."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from ganeti.model.objects import NodeUuid
from ganeti.store.register import Promise, Register, encode_register
from tests.support.file_calls import ANSWER, HAS_STRACE, Call, Disk, Loss, traced_python

pytestmark = pytest.mark.skipif(not HAS_STRACE, reason="strace is not installed")

SAY = f"import os, sys; say = lambda: os.write(1, b'{ANSWER}'); from pathlib import Path\n"
ATOMIC = "from ganeti.base.files import write_atomically\nwrite_atomically(Path(sys.argv[1]), b'new'); say()"
REGISTER = """
from ganeti.model.objects import NodeUuid
from ganeti.store.register import PromiseRequest, RegisterFile, promise
register = RegisterFile(Path(sys.argv[1]))
register.read(); say()
assert register.decide(lambda old: promise(old, PromiseRequest("c", 7, NodeUuid("b")))).granted; say()
"""
STORE = """
import asyncio
from ganeti.model.objects import NodeUuid
from ganeti.store.backend import become_master
from ganeti.store.embedded import EmbeddedStore
from ganeti.store.interface import Identity, Put, Transaction
from ganeti.store.ports import alone
from ganeti.store.register import MemoryRegister, Promise, Register

async def main():
    register = MemoryRegister(Register("c", Promise(0, NodeUuid("a"))))
    identity = Identity("c", NodeUuid("a"))
    store = await EmbeddedStore.open(Path(sys.argv[1]), identity, alone(identity.node_uuid, register))
    lease = await become_master(store); say()
    for number in range(3):
        await store.commit(lease, Transaction((Put("job", str(number), b"x" * 5000),))); say()
    await store.close()
asyncio.run(main())
"""
SNAPSHOT = """
from ganeti.model.objects import NodeUuid
from ganeti.store.database import Database, History, Limits
from ganeti.store.interface import Position, Row

database = Database(Path(sys.argv[1]), Limits())
database.open("c", NodeUuid("a")); say()
database.begin_snapshot()
database.add_snapshot_rows([Row("job", "1", b"x" * 5000)])
database.end_snapshot(History(Position(1, 9), b"d" * 16)); say()
database.take_epoch(2); say()
database.close()
"""
ARCHIVE = """
import asyncio
from ganeti.store.archive import JobArchive
from ganeti.store.worker import Worker

async def main():
    worker = Worker("archive")
    archive = await JobArchive.open(Path(sys.argv[1]), worker); say()
    await archive.append([(1, b"{}")]); say()
    await archive.close()
    await worker.close()
asyncio.run(main())
"""
TASK = """
import asyncio
from ganeti.base.clock import SystemClock
from ganeti.node.tasks import Tasks

async def main():
    tasks = Tasks(Path(sys.argv[1]), SystemClock())
    argv = ["/bin/sh", "-c", "echo ANSWER"]  # what it does counts from here on
    status = await tasks.run("7/0/1", argv, env={}, log_path=Path(sys.argv[1] + ".log"), timeout_s=30)
    assert status == 0; say()
asyncio.run(main())
"""


def judged(
    calls: Iterable[Call], directory: Path, existing: Iterable[Path] = (), *, answers: int
) -> list[Loss]:
    """What a power cut would take of this directory where something was answered."""

    def is_watched(path: str) -> bool:
        # What is locked or shared between processes is of no use after a power cut.
        is_ours = Path(path).parent == directory
        return is_ours and not path.endswith((".lock", "-shm"))

    disk = Disk(is_watched, existing)
    assert disk.follow(calls) == answers
    return disk.losses


@pytest.mark.requirement("G3", "F1")
@pytest.mark.parametrize("is_new", [True, False])
def test_an_atomic_file_is_on_the_disk_with_its_name(tmp_path: Path, *, is_new: bool) -> None:
    path = tmp_path / "files" / "one"
    path.parent.mkdir()
    if not is_new:
        path.write_bytes(b"old")
    calls = traced_python(SAY + ATOMIC, tmp_path / "log", str(path))
    assert judged(calls, path.parent, path.parent.iterdir(), answers=1) == []
    assert path.read_bytes() == b"new"


@pytest.mark.requirement("G4")
def test_a_register_is_on_the_disk_before_it_is_answered(tmp_path: Path) -> None:
    """Also what another process has left there, which may have died before it was."""
    path = tmp_path / "node" / "register"
    path.parent.mkdir()
    left = Call("write", (str(path),)), Call("create", (str(path),))
    path.write_bytes(encode_register(Register("c", Promise(3, NodeUuid("a")))))
    calls = traced_python(SAY + REGISTER, tmp_path / "log", str(path))
    assert judged((*left, *calls), path.parent, answers=2) == []


@pytest.mark.requirement("G1", "G2")
def test_a_transaction_is_on_the_disk_before_it_is_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "data" / "state.db"
    path.parent.mkdir()
    calls = traced_python(SAY + STORE, tmp_path / "log", str(path))
    assert judged(calls, path.parent, answers=4) == []


@pytest.mark.requirement("G1", "F10")
@pytest.mark.parametrize(("script", "answers"), [(SNAPSHOT, 3), (ARCHIVE, 2)])
def test_a_snapshot_and_an_archived_job_are_on_the_disk_before_they_count(
    tmp_path: Path, script: str, answers: int
) -> None:
    path = tmp_path / "data" / "file.db"
    path.parent.mkdir()
    calls = traced_python(SAY + script, tmp_path / "log", str(path))
    assert judged(calls, path.parent, answers=answers) == []


@pytest.mark.requirement("G7")
def test_a_task_is_on_the_disk_before_its_program_begins_and_its_status_after_it(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "tasks"
    directory.mkdir()
    calls = traced_python(SAY + TASK, tmp_path / "log", str(directory))
    assert judged(calls, directory, answers=2) == []


@pytest.mark.parametrize(
    ("script", "lost"),
    [
        ("p.write_bytes(b'x'); say()", {"one"}),
        ("p.with_name('two').write_bytes(b'x'); p.with_name('two').replace(p); say()", {"two"}),
        ("d = os.open(p, os.O_CREAT | os.O_WRONLY); os.fsync(d); say()", set()),
    ],
)
def test_what_is_not_synced_is_found(tmp_path: Path, script: str, lost: set[str]) -> None:
    path = tmp_path / "files" / "one"
    path.parent.mkdir()
    calls = traced_python(f"{SAY}p = Path(sys.argv[1]); {script}", tmp_path / "log", str(path))
    first = judged(calls, path.parent, answers=1)[0]
    assert {Path(name).name for name in first.files} == lost
    assert {Path(name).name for name in first.names} == ({"one"} if lost != {"two"} else set())
