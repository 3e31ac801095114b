"""The OS definition `image` on real QEMU: an image that this test makes boots, and reads its settings."""

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.tiny_guest import build_tiny_guest, install, make_disk, said

pytestmark = [pytest.mark.host, pytest.mark.in_turn, pytest.mark.timeout(240)]

NAME, NEW_NAME = "cloud1.example.com", "cloud2.example.com"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """One node with the definition, and an image with the small test guest on it."""
    guest = build_tiny_guest()
    with local_cluster("--hypervisor", "kvm", "--guest", str(guest), nodes=1) as found:
        paths = found.node(1).paths
        images = paths.below("/srv/ganeti/images")
        images.mkdir(parents=True)
        raw = make_disk(images / "tiny.raw")
        install(guest, raw, "image.example.com")
        convert = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2"]
        subprocess.run([*convert, raw, images / "tiny.qcow2"], check=True)
        yield found


def console(cluster: LocalCluster, name: str) -> str:
    return said(Path(cluster.value("instance", name, "console_log")))


def type_until(cluster: LocalCluster, name: str, command: str, wanted: str) -> str:
    """Type a command on the guest's console until it says what is wanted."""
    end = time.monotonic() + 90
    while time.monotonic() < end:
        shown = cluster.ok("gnt-instance", "console", "--show-cmd", name).out
        found = re.search(r"(/\S+\.s)\b", shown)
        assert found is not None
        with socket.socket(socket.AF_UNIX) as end_of_console:
            end_of_console.settimeout(5)
            end_of_console.connect(found[1])
            end_of_console.sendall(f"touch /run/quiet; {command}; echo e''nd\n".encode())
            text = b""
            try:
                while b"end\r\n" not in text:
                    text += end_of_console.recv(65536)
            except TimeoutError:
                continue
        if re.search(wanted, text.decode(errors="replace")):
            return text.decode(errors="replace")
    raise AssertionError(f"the guest never said {wanted}")


def test_an_image_boots_and_finds_its_settings_under_its_new_name(
    cluster: LocalCluster,
) -> None:
    assert "image" in cluster.ok("gnt-os", "list", "--no-headers").lines
    wrong = cluster.fails(
        "gnt-instance", "add", "-t", "file", "--disk", "0:size=64m", "--disk", "1:size=1m",
        "-o", "image", "-O", "image=/etc/shadow,format=raw", "--no-nics", "-B", "memory=96m",
        "-n", "node1", NAME,
    )  # fmt: skip
    assert "not below a directory" in wrong
    assert cluster.disks() == set()
    cluster.ok(
        "gnt-instance", "add", "-t", "file", "--disk", "0:size=64m", "--disk", "1:size=1m",
        "-o", "image", "-O", "image=/srv/ganeti/images/tiny.qcow2,format=qcow2,ssh_key=ssh-ed25519 AAAA me",
        "--no-nics", "-B", "memory=96m", "-n", "node1", "--no-start", NAME,
        timeout_s=120,
    )  # fmt: skip
    uuid = cluster.value("instance", NAME, "uuid")
    cluster.ok("gnt-instance", "rename", NAME, NEW_NAME)
    cluster.ok("gnt-instance", "startup", NEW_NAME, timeout_s=120)
    wait_until(lambda: "GANETI-TINY READY" in console(cluster, NEW_NAME), "the guest boots", 120)
    text = type_until(cluster, NEW_NAME, "grep -a -A6 instance-id /dev/vdb", "local-hostname")
    found = re.search(r'"instance-id".*?\]', text, re.DOTALL)
    assert found is not None
    facts = json.loads("{" + found[0] + "}")
    assert facts == {
        "instance-id": f"iid-{uuid}",
        "local-hostname": NEW_NAME,
        "public-keys": ["ssh-ed25519 AAAA me"],
    }
    cluster.ok("gnt-instance", "remove", "-f", "--shutdown-timeout=0", NEW_NAME)
