"""Backups on a real file system: each gives its bytes back, whatever is made, removed or interrupted."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from ganeti.base.errors import GanetiError, HostError
from ganeti.node.backups.directory import opened
from ganeti.node.backups.ends import open_point
from ganeti.node.carrier.order import PointOrder
from tests.support.backup_store import BLOCK, DISK, BackupStore, Crashed, changed, crash_at

pytestmark = pytest.mark.requirement("G11", "G3")


@pytest.fixture
def store(tmp_path: Path) -> BackupStore:
    return BackupStore(tmp_path / "web1", tmp_path)


def disk(seed: int = 1, blocks: int = 24) -> bytes:
    rng = random.Random(seed)
    return b"".join(
        bytes(BLOCK) if rng.random() < 0.3 else rng.randbytes(BLOCK) for _ in range(blocks)
    )


def with_three(store: BackupStore) -> list[bytes]:
    rng, states = random.Random(3), [disk()]
    store.save(states[0])
    for _ in range(2):
        states.append(changed(rng, states[-1], grows=True))
        store.save(states[-1])
    return states


def test_qemu_reads_the_same_bytes(store: BackupStore) -> None:
    states = with_three(store)
    store.verify()
    for image, state in zip(sorted(store.path.glob("*.qcow2")), states, strict=True):
        subprocess.run(["qemu-img", "check", "-q", str(image)], check=True)
        raw = store.work / "raw"
        subprocess.run(["qemu-img", "convert", "-O", "raw", str(image), str(raw)], check=True)
        assert raw.read_bytes() == state


def test_incremental_backup_has_only_changed_blocks(store: BackupStore) -> None:
    data = bytearray(disk(blocks=400))
    first = store.save(bytes(data))
    data[5 * BLOCK : 6 * BLOCK] = os.urandom(BLOCK)
    second = store.save(bytes(data))
    third = store.save(bytes(data))
    sizes = {
        point: next(store.path.glob(f"{point}.*.qcow2")).stat().st_size for point in store.names()
    }
    assert sizes[second] - sizes[third] == 2 * BLOCK  # the block, and its table
    assert sizes[first] > 200 * BLOCK
    store.verify()


def test_full_backup_needs_no_other(store: BackupStore) -> None:
    states = with_three(store)
    last = store.save(states[-1], full=True)
    for one in store.path.iterdir():
        if not one.name.startswith(last):
            one.unlink()
    store.expected = {last: states[-1]}
    store.verify()


def test_restore_fills_a_larger_disk_with_zeros_and_refuses_a_smaller_one(
    store: BackupStore,
) -> None:
    point = store.save(disk())
    assert store.read(point, 30 * BLOCK) == disk() + bytes(6 * BLOCK)
    with pytest.raises(HostError, match="more than"):
        store.read(point, 8 * BLOCK)


@pytest.mark.parametrize("removed", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
def test_others_remain_exact_after_a_prune(store: BackupStore, removed: tuple[int, ...]) -> None:
    with_three(store)
    names = store.names()
    store.prune(*(names[number] for number in removed))
    store.verify()
    assert len(list(store.path.iterdir())) == 2 * (3 - len(removed))
    for image in store.path.glob("*.qcow2"):
        subprocess.run(["qemu-img", "check", "-q", str(image)], check=True)


@pytest.mark.parametrize("work", ["save", "prune"])
def test_crash_at_each_step_leaves_the_old_state_or_the_new_one(
    store: BackupStore, work: str
) -> None:
    states = with_three(store)
    shutil.copytree(store.path, store.work / "before")
    before = dict(store.expected)
    number = 0
    while True:
        number += 1
        shutil.rmtree(store.path)
        shutil.copytree(store.work / "before", store.path)
        store.expected, store.made = dict(before), 3
        names = store.names()
        new = changed(random.Random(number), states[-1], grows=False)
        with crash_at(number) as was_reached:
            try:
                if work == "save":
                    store.save(new)
                else:
                    store.prune(*names[:2])
            except Crashed:
                pass
        if not was_reached():
            break
        left = store.names()
        # A backup that was not answered for may be there; one that was there may be missing only if it was to go.
        store.expected = {
            name: before.get(name, new) for name in (*names, f"20261127-{4:06}") if name in left
        }
        assert set(left) >= (set(names) if work == "save" else set(names[2:]))
        store.verify()
        store.made = 5
        store.save(states[0])
        if work == "prune":
            store.prune(*names[:2])
        store.verify()
        assert len(list(store.path.iterdir())) == 2 * len(store.names())
    assert number > 15


@pytest.mark.rotated(10)
@pytest.mark.parametrize("seed", range(40))
def test_random_history_gives_every_kept_backup_back(tmp_path: Path, seed: int) -> None:
    """Writes, growth, backups, prunes and crashes, in any order."""
    rng = random.Random(seed)
    store = BackupStore(tmp_path / "web1", tmp_path)
    data = disk(seed, rng.randrange(1, 30))
    for _ in range(12):
        data = changed(rng, data, grows=True)
        had = dict(store.expected)
        action = rng.choice(["save", "save", "full", "prune"])
        victims = [one for one in store.names() if rng.random() < 0.4]
        with crash_at(rng.randrange(1, 60) if rng.random() < 0.4 else 10**9):
            try:
                if action == "prune":
                    store.prune(*victims)
                else:
                    store.save(data, full=action == "full")
            except Crashed:
                pass
        left = store.names()
        assert set(left) >= set(had) - (set(victims) if action == "prune" else set())
        store.expected = {name: had.get(name, data) for name in left}
        store.verify()
    assert not any(store.problems().values())


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("at", [3, 70, BLOCK + 7, -3, -2 * BLOCK])
def test_flipped_bit_is_found_and_named_and_the_rest_can_be_restored(
    store: BackupStore, at: int
) -> None:
    with_three(store)
    first, second, third = store.names()
    image = next(store.path.glob(f"{second}.*.qcow2"))
    flip(image, at)
    found = store.problems()
    assert found[first] == []
    for point in (second, third):
        assert any(image.name in one for one in found[point])
    assert store.read(first) == store.expected[first]
    with pytest.raises(HostError, match=image.name):
        store.read(second)
    with pytest.raises(HostError, match=image.name):
        store.prune(first)
    assert store.names() == [first, second, third]


def test_missing_truncated_and_foreign_images_are_named(store: BackupStore) -> None:
    with_three(store)
    first, second, third = store.names()
    images = {point: next(store.path.glob(f"{point}.*.qcow2")) for point in store.names()}
    secret = store.work / "secret"
    secret.write_bytes(images[first].read_bytes())
    images[first].unlink()
    images[first].symlink_to(secret)
    with images[third].open("r+b") as file:
        file.truncate(BLOCK)
    found = store.problems()
    assert "symbolic links" in found[first][0]
    assert any(images[third].name in one and "bytes instead of" in one for one in found[third])
    assert len(found[second]) == 1
    images[first].unlink()
    os.mkfifo(images[first])
    assert found[first] != store.problems()[first] != []


def test_damaged_manifest_hides_nothing_and_stops_removals(store: BackupStore) -> None:
    states = with_three(store)
    first, second, third = store.names()
    (store.path / f"{second}.json").write_text("{")
    assert store.names() == [first, third]
    assert store.read(first) == states[0]
    assert store.problems()[second] != []
    with pytest.raises(HostError, match="missing or damaged"):
        store.read(third)
    with pytest.raises(HostError, match="nothing is removed"):
        store.prune(first)
    assert len(list(store.path.glob("*.qcow2"))) == 3


def test_another_process_that_changes_the_backups_is_waited_for(store: BackupStore) -> None:
    with_three(store)
    with opened(store.path) as other, other.locked():
        with pytest.raises(GanetiError, match="another process"):
            store.save(disk())
        with pytest.raises(GanetiError, match="another process"):
            store.prune(store.names()[0])


def test_backup_on_an_outdated_one_is_refused(store: BackupStore) -> None:
    with_three(store)
    with opened(store.path) as directory:
        contents = directory.contents()
        first = next(iter(contents.points.values()))
        with pytest.raises(HostError, match="was made meanwhile"):
            directory.commit(
                type(first)(
                    **{name: getattr(first, name) for name in first.__struct_fields__}
                    | {"point": "20261128-000000", "parent": first.point, "disks": ()}
                )
            )


def test_retention_during_a_restore_changes_nothing_of_the_restored_bytes(
    store: BackupStore,
) -> None:
    states = with_three(store)
    first, second, _last = store.names()
    order = PointOrder(directory=str(store.path), point=second, disk=DISK)
    with open_point(order, len(states[1])) as source:
        found = bytearray()
        for number, (zeros, data) in enumerate(source.pieces()):
            if number == 1:  # A schedule removes the backup that is read, and the one below it.
                store.prune(first, second)
            found += bytes(zeros) or bytes(data)
    assert bytes(found) == states[1]
    store.verify()
