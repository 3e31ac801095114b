"""Encrypted backups: exact bytes with the key, nothing without it, and every change of a file is found."""

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from ganeti.base.backup_ciphers import key_id
from ganeti.base.errors import HostError
from ganeti.model import wire
from ganeti.model.names import Consistency
from ganeti.node.backups import decrypt as program
from ganeti.node.backups.directory import opened
from ganeti.protocols.backup_encryption import NO_KEYS, BackupKeyring
from ganeti.protocols.backup_manifest import FORMAT, PIECE, Manifest, parse_manifest
from ganeti.protocols.paper_key import paper_of
from tests.support.backup_store import (
    BLOCK,
    DISK,
    KEY,
    BackupStore,
    Crashed,
    changed,
    crash_at,
    keyring,
)

pytestmark = pytest.mark.requirement("G11", "G3")

OTHER = bytes([9] * 32)


@pytest.fixture
def store(tmp_path: Path) -> BackupStore:
    return BackupStore(tmp_path / "web1", tmp_path, keys=keyring())


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


def manifest(store: BackupStore, point: str) -> Manifest:
    file = store.path / f"{point}.json"
    return parse_manifest(file.read_bytes(), file.name)


def rewrite(store: BackupStore, changed_: Manifest) -> None:
    (store.path / changed_.file).write_bytes(wire.encode(changed_))


def test_chain_and_merge_give_every_backup_back(store: BackupStore) -> None:
    with_three(store)
    store.verify()
    first, second, third = store.names()
    assert manifest(store, third).parent == second
    assert manifest(store, third).key_id == key_id(KEY)
    before = manifest(store, second).disks[0].key
    store.prune(first)
    assert manifest(store, second).disks[0].key != before  # never two images by one data key
    store.verify()
    store.prune(second)
    store.verify()
    assert store.problems() == {third: []}


def test_files_contain_nothing_of_the_disk(store: BackupStore) -> None:
    secret = b"the guest's secret!!" * 4000
    point = store.save(secret.ljust(2 * BLOCK, b"x"))
    for file in store.path.iterdir():
        content = file.read_bytes()
        assert secret[:40] not in content
        assert b"QFI" not in content[:4]
    assert KEY.hex() not in (store.path / f"{point}.json").read_text()


def test_description_is_encrypted(store: BackupStore) -> None:
    point = store.save(disk())
    (store.path / f"{point}.json").unlink()
    with opened(store.path, store.keys) as directory:
        new = Manifest(
            instance="web1", instance_uuid="i", point=point, number=0, time=1.0,
            consistency=Consistency.DOWN, disks=(), description="[os_private]\nroot_password = swordfish",
        )  # fmt: skip
        sealed = directory.commit(new)
    content = (store.path / f"{point}.json").read_text()
    assert "swordfish" not in content
    assert "os_private" not in content
    assert store.keys.description(sealed) == new.description


def test_without_the_key_the_error_names_it(store: BackupStore) -> None:
    point = store.save(disk())
    for keys in (NO_KEYS, keyring(OTHER)):
        with pytest.raises(HostError, match=f"backup key {key_id(KEY)}, which is not here"):
            replace(store, keys=keys).read(point)
    # Another key below the same id, as if a paper was mixed up.
    mixed = BackupKeyring({key_id(KEY): bytes(32)}, key_id(KEY))
    with pytest.raises(HostError, match="not what was sealed"):
        replace(store, keys=mixed).read(point)


def test_check_needs_no_key(store: BackupStore) -> None:
    with_three(store)
    first, second, third = store.names()
    image = next(store.path.glob(f"{second}.*.qcow2"))
    flip(image, 5)
    found = replace(store, keys=NO_KEYS).problems()
    assert found[first] == []
    assert "(SHA-256)" in found[second][0]
    assert found[third] == found[second]  # it needs that image
    assert not list(store.path.glob("*.proof"))
    store.problems()
    assert len(list(store.path.glob("*.proof"))) == 3


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def test_every_flipped_bit_of_an_image_is_found_and_the_rest_is_restorable(
    store: BackupStore,
) -> None:
    first = store.save(disk())
    full = store.save(disk(2), full=True)
    image = next(store.path.glob(f"{full}.*.qcow2"))
    content, rng = image.read_bytes(), random.Random(1)
    for at in [0, len(content) - 1, *(rng.randrange(len(content)) for _ in range(20))]:
        flip(image, at)
        with pytest.raises(HostError, match=r"qcow2: the .* bytes from 0 are not what was written"):
            store.read(full)
        image.write_bytes(content)
    flip(image, 3)
    assert store.read(first) == disk()
    assert store.problems()[first] == []


Attack = Callable[[BackupStore, str, str], None]


def _new_digests(store: BackupStore, point: str) -> Manifest:
    """Return the manifest with the digests of the files as they are now: only keys can tell the difference."""
    import hashlib

    found = manifest(store, point)
    images = []
    for image in found.disks:
        content = (store.path / image.file).read_bytes()
        pieces = [content[at : at + PIECE] for at in range(0, len(content), PIECE)]
        digests = tuple(hashlib.sha256(one).hexdigest() for one in pieces)
        images.append(msgspec.structs.replace(image, pieces=digests, length=len(content)))
    return msgspec.structs.replace(found, disks=tuple(images))


