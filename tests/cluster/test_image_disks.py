"""Disks with format=qcow2 by the real commands, between real nodes of a local cluster."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import NODED
from tests.cluster.test_gnt_backup import disks_of, install_os
from tests.cluster.test_incremental_backups import save
from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.patience import text_of
from tests.support.qemu_images import qemu_io, raw_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.in_turn,
    pytest.mark.timeout(180),
    pytest.mark.requirement("G11", "G12"),
]

MIB = 1 << 20
NewName = Callable[[], str]


def add(cluster: LocalCluster, name: str, os_name: str, *words: str) -> None:
    """An instance with an image and a raw disk."""
    cluster.ok(
        "gnt-instance", "add", "-t", "file", "--disk", "0:size=4m,format=qcow2",
        "--disk", "1:size=2m", "-o", os_name, "-B", "memory=16m", "--no-nics", "--no-start",
        "-n", "node1", *words, name,
    )  # fmt: skip


def contents(cluster: LocalCluster, node: int, name: str) -> list[bytes]:
    """Return the data of the disks; the first one is an image."""
    image, raw = disks_of(cluster, node, name)
    return [raw_of(image), raw.read_bytes()]


def write(image: Path, pattern: int) -> None:
    qemu_io(image, f"write -P {pattern} 100k 1M", f"write -P {pattern + 1} 4000k 4k")


def test_data_of_an_image_goes_wherever_that_of_a_raw_disk_goes(
    cluster: LocalCluster, new_name: NewName
) -> None:
    install_os(cluster, "any", ["create", "verify", "export", "import", "rename"])
    name, clone, copy = new_name(), new_name(), new_name()
    add(cluster, name, "any", "--no-install")
    image, raw = disks_of(cluster, 1, name)
    write(image, 1)
    raw.write_bytes(b"raw" * 100 + bytes(2 * 1024 * 1024 - 300))
    first = contents(cluster, 1, name)

    save(cluster, "-n", "node2", name)
    write(image, 5)
    second = contents(cluster, 1, name)
    point, said = save(cluster, name)
    assert "based on" in said
    write(image, 9)
    cluster.ok("gnt-backup", "restore", "-f", "--point", point, name)
    assert contents(cluster, 1, name) == second != first

    cluster.ok("gnt-instance", "clone", "-n", "node3", name, clone)
    assert contents(cluster, 3, clone) == second
    cluster.ok("gnt-instance", "move", "-f", "-n", "node2", name)
    assert contents(cluster, 2, name) == second

    said = cluster.ok("gnt-backup", "export", "-n", "node3", name).out
    assert "a disk is an image: disks are copied as they are" in said
    full = cluster.value("instance", name, "name")
    import_ = ["gnt-backup", "import", "-t", "file", "-n", "node1", "--src-dir", full]
    cluster.ok(
        *import_, "--src-node", "node3", "--disk", "0:size=4m,format=qcow2", "--disk", "1:size=2m",
        copy,
    )  # fmt: skip
    assert contents(cluster, 1, copy) == second

    cluster.ok("gnt-instance", "modify", "-t", "file", "-e", "format=raw", name)
    assert [one.read_bytes() for one in disks_of(cluster, 2, name)] == second
    cluster.ok("gnt-instance", "modify", "-t", "file", "-e", "format=qcow2", name)
    assert list(map(raw_of, disks_of(cluster, 2, name))) == second
    for one in (name, clone, copy):
        cluster.ok("gnt-instance", "remove", "-f", one)


def test_scripts_of_an_os_write_and_read_an_image(cluster: LocalCluster, new_name: NewName) -> None:
    install_os(cluster, "written", ["create", "verify", "rename"])
    for node in cluster.cluster.nodes:
        script = node.paths.os_search_path[0] / "written" / "create"
        script.write_text(
            '#!/bin/sh\nprintf "%s$INSTANCE_REINSTALL" "$INSTANCE_NAME"'
            ' | dd of="$DISK_0_PATH" conv=notrunc 2>/dev/null\n'
        )
        script = node.paths.os_search_path[0] / "written" / "rename"
        script.write_text(
            '#!/bin/sh\nhead -c 6 "$DISK_0_PATH" >&2; echo >&2\n'
            'printf "%s" "$INSTANCE_NAME" | dd of="$DISK_0_PATH" conv=notrunc 2>/dev/null\n'
        )
    name, later = new_name(), new_name()
    add(cluster, name, "written")
    full = cluster.value("instance", name, "name").encode()
    assert contents(cluster, 1, name)[0].startswith(full + b"\0")
    cluster.ok("gnt-instance", "reinstall", "-f", name)
    assert contents(cluster, 1, name)[0].startswith(full + b"1\0")
    said = cluster.ok("gnt-instance", "rename", "--no-name-check", name, later).out
    assert full.decode()[:6] in said
    new = cluster.value("instance", later, "name").encode()
    image = next(one for one in disks_of(cluster, 1, name) if ".disk0" in one.name)
    assert raw_of(image).startswith(new)
    assert len(list(image.parent.iterdir())) == 2
    cluster.ok("gnt-instance", "remove", "-f", later)
    assert not image.parent.exists()


def copies(image: Path) -> list[str]:
    """Return the names of what a script needs beside the disks."""
    return [one.name for one in image.parent.iterdir() if ".script" in one.name]


def test_interrupted_scripts_leave_whole_images_and_no_copies(
    cluster: LocalCluster, new_name: NewName
) -> None:
    install_os(cluster, "waiting", ["create", "verify"])
    flag = cluster.directory / "wait"
    script = cluster.node(1).paths.os_search_path[0] / "waiting" / "create"
    script.write_text(
        f'#!/bin/sh\nprintf more >>"{flag}.runs"\nwhile [ -e "{flag}" ]; do sleep 0.05; done\n'
        f'dd if="{flag}.runs" of="$DISK_0_PATH" conv=notrunc 2>/dev/null\n'
    )
    name = new_name()
    add(cluster, name, "waiting")
    image, _ = disks_of(cluster, 1, name)
    assert raw_of(image).startswith(b"more\0")

    flag.touch()
    with cluster.in_background("gnt-instance", "reinstall", "-f", name) as command:
        wait_until(lambda: Path(f"{flag}.runs").read_text() == "more" * 2, "the script runs")
        cluster.kill(NODED)
        cluster.start(NODED)
        flag.unlink()
        said, _errors = text_of(command, 60)
        assert command.returncode == 0, said
    assert raw_of(image).startswith(b"moremore\0")
    assert not copies(image)

    flag.touch()
    before = image.read_bytes()
    said = cluster.ok("gnt-instance", "reinstall", "-f", "--submit", name).out
    [job_id] = re.findall(r"\b[0-9]+\b", said.replace(name, ""))
    wait_until(lambda: Path(f"{flag}.runs").read_text() == "more" * 3, "the script runs")
    assert copies(image)
    cluster.ok("gnt-job", "cancel", "--force", "--kill", "--yes-do-it", job_id)
    assert cluster.run("gnt-job", "watch", job_id).status != 0
    wait_until(lambda: not copies(image), "the copies are removed")
    assert image.read_bytes() == before
    flag.unlink()
    cluster.ok("gnt-instance", "remove", "-f", name)


def test_image_of_the_cluster_becomes_a_disk_in_an_image(
    cluster: LocalCluster, new_name: NewName, tmp_path: Path
) -> None:
    raw, name = tmp_path / "disk.raw", new_name()
    raw.write_bytes(b"system" * 100_000 + bytes(MIB * 3 - 600_000))
    cluster.ok("gnt-image", "import", "--cloud-init=no", "boxed", str(raw))
    cluster.ok(
        "gnt-instance", "add", "-t", "file", "--image", "boxed", "--disk",
        "0:size=4m,format=qcow2", "-B", "memory=16m", "--no-nics", "--no-start", "-n", "node1", name,
    )  # fmt: skip
    [image] = disks_of(cluster, 1, name)
    assert raw_of(image) == raw.read_bytes() + bytes(MIB)
    cluster.ok("gnt-instance", "remove", "-f", name)
    cluster.ok("gnt-image", "remove", "-f", "boxed")
