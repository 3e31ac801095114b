"""A provider of external storage that keeps loop devices by the UUIDs of their volumes, under a real cluster."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.local_cluster import LocalCluster, local_cluster

pytestmark = [
    pytest.mark.host,
    pytest.mark.soak,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/dev/loop-control").exists(),
        reason="loop devices need root",
    ),
]
WEB, OTHER = "web1.example.com", "web2.example.com"
ACTIONS = ("create", "attach", "detach", "remove", "grow", "setinfo", "snapshot")
SCRIPT = """#!/bin/sh
set -eu
file="{volumes}/$VOL_UUID"
action=$(basename "$0")
device() {{ losetup -j "$file" -n -O NAME | head -n 1; }}
echo "$action $VOL_NAME ${{VOL_METADATA:-}}" >>"{volumes}.log"
[ ! -e "{volumes}.no-$action" ] || exit 1
[ ! -e "{volumes}.idle-$action" ] || exit 0
case $action in
  create) truncate -s "${{VOL_SIZE}}M" "$file" ;;
  attach) [ -e "$file" ] || exit 1; found=$(device); echo "${{found:-$(losetup -f --show "$file")}}" ;;
  detach) found=$(device); [ -z "$found" ] || losetup -d "$found" ;;
  remove) [ -z "$(device)" ] || exit 1; rm "$file" ;;
  grow) truncate -s "${{VOL_NEW_SIZE}}M" "$file"; losetup -c "$(device)" ;;
  snapshot) cp "$file" "{volumes}/$VOL_SNAPSHOT_UUID" ;;