def flipped_with_digest(store: BackupStore, first: str, _second: str) -> None:
    flip(next(store.path.glob(f"{first}.*.qcow2")), 70_000)
    rewrite(store, _new_digests(store, first))


def swapped_pieces(store: BackupStore, first: str, _second: str) -> None:
    image = next(store.path.glob(f"{first}.*.qcow2"))
    content = image.read_bytes()
    image.write_bytes(content[PIECE : 2 * PIECE] + content[:PIECE] + content[2 * PIECE :])
    found = _new_digests(store, first)
    tags = found.disks[0].tags
    one = msgspec.structs.replace(found.disks[0], tags=tags[32:64] + tags[:32] + tags[64:])
    rewrite(store, msgspec.structs.replace(found, disks=(one,)))


def truncated(store: BackupStore, first: str, _second: str) -> None:
    image = next(store.path.glob(f"{first}.*.qcow2"))
    image.write_bytes(image.read_bytes()[:PIECE])
    found = _new_digests(store, first)
    one = msgspec.structs.replace(found.disks[0], tags=found.disks[0].tags[:32])
    rewrite(store, msgspec.structs.replace(found, disks=(one,)))


def image_of_another_backup(store: BackupStore, first: str, second: str) -> None:
    others = next(store.path.glob(f"{second}.*.qcow2"))
    shutil.copy(others, next(store.path.glob(f"{first}.*.qcow2")))
    theirs = manifest(store, second).disks[0]
    found = manifest(store, first)
    one = msgspec.structs.replace(theirs, file=found.disks[0].file, backing="")
    rewrite(store, msgspec.structs.replace(found, disks=(one,)))


def another_parent(store: BackupStore, first: str, second: str) -> None:
    found = manifest(store, first)
    rewrite(store, msgspec.structs.replace(found, time=found.time + 1))
    del second


def another_number(store: BackupStore, first: str, _second: str) -> None:
    rewrite(store, msgspec.structs.replace(manifest(store, first), number=7))


def manifest_of_another_name(store: BackupStore, first: str, second: str) -> None:
    other = manifest(store, second)
    file = f"{first}.{DISK}.qcow2"
    one = msgspec.structs.replace(other.disks[0], file=file, backing="")
    shutil.copy(store.path / other.disks[0].file, store.path / file)
    rewrite(store, msgspec.structs.replace(other, point=first, disks=(one,)))


ATTACKS: tuple[Attack, ...] = (
    flipped_with_digest,
    swapped_pieces,
    truncated,
    image_of_another_backup,
    another_parent,
    another_number,
    manifest_of_another_name,
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: one.__name__)
def test_forged_backup_is_refused_and_the_other_is_restorable(
    store: BackupStore, attack: Attack
) -> None:
    state = disk(blocks=200)
    first, second = store.save(state), store.save(disk(5, 200), full=True)
    attack(store, first, second)
    with pytest.raises(HostError, match=f"{first}.json is not what was sealed"):
        store.read(first)
    assert store.read(second) == disk(5, 200)
    assert f"{first}.json is not what was sealed" in store.problems()[first][0]


def test_pieces_are_bound_to_their_positions_even_with_a_valid_seal(store: BackupStore) -> None:
    """The tags alone find swapped and missing pieces, also without the digests and the seal."""
    state = disk(blocks=200)
    point = store.save(state)
    for attack in (swapped_pieces, truncated, flipped_with_digest):
        shutil.copytree(store.path, store.work / "before")
        attack(store, point, "")
        rewrite(store, store.keys.resealed(manifest(store, point)))
        with pytest.raises(HostError, match=r"AES-GCM|its tables|tags"):
            store.read(point)
        shutil.rmtree(store.path)
        (store.work / "before").rename(store.path)
    store.verify()


def test_backup_of_another_instance_or_cluster_is_refused(store: BackupStore) -> None:
    point = store.save(disk())
    others = BackupStore(store.work / "db1", store.work, keys=keyring(instance="db1"))
    for file in store.path.iterdir():
        shutil.copy(file, others.path)
    with pytest.raises(HostError, match="is of web1, not of db1"):
        others.read(point, len(disk()))
    renamed = msgspec.structs.replace(manifest(store, point), instance="db1")
    rewrite(others, renamed)
    with pytest.raises(HostError, match="belongs to another instance"):
        others.read(point, len(disk()))


def downgraded(store: BackupStore, point: str) -> None:
    """Replace a backup by a plain one that the attacker has made."""
    plain = BackupStore(store.work / "plain" / "web1", store.work)
    made = plain.save(b"evil" * (6 * BLOCK))
    for file in plain.path.iterdir():
        text = file.name.replace(made, point)
        shutil.copy(file, store.path / text)
    content = (store.path / f"{made}.json").read_text().replace(made, point)
    (store.path / f"{point}.json").write_text(content)


