"""Encrypted backups by the real commands: no key in any file of the nodes, and plain files from paper alone."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti.base.backup_ciphers import instance_key
from ganeti.protocols.paper_key import parse_paper
from tests.cluster.test_gnt_backup import add, digests, disks_of, install_os
from tests.cluster.test_incremental_backups import backups_of, change, save
from tests.support.local_cluster import LocalCluster
from tests.support.patience import patience

pytestmark = [pytest.mark.cluster, pytest.mark.in_turn, pytest.mark.timeout(180)]

NewName = Callable[[], str]


@pytest.mark.requirement("G23", "G3")
def test_encrypted_backups_are_restored_pruned_and_decrypted_from_paper(
    cluster: LocalCluster, new_name: NewName, tmp_path: Path
) -> None:
    short = new_name()
    install_os(cluster, short, ["create", "verify"])
    add(cluster, short, short)
    name = cluster.value("instance", short, "name")
    disks = disks_of(cluster, 1, short)
    change(disks[0], [3], b"the secret of the guest!" * 1000)
    assert "gnt-backup key create" in cluster.fails("gnt-backup", "save", "--encrypt=yes", "-n", "node2", short)  # fmt: skip
    key = (
        cluster.ok("gnt-backup", "key", "create").out.split("Created backup key ")[1].split(".")[0]
    )
    paper = cluster.ok("gnt-backup", "key", "export").out
    assert f"Key id: {key}" in paper
    states, points = [digests(disks)], [save(cluster, "--encrypt=yes", "-n", "node2", short)[0]]
    for blocks in ([1, 2, 40], [2, 63]):
        change(disks[0], blocks)
        points.append(save(cluster, "--encrypt=yes", short)[0])
        states.append(digests(disks))
    place = backups_of(cluster, 2, name)
    for file in place.iterdir():
        assert b"secret of the guest" not in file.read_bytes()
    newest = json.loads((place / f"{points[-1]}.json").read_text())
    assert newest["parent"] == points[1]
    assert cluster.ok("gnt-backup", "points", "--no-headers", "-o", "key", name).lines == [key] * 3
    cluster.ok("gnt-backup", "check", name)
    cluster.ok("gnt-backup", "prune", "--keep-last", "2", name)
    for point, state in zip(points[1:], states[1:], strict=True):
        change(disks[0], [0, 2, 5])
        cluster.ok("gnt-backup", "restore", "-f", "--point", point, short)
        assert digests(disks) == state
    plain, key_file = tmp_path / "plain", tmp_path / "key"
    key_file.write_text(paper)
    cluster.ok("gnt-backup", "decrypt", f"--key-file={key_file}", str(place), str(plain))
    manifest = json.loads((plain / f"{points[-1]}.json").read_text())
    for disk, image in zip(disks, manifest["disks"], strict=True):
        copy = subprocess.run(
            ["qemu-img", "compare", "-f", "raw", "-F", "qcow2", str(disk), image["file"]],
            cwd=plain, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert copy.returncode == 0, copy.stderr + copy.stdout
    check_mount(cluster, short, disks[0], key_file)
    check_key_is_in_no_file(cluster, parse_paper(paper), name)
    assert points[-1] in cluster.fails("gnt-backup", "key", "retire", key)
    cluster.ok("gnt-instance", "remove", "-f", short)


def check_mount(cluster: LocalCluster, short: str, disk: Path, key_file: Path) -> None:
    """A node has no key by itself."""
    said = cluster.run("gnt-backup", "mount", short, node=2)
    assert said.status == 1
    assert "which is not here" in said.err
    with cluster.in_background(
        "gnt-backup", "mount", f"--key-file={key_file}", short, node=2
    ) as mounted:
        assert mounted.stdout is not None
        told = [mounted.stdout.readline() for _ in range(2)]
        uri = told[1].split(": ")[1].strip()
        words = ["qemu-img", "compare", "-f", "raw", "-F", "raw", str(disk), uri]
        subprocess.run(words, check=True)
        mounted.send_signal(signal.SIGINT)
        assert mounted.wait(30 * patience()) == 0


def check_key_is_in_no_file(cluster: LocalCluster, key: bytes, name: str) -> None:
    """Only the state of the masters has the key; logs, orders and records have neither it nor what is derived."""
    words = [one.hex().encode() for one in (key, instance_key(key, name))]
    for number in (1, 2, 3):
        paths = cluster.node(number).paths
        for file in paths.root.rglob("*"):
            if file.is_file() and not file.is_symlink():
                content = file.read_bytes()
                is_state = "state" in file.name or file.suffix.startswith(".db")
                assert words[1] not in content, file
                assert is_state or words[0] not in content, file