esac
"""


@dataclass(frozen=True)
class Shelf:
    """A cluster, and where its provider keeps volumes."""

    cluster: LocalCluster
    volumes: Path

    def add(self, name: str, *options: str) -> list[str]:
        return [
            *("gnt-instance", "add", "-t", "ext", "--disk", "0:size=8m,provider=shelf"),
            *("-o", "noop", "--no-install", "-B", "memory=16m", "--no-nics", "-n", "node1"),
            *options,
            name,
        ]

    def flag(self, name: str) -> Path:
        return self.volumes.with_name(f"{self.volumes.name}.{name}")

    def device(self, volume: Path | None = None) -> str:
        """The loop device of a volume, by default of the only one; '' if it is not attached."""
        volume = volume or next(self.volumes.iterdir())
        words = ["losetup", "-j", str(volume), "-n", "-O", "NAME"]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def write(device: str, text: bytes) -> None:
    """Let a device contain a text and zeros."""
    with Path(device).open("r+b") as disk:
        disk.write(text + bytes(64 - len(text)))
        disk.flush()
        os.fsync(disk.fileno())


@pytest.fixture(scope="module")
def shelf() -> Iterator[Shelf]:
    with local_cluster(nodes=2) as made:
        made.install_noop()
        volumes = made.directory / "volumes"
        volumes.mkdir()
        for node in made.cluster.nodes:
            provider = node.paths.extstorage_search_path[0] / "shelf"
            provider.mkdir(parents=True)
            (provider / "parameters.list").write_text("pool\tWhere it lies\n")
            for action in ACTIONS:
                (provider / action).write_text(SCRIPT.format(volumes=volumes))
                (provider / action).chmod(0o755)
        made.ok(
            "gnt-cluster",
            "modify",
            "--enabled-disk-templates=file,sharedfile,diskless,ext,blockdev",
        )
        yield Shelf(made, volumes)


@pytest.fixture
def web(shelf: Shelf) -> Iterator[LocalCluster]:
    """The cluster with one running instance, and nothing of it afterwards."""
    shelf.cluster.ok(*shelf.add(WEB))
    assert shelf.device() == ""
    shelf.cluster.ok("gnt-instance", "startup", WEB)
    assert shelf.device()
    yield shelf.cluster
    for name in shelf.cluster.names("instance"):
        shelf.cluster.ok("gnt-instance", "remove", "-f", "--shutdown-timeout=0", name)
    assert not list(shelf.volumes.iterdir())


@pytest.mark.requirement("G12", "S132")
def test_an_export_leaves_the_volume_of_the_running_guest_alone(
    shelf: Shelf, web: LocalCluster
) -> None:
    (volume,) = shelf.volumes.iterdir()
    with Path(shelf.device()).open("r+b") as disk:
        disk.write(b"the guest's data")
    said = web.ok("gnt-backup", "export", "-n", "node2", WEB).out
    assert "taking a snapshot of disk 0" in said
    assert list(shelf.volumes.iterdir()) == [volume]
    assert shelf.device()
    assert volume.read_bytes().startswith(b"the guest's data")
    (dump,) = (web.node(2).paths.exports / WEB).glob("*-*")
    assert dump.read_bytes() == volume.read_bytes()
    web.ok("gnt-backup", "remove", WEB)


@pytest.mark.requirement("G11", "G12")
def test_snapshots_are_taken_rolled_back_to_and_removed(shelf: Shelf, web: LocalCluster) -> None:
    (volume,) = shelf.volumes.iterdir()
    write(shelf.device(), b"first")
    said = web.ok("gnt-instance", "snapshot", "create", WEB, "s1").out
    assert f"Snapshot s1 of {WEB}: as after a loss of power" in said
    write(shelf.device(volume), b"second")
    web.ok("gnt-instance", "snapshot", "create", WEB, "s2")
    write(shelf.device(volume), b"third")
    refused = web.run("gnt-instance", "snapshot", "rollback", "-f", WEB, "s1")
    assert refused.status == 1
    assert "pass --stop" in refused.err
    for name, text in (("s1", b"first"), ("s2", b"second"), ("s1", b"first")):
        web.ok("gnt-instance", "snapshot", "rollback", "-f", "--stop", WEB, name)
        assert volume.read_bytes().rstrip(b"\0") == text
        assert shelf.device(volume), "the guest runs again"
    listed = json.loads(web.ok("gnt-instance", "snapshot", "list", "--json", WEB).out)
    assert [(one["name"], one["size"], one["consistency"]) for one in listed] == [
        ("s1", 8, "crash"),
        ("s2", 8, "crash"),
    ]
    assert web.value("instance", WEB, "snapshot_count") == "2"
    assert "s1: " in web.ok("gnt-instance", "info", WEB).out
    grown = web.run("gnt-instance", "grow-disk", WEB, "0", "8m")
    assert f"gnt-instance snapshot remove {WEB}" in grown.err
    web.ok("gnt-instance", "failover", "-f", WEB)
    web.ok("gnt-instance", "snapshot", "remove", "-f", WEB, "s1")
    assert len(list(shelf.volumes.iterdir())) == 2
    web.ok("gnt-cluster", "verify")


def test_a_provider_that_does_not_grow_a_disk_is_noticed(shelf: Shelf, web: LocalCluster) -> None:
    shelf.flag("idle-grow").touch()
    failed = web.run("gnt-instance", "grow-disk", WEB, "0", "8m")
    assert failed.status == 1
    assert "8 MiB instead of 16 MiB" in failed.out + failed.err
    assert "repair-disk-sizes" in failed.out + failed.err
    shelf.flag("idle-grow").unlink()
    web.ok("gnt-instance", "reboot", WEB)
    web.ok("gnt-instance", "grow-disk", WEB, "0", "8m")
    assert web.value("instance", WEB, "disk.sizes") == "16"
    shelf.flag("idle-create").touch()
    failed = web.run(*shelf.add(OTHER))
    shelf.flag("idle-create").unlink()
    assert failed.status == 1
    assert "although the storage reported success" in failed.out + failed.err
    web.ok("gnt-cluster", "verify")


@pytest.mark.requirement("G11")
def test_missing_volume_is_abandoned(shelf: Shelf, web: LocalCluster) -> None:
    shelf.flag("no-create").touch()
    assert web.run(*shelf.add(OTHER)).status == 1
    shelf.flag("no-create").unlink()
    assert "could not undo" not in web.ok("gnt-cluster", "verify").out
    assert web.names("instance") == {WEB}


def test_the_provider_is_notified_of_the_new_name(shelf: Shelf, web: LocalCluster) -> None:
    web.ok("gnt-instance", "shutdown", "--timeout=0", WEB)
    web.ok("gnt-instance", "rename", "--no-name-check", "--no-ip-check", WEB, OTHER)
    notes = [
        line.split()[2]
        for line in shelf.flag("log").read_text().splitlines()
        if line.startswith("setinfo")
    ]
    assert notes[-2:] == [f"originstname+{WEB}", f"originstname+{OTHER}"]
    assert shelf.device() == ""


@pytest.mark.requirement("A48", "G12")
def test_the_device_of_another_instance_is_not_adopted(shelf: Shelf, web: LocalCluster) -> None:
    link = Path(f"/dev/disk/by-id/ganeti-test-{os.getpid()}")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(shelf.device())
    try:
        refused = web.run(
            *("gnt-instance", "add", "-t", "blockdev", "--disk", f"0:adopt={link}", "-n", "node1"),
            *("-o", "noop", "--no-install", "-B", "memory=16m", "--no-nics", "--no-start", OTHER),
        )
    finally:
        link.unlink()
    assert refused.status == 1
    assert f"is disk 0 of instance {WEB}" in refused.out + refused.err
