"""Incremental backups by the real commands, between real nodes of a local cluster."""

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.test_gnt_backup import add, digests, disks_of, install_os
from tests.support.local_cluster import LocalCluster
from tests.support.patience import patience

pytestmark = [pytest.mark.cluster, pytest.mark.in_turn, pytest.mark.timeout(180)]

NewName = Callable[[], str]
BLOCK = 64 * 1024


def save(cluster: LocalCluster, *words: str) -> tuple[str, str]:
    """Make a backup; its name and what the command said."""
    said = cluster.ok("gnt-backup", "save", *words).out
    found = re.search(r"^Backup (\S+) of", said, re.MULTILINE)
    assert found, said
    return found[1], said


def backups_of(cluster: LocalCluster, node: int, instance: str) -> Path:
    return cluster.node(node).paths.below(f"/srv/ganeti/backup/{instance}")


def proofs(cluster: LocalCluster, instance: str) -> list[str]:
    return cluster.ok("gnt-backup", "points", "--no-headers", "-o", "proof", instance).lines


def change(disk: Path, blocks: list[int], data: bytes | None = None) -> None:
    with disk.open("r+b") as target:
        for block in blocks:
            target.seek(block * BLOCK)
            target.write(data or os.urandom(BLOCK))


@pytest.mark.requirement("S132")
def test_instance_is_restored_to_each_backup_also_after_a_prune(
    cluster: LocalCluster, new_name: NewName
) -> None:
    install_os(cluster, "empty", ["create", "verify"])
    short, new = new_name(), new_name()
    add(cluster, short, "empty")
    name = cluster.value("instance", short, "name")
    disks = disks_of(cluster, 1, short)
    states, points = [digests(disks)], [save(cluster, "-n", "node2", short)[0]]
    for blocks in ([1, 2, 40], [2, 63], []):
        change(disks[0], blocks)
        change(disks[1], blocks[:1], bytes(BLOCK))
        point, said = save(cluster, short)
        assert f"based on {points[-1]}" in said
        states.append(digests(disks))
        points.append(point)
    place = backups_of(cluster, 2, name)
    sizes = {one.name: one.stat().st_size for one in place.glob("*.qcow2")}
    assert sum(size for file, size in sizes.items() if file.startswith(points[2])) < 3 * 2**20
    newest = json.loads((place / f"{points[-1]}.json").read_text())
    for disk, image in zip(disks, newest["disks"], strict=True):
        copy = subprocess.run(
            ["qemu-img", "compare", "-f", "raw", "-F", "qcow2", str(disk), image["file"]],
            cwd=place, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert copy.returncode == 0, copy.stderr + copy.stdout
    listed = cluster.ok("gnt-backup", "points", "--no-headers", "-o", "backup", name).lines
    assert listed == points
    assert proofs(cluster, name) == ["unproven"] * 4
    cluster.ok("gnt-backup", "check", name)
    assert proofs(cluster, name) == ["good"] * 4

    def restores(point: str, state: list[str]) -> bool:
        change(disks[0], [0, 2, 5])
        cluster.ok("gnt-backup", "restore", "-f", "--point", point, short)
        return digests(disks) == state

    assert all(map(restores, points, states))
    cluster.ok("gnt-backup", "prune", "--keep-last", "2", name)
    assert (
        cluster.ok("gnt-backup", "points", "--no-headers", "-o", "backup", name).lines == points[2:]
    )
    assert proofs(cluster, name) == ["unproven", "good"]
    assert all(map(restores, points[2:], states[2:]))
    cluster.ok(
        "gnt-backup",
        "import",
        "-t",
        "file",
        "-n",
        "node3",
        "--src-dir",
        name,
        "--backup",
        points[2],
        new,
    )
    assert digests(disks_of(cluster, 3, new)) == states[2]
    assert len(list(place.iterdir())) == 2 * (3 + 1)  # with their proofs
    for number in (1, 2, 3):
        paths = cluster.node(number).paths
        assert not list(paths.transfer_keys.glob("*"))
        assert not list(paths.streams.glob("*"))
        assert not paths.image_work.exists() or not list(paths.image_work.iterdir())
    for one in (short, new):
        cluster.ok("gnt-instance", "remove", "-f", one)


@pytest.mark.requirement("S135")
def test_damaged_backup_is_named_and_the_others_remain(
    cluster: LocalCluster, new_name: NewName
) -> None:
    install_os(cluster, "bare", ["create", "verify"])
    short = new_name()
    add(cluster, short, "bare")
    name = cluster.value("instance", short, "name")
    disks = disks_of(cluster, 1, short)
    first, _ = save(cluster, "-n", "node3", short)
    before = digests(disks)
    change(disks[0], [7])
    second, _ = save(cluster, short)
    place = backups_of(cluster, 3, name)
    [image] = [one for one in place.glob(f"{second}.*.qcow2") if one.stat().st_size > 5 * BLOCK]
    content = bytearray(image.read_bytes())
    content[BLOCK + 100] ^= 1
    image.write_bytes(content)
    said = cluster.fails("gnt-backup", "check", name)
    assert image.name in said
    assert f"these can be restored: {first}" in said
    said = cluster.fails("gnt-backup", "restore", "-f", short)
    assert "SHA-256" in said
    assert "gnt-backup restore" in cluster.fails("gnt-instance", "startup", short)
    cluster.ok("gnt-backup", "restore", "-f", "--point", first, short)
    assert digests(disks) == before
    cluster.ok("gnt-instance", "remove", "-f", short)


@pytest.mark.requirement("A64", "G11")
def test_backup_is_mounted_and_nothing_of_it_remains(
    cluster: LocalCluster, new_name: NewName, tmp_path: Path
) -> None:
    short = new_name()
    install_os(cluster, short, ["create", "verify"])
    add(cluster, short, short)
    name = cluster.value("instance", short, "name")
    disks = disks_of(cluster, 1, short)
    change(disks[0], [1, 3])
    first, _ = save(cluster, "-n", "node2", short)
    state = digests(disks)
    change(disks[0], [2])
    save(cluster, short)
    elsewhere = cluster.run("gnt-backup", "mount", short, node=3)
    assert elsewhere.status == 1
    assert f"this node has no backups of {short}" in elsewhere.err
    with cluster.in_background("gnt-backup", "mount", "--point", first, short, node=2) as mounted:
        assert mounted.stdout is not None
        told = [mounted.stdout.readline() for _ in range(3)]
        assert told[0].startswith(f"Backup {first} of {name} can be read here")
        uris = [line.split(": ")[1].strip() for line in told[1:]]
        socket = Path(uris[0].partition("socket=")[2])
        assert socket.parent.stat().st_mode & 0o777 == 0o700
        place = backups_of(cluster, 2, name)
        for file in place.iterdir():
            file.unlink()
        for number, uri in enumerate(uris):
            copy = tmp_path / str(number)
            subprocess.run(
                ["qemu-img", "convert", "-f", "raw", "-O", "raw", uri, str(copy)], check=True
            )
            assert digests([copy]) == state[number : number + 1]
        server = serving(socket)
        facts = dict(line.split(":", 1) for line in (server / "status").read_text().splitlines())
        assert facts["Uid"].split()[0] != "0"
        assert facts["NoNewPrivs"].strip() == "1"
        assert int(facts["CapEff"], 16) == 0
        mounted.send_signal(signal.SIGINT)
        assert mounted.wait(30 * patience()) == 0
        assert not socket.parent.exists()
        assert not server.exists()


def serving(path: Path) -> Path:
    """The process in /proc that listens at a socket."""
    sockets = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    (number,) = (words[6] for words in sockets if words[-1] == str(path))
    found = set[Path]()
    for one in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it has been closed
            if str(one.readlink()) == f"socket:[{number}]":
                found.add(one.parent.parent)
    (process,) = found
    return process


@pytest.fixture
def small_target(cluster: LocalCluster) -> Iterator[Path]:
    """The directory of the backups on node 2, as a file system of 8 MiB."""
    path = cluster.node(2).paths.below("/srv/ganeti/backup")
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "backups", str(path)], check=True
    )
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.mark.requirement("G11")
def test_full_or_read_only_target_is_named_and_keeps_what_it_has(
    cluster: LocalCluster, new_name: NewName, small_target: Path
) -> None:
    install_os(cluster, "plain", ["create", "verify"])
    short = new_name()
    add(cluster, short, "plain")
    disks = disks_of(cluster, 1, short)
    first, _ = save(cluster, "-n", "node2", short)
    before = digests(disks)
    change(disks[0], list(range(40)))
    filler = small_target / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(BLOCK))
    assert "No space left" in cluster.fails("gnt-backup", "save", short)
    filler.unlink()
    second, said = save(cluster, short)
    assert f"based on {first}" in said
    after = digests(disks)
    subprocess.run(["mount", "-o", "remount,ro", str(small_target)], check=True)
    assert "Read-only file system" in cluster.fails("gnt-backup", "save", short)
    for point, state in ((first, before), (second, after)):
        cluster.ok("gnt-backup", "restore", "-f", "--point", point, short)
        assert digests(disks) == state
    subprocess.run(["mount", "-o", "remount,rw", str(small_target)], check=True)
    cluster.ok("gnt-backup", "check", short)
    assert len(list(small_target.rglob("*.qcow2"))) == 4
    cluster.ok("gnt-instance", "remove", "-f", short)