def test_downgraded_backup_is_refused_where_encryption_is_required(store: BackupStore) -> None:
    (store.work / "plain").mkdir()
    point = store.save(disk())
    downgraded(store, point)
    strict = replace(store, keys=keyring(is_required=True))
    with pytest.raises(HostError, match="is not encrypted, and this cluster encrypts"):
        strict.read(point)


def test_encrypted_backup_never_needs_a_plain_or_another_key(store: BackupStore) -> None:
    plain = replace(store, keys=replace(keyring(), current=""))
    plain.save(disk())
    store.made = plain.made
    second = store.save(disk())
    assert manifest(store, second).disks[0].backing == ""
    store.keys = replace(keyring(OTHER), keys={**store.keys.keys, **keyring(OTHER).keys})
    third = store.save(disk())
    assert manifest(store, third).key_id == key_id(OTHER)
    assert manifest(store, third).disks[0].backing == ""
    # A parent that was replaced by a plain one is not read.
    fourth = store.save(disk(4))
    found = manifest(store, third)
    images = tuple(msgspec.structs.replace(one, key="", tags="") for one in found.disks)
    rewrite(store, msgspec.structs.replace(found, format=FORMAT, key_id="", seal="", disks=images))
    with pytest.raises(HostError, match="one of their manifests was replaced"):
        store.read(fourth)


@pytest.mark.parametrize("work", ["save", "prune"])
def test_crash_at_each_step_leaves_the_old_state_or_the_new_one(
    store: BackupStore, work: str
) -> None:
    states = with_three(store)
    shutil.copytree(store.path, store.work / "before")
    before, number = dict(store.expected), 0
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
        # A process without the key completes a merge that was decided.
        with opened(store.path) as directory, directory.locked():
            directory.complete()
        left = store.names()
        store.expected = {
            name: before.get(name, new) for name in (*names, f"20261127-{4:06}") if name in left
        }
        assert set(left) >= (set(names) if work == "save" else set(names[2:]))
        store.verify()
    assert number > 15


@pytest.mark.parametrize("seed", range(6))
def test_random_history_gives_every_kept_backup_back(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    store = BackupStore(tmp_path / "web1", tmp_path, keys=keyring())
    data = disk(seed)
    for _ in range(10):
        data = changed(rng, data, grows=True)
        store.save(data, full=rng.random() < 0.2)
        if rng.random() < 0.5:
            store.prune(rng.choice(store.names()[:-1] or store.names()))
        store.verify()


def test_decrypted_files_are_those_of_a_plain_backup(store: BackupStore) -> None:
    states = with_three(store)
    key_file, plain = store.work / "key", store.work / "out"
    key_file.write_text(paper_of(KEY, "c.example.com", "2026-11-28"))
    words = [str(store.path), str(plain), f"--key-file={key_file}"]
    assert program.main(words) == 0
    for image, state in zip(sorted(plain.glob("*.qcow2")), states, strict=True):
        raw = store.work / "raw"
        subprocess.run(["qemu-img", "convert", "-O", "raw", str(image), str(raw)], check=True)
        assert raw.read_bytes() == state
    out = replace(store, path=plain, keys=NO_KEYS)
    out.verify()
    assert out.problems() == {name: [] for name in store.names()}
    assert json.loads((plain / f"{store.names()[0]}.json").read_bytes())["format"] == FORMAT
    assert program.main(words) == 1  # not empty any more


def test_decryption_reports_a_damaged_backup_and_writes_the_others(
    store: BackupStore, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = store.save(disk()), store.save(disk(2), full=True)
    flip(next(store.path.glob(f"{first}.*.qcow2")), 100)
    key_file, plain = store.work / "key", store.work / "out"
    key_file.write_text(paper_of(KEY, "c", "2026-11-28"))
    assert program.main([str(store.path), str(plain), f"--key-file={key_file}"]) == 1
    said = capsys.readouterr()
    assert f"decrypted {second}" in said.out
    assert f"{first}" in said.err
    assert "not what was written" in said.err
    assert replace(store, path=plain, keys=NO_KEYS).read(second) == disk(2)
    key_file.write_text(paper_of(OTHER, "c", "2026-11-28"))
    shutil.rmtree(plain)
    assert program.main([str(store.path), str(plain), f"--key-file={key_file}"]) == 1
    assert f"backup key {key_id(KEY)}, which is not here" in capsys.readouterr().err


def test_hostile_manifests_are_errors(store: BackupStore) -> None:
    point = store.save(disk())
    good = json.loads((store.path / f"{point}.json").read_bytes())
    image = good["disks"][0]
    for fields in (
        {"key_id": "../../etc"},
        {"key_id": ""},
        {"format": FORMAT},
        {"disks": [{**image, "key": ""}]},
        {"disks": [{**image, "key": "zz" * 60}]},
        {"disks": [{**image, "tags": image["tags"][2:]}]},
        {"disks": [{**image, "tags": "q" * len(image["tags"])}]},
        {"seal": "ü"},
        {"schedule": "../x"},
        {"description": "zz"},
    ):
        (store.path / f"{point}.json").write_text(json.dumps({**good, **fields}))
        assert store.names() == [], fields
