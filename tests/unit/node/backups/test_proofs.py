"""Proofs on a real file system: written completely, of their backup alone, and removed with it."""

import contextlib
import os
import random
import shutil
from pathlib import Path

import pytest

from ganeti.base.errors import HostError
from ganeti.model.names import ProofState
from ganeti.node.backups.directory import opened
from ganeti.node.backups.program import check
from ganeti.node.backups.proofs import read_proof, record
from ganeti.node.carrier.progress import ProgressFile
from ganeti.protocols.backup_proof import judged, proof_file, with_check
from tests.support.backup_store import BLOCK, BackupStore, Crashed, changed, crash_at

pytestmark = pytest.mark.requirement("G11", "A51")

GOOD, FAILED, UNPROVEN = ProofState.GOOD, ProofState.FAILED, ProofState.UNPROVEN


@pytest.fixture
def store(tmp_path: Path) -> BackupStore:
    return BackupStore(tmp_path / "web1", tmp_path)


def with_three(store: BackupStore) -> list[str]:
    rng = random.Random(3)
    data = rng.randbytes(8 * BLOCK)
    for _ in range(3):
        store.save(data)
        data = changed(rng, data, grows=False)
    return store.names()


def states(store: BackupStore) -> list[ProofState]:
    with opened(store.path) as directory:
        points = directory.contents().points.values()
        return [judged(read_proof(directory, one), one).state for one in points]


def test_check_records_its_results(store: BackupStore) -> None:
    first, second, third = with_three(store)
    assert states(store) == [UNPROVEN] * 3
    store.problems()
    assert states(store) == [GOOD] * 3
    image = next(store.path.glob(f"{second}.*.qcow2"))
    content = bytearray(image.read_bytes())
    content[70_000] ^= 1
    image.write_bytes(content)
    store.problems()
    assert states(store) == [GOOD, FAILED, FAILED]
    with opened(store.path) as directory:
        point = directory.contents().find(third)
        assert "are not what was written" in judged(read_proof(directory, point), point).why
    image.write_bytes(bytes(content[:70_000]) + bytes([content[70_000] ^ 1]) + content[70_001:])
    store.problems()
    assert states(store) == [GOOD] * 3
    assert (store.path / proof_file(first)).stat().st_mode & 0o777 == 0o600


def test_proof_goes_with_its_backup_and_a_merge_takes_the_check_of_what_it_writes(
    store: BackupStore,
) -> None:
    first, second, third = with_three(store)
    store.problems()
    store.prune(first)
    assert states(store) == [UNPROVEN, GOOD]
    assert not (store.path / proof_file(first)).exists()
    store.save(b"x" * BLOCK * 8)
    assert states(store) == [UNPROVEN, GOOD, UNPROVEN]
    store.prune(third)
    assert [one.name for one in store.path.glob("*.proof")] == [proof_file(second)]
    store.verify()


@pytest.mark.parametrize("what", ["link", "directory", "fifo", "large", "of another", "nothing"])
def test_hostile_proof_counts_as_none_and_is_replaced(store: BackupStore, what: str) -> None:
    first, second, _third = with_three(store)
    store.problems()
    path, outside = store.path / proof_file(first), store.work / "outside"
    outside.write_text("untouched")
    path.unlink()
    if what == "link":
        path.symlink_to(outside)
    elif what == "directory":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "large":
        path.write_bytes(b" " * (1 << 17))
    elif what == "of another":
        shutil.copy(store.path / proof_file(second), path)
    assert states(store) == [UNPROVEN, GOOD, GOOD]
    with opened(store.path) as directory:
        found = check(directory, ProgressFile(store.work / "log"))
    assert [bool(one.unrecorded) for one in found] == [what == "directory", False, False]
    assert [one.problems for one in found] == [[], [], []]
    assert states(store) == [UNPROVEN if what == "directory" else GOOD, GOOD, GOOD]
    assert outside.read_text() == "untouched"


def test_result_for_a_backup_that_changed_meanwhile_is_not_recorded(store: BackupStore) -> None:
    first, second, _third = with_three(store)
    with opened(store.path) as directory:
        before = directory.contents().points
    store.prune(first)
    with opened(store.path) as directory:
        for name in (first, second):
            with pytest.raises(HostError, match="meanwhile"):
                record(directory, before[name], lambda one, now: with_check(one, now, 1.0, []))
    assert states(store) == [UNPROVEN, UNPROVEN]


def test_crash_at_each_step_leaves_the_old_proof_or_the_new_one(store: BackupStore) -> None:
    with_three(store)
    store.problems()
    shutil.copytree(store.path, store.work / "before")
    number = 0
    while True:
        number += 1
        shutil.rmtree(store.path)
        shutil.copytree(store.work / "before", store.path)
        with opened(store.path) as directory:
            point = next(iter(directory.contents().points.values()))
            with crash_at(number) as was_reached, contextlib.suppress(Crashed):
                record(directory, point, lambda one, now: with_check(one, now, 7.0, ["bad"]))
            assert judged(read_proof(directory, point), point).state in (GOOD, FAILED)
        if not was_reached():
            break
        assert states(store)[1:] == [GOOD, GOOD]
        with opened(store.path) as directory, directory.locked():
            directory.settle()
        assert len(list(store.path.iterdir())) == 9
    assert number > 4
