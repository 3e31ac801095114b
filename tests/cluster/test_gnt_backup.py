"""Exports and imports by the real commands, between real nodes of a local cluster."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_cluster import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

NewName = Callable[[], str]
SCRIPTS = {
    "create": "exit 0",
    "verify": "exit 0",
    "export": 'echo "saving disk $EXPORT_INDEX" >&2; exec cat "$EXPORT_DEVICE"',
    "import": 'echo "loading disk $IMPORT_INDEX" >&2; exec dd of="$IMPORT_DEVICE" conv=notrunc 2>/dev/null',
    "rename": 'echo "from $OLD_INSTANCE_NAME to $INSTANCE_NAME" >&2',
}


def install_os(cluster: LocalCluster, name: str, scripts: list[str]) -> None:
    """An OS definition with these scripts on all nodes."""
    for node in cluster.cluster.nodes:
        directory = node.paths.os_search_path[0] / name
        directory.mkdir(parents=True)
        (directory / "ganeti_api_version").write_text("20\n")
        for script in scripts:
            (directory / script).write_text(f"#!/bin/sh\n{SCRIPTS[script]}\n")
            (directory / script).chmod(0o755)


def disks_of(cluster: LocalCluster, node: int, instance: str) -> list[Path]:
    place = cluster.node(node).paths.below("/srv/ganeti/file-storage")
    return sorted(place.rglob(f"{instance}*/*"), key=lambda path: path.name.partition(".disk")[2])


def digests(paths: list[Path]) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


def add(cluster: LocalCluster, name: str, os_name: str) -> list[str]:
    """An instance on node 1 with data on two disks; the digests of those."""
    cluster.ok(
        "gnt-instance", "add", "-t", "file", "--disk", "0:size=4m", "--disk", "1:size=2m",
        "-o", os_name, "-B", "memory=16m", "--no-nics", "--no-start", "-n", "node1", name,
    )  # fmt: skip
    disks = disks_of(cluster, 1, name)
    assert len(disks) == 2
    for disk in disks:
        with disk.open("r+b") as target:
            target.write(os.urandom(1024 * 1024))
    return digests(disks)


@pytest.mark.requirement("S132", "S134", "S136", "S222")
def test_an_instance_goes_to_another_node_by_way_of_an_export(
    cluster: LocalCluster, new_name: NewName
) -> None:
    install_os(cluster, "scripted", list(SCRIPTS))
    old, new = new_name(), new_name()
    data = add(cluster, old, "scripted")
    said = cluster.ok("gnt-backup", "export", "-n", "node2", old).out
    assert "saving disk 0" in said
    assert "saving disk 1" in said
    listed = cluster.ok("gnt-backup", "list", "--no-headers", "--separator=:").lines
    full = cluster.value("instance", old, "name")
    assert listed == [f"{cluster.value('node', 'node2', 'name')}:{full}"]
    exported = cluster.node(2).paths.exports / full
    dumps = {path.name: path for path in exported.iterdir()}
    config = dumps.pop("config.ini").read_text()
    assert sorted(digests(list(dumps.values()))) == sorted(data)
    assert all(one in config for one in data)
    said = cluster.ok("gnt-backup", "import", "-n", "node3", "--src-dir", full, new).out
    assert "loading disk 0" in said
    assert f"from {full} to" in said
    assert digests(disks_of(cluster, 3, new)) == data
    for number in (1, 2, 3):
        paths = cluster.node(number).paths
        assert not list(paths.transfer_keys.glob("*"))
        assert not list(paths.streams.glob("*"))
    cluster.ok("gnt-backup", "remove", full)
    assert cluster.ok("gnt-backup", "list", "--no-headers").lines == []
    for name in (old, new):
        cluster.ok("gnt-instance", "remove", "-f", name)


@pytest.mark.requirement("S135", "S140", "S133")
def test_disks_without_scripts_are_compressed_images_and_damage_is_found(
    cluster: LocalCluster, new_name: NewName
) -> None:
    install_os(cluster, "plain", ["create", "verify"])
    name = new_name()
    data = add(cluster, name, "plain")
    cluster.ok("gnt-backup", "export", "-n", "node2", "--compress=gzip", "--remove-instance", name)
    assert name not in "".join(cluster.names("instance"))
    [exported] = cluster.node(2).paths.exports.iterdir()
    assert "has 2 disks" in cluster.fails(
        "gnt-backup", "import", "-n", "node3", "-s", "4m", exported.name
    )
    cluster.ok("gnt-backup", "import", "-n", "node3", exported.name)
    assert digests(disks_of(cluster, 3, name)) == data
    cluster.ok("gnt-instance", "remove", "-f", exported.name)
    said = cluster.ok("gnt-backup", "verify", exported.name).out
    node2 = cluster.value("node", "node2", "name")
    assert [f"{node2}: disk {disk} is good" in said for disk in (0, 1)] == [True, True]
    dump = max((one for one in exported.iterdir() if one.name != "config.ini"),
               key=lambda path: path.stat().st_size)  # fmt: skip
    content = bytearray(dump.read_bytes())
    content[len(content) // 2] ^= 1
    dump.write_bytes(content)
    said = cluster.fails("gnt-backup", "verify", exported.name)
    assert f"{node2}: disk" in said
    assert dump.name in said
    assert sorted(one.suffix for one in exported.iterdir()) == ["", "", ".ini"]
    said = cluster.fails("gnt-backup", "import", "-n", "node3", exported.name)
    assert "damaged" in said
    assert exported.name not in cluster.names("instance")
    assert disks_of(cluster, 3, name) == []
    cluster.ok("gnt-backup", "remove", exported.name)
