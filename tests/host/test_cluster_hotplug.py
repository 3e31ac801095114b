"""The devices of a real guest, changed through the real commands in a cluster of real daemons."""

import contextlib
import re
import socket

import pytest

from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.tiny_guest import build_tiny_guest

pytestmark = [pytest.mark.host, pytest.mark.in_turn, pytest.mark.timeout(300)]

NAME = "web1.example.com"


def hear(cluster: LocalCluster, command: str, pattern: str) -> None:
    """Type a command on the guest's console until it says what is wanted."""
    said: list[str] = []

    def says_it() -> bool:
        path = cluster.ok("gnt-instance", "console", "--show-cmd", NAME).out
        found = re.search(r"(/\S+\.s)\b", path)
        assert found, path
        with socket.socket(socket.AF_UNIX) as console:
            console.settimeout(5)
            console.connect(found[1])
            console.sendall(f"touch /run/quiet; {command}; echo e''nd\n".encode())
            text = b""
            with contextlib.suppress(TimeoutError):  # it still boots
                while not text.rstrip().endswith(b"end"):
                    text += console.recv(65536)
        said.append(text.decode(errors="replace"))
        return re.search(pattern, said[-1]) is not None

    wait_until(says_it, f"{pattern!r} is said: {said[-1:]}", 60)


@pytest.mark.requirement("S75", "G11")
def test_a_disk_comes_grows_moves_with_its_guest_and_goes() -> None:
    guest = build_tiny_guest()
    with local_cluster("--hypervisor", "kvm", "--guest", str(guest), nodes=2) as cluster:
        add = ["-t", "sharedfile", "--disk", "0:size=64m", "-o", "tiny+default", "--no-nics"]
        cluster.ok(
            "gnt-instance", "add", "-n", "node1", *add, "-B", "memory=96m", NAME, timeout_s=120
        )
        hear(cluster, "echo ready", "ready")
        answer = cluster.ok(
            "gnt-instance", "modify", "--hotplug", "--disk", "add:size=8m,name=data", NAME
        )
        assert " - disk/1 -> add:size=8,mode=rw" in answer.out
        assert " - disk/1 -> hotplug:done" in answer.out
        hear(cluster, "cat /proc/partitions", r"8192 vdb\b")
        cluster.ok("gnt-instance", "grow-disk", "--absolute", NAME, "1", "16m")
        hear(cluster, "cat /proc/partitions", r"16384 vdb\b")
        # What waits for the next start does not keep the guest from moving.
        later = cluster.ok("gnt-instance", "modify", "-B", "vcpus=2,minmem=64m", NAME)
        assert "be/vcpus takes effect at the next start" in later.out + later.err
        given = cluster.ok("gnt-instance", "modify", "-m", "80m", NAME)
        assert " - runtime_memory -> 80" in given.out
        cluster.ok("gnt-instance", "migrate", "-f", NAME, timeout_s=120)
        assert cluster.value("instance", NAME, "pnode") == "node2.vcluster.test"
        hear(cluster, "cat /proc/partitions", r"16384 vdb\b")
        assert len(cluster.disks()) == 2
        cluster.ok("gnt-instance", "modify", "--hotplug", "--disk", "data:remove", "-f", NAME)
        assert len(cluster.disks()) == 1
        hear(cluster, "grep -c vdb /proc/partitions", r"(?m)^0\r?$")
        cluster.ok("gnt-cluster", "verify")
        refused = cluster.fails(
            "gnt-instance", "modify", "--no-hotplug", "--disk", "0:remove", "-f", NAME
        )
        assert "has disk 0 open" in refused
        paths = cluster.ok("gnt-instance", "activate-disks", NAME).lines
        assert [line.split(":")[:2] for line in paths] == [["node2.vcluster.test", "disk/0"]]
        assert "uses its disks" in cluster.fails("gnt-instance", "deactivate-disks", NAME)


def test_a_running_guest_gets_processors_and_memory_and_keeps_them_at_a_restart() -> None:
    guest = build_tiny_guest()
    with local_cluster("--hypervisor", "kvm", "--guest", str(guest), nodes=1) as cluster:
        add = ["-t", "sharedfile", "--disk", "0:size=64m", "-o", "tiny+default", "--no-nics"]
        room = ["-H", "kvm:max_vcpus=2,max_memory=224", "-B", "memory=96m"]
        cluster.ok("gnt-instance", "add", "-n", "node1", *add, *room, NAME, timeout_s=120)
        hear(cluster, "echo ready", "ready")
        refused = cluster.fails("gnt-instance", "modify", "--hotplug", "-B", "vcpus=3", NAME)
        assert "can have 1 to 2 processors, not 3" in refused
        refused = cluster.fails("gnt-instance", "modify", "--hotplug", "-B", "maxmem=300m", NAME)
        assert "at most 224 MiB of memory, not 300" in refused
        given = cluster.ok("gnt-instance", "modify", "--hotplug", "-B", "vcpus=2,maxmem=160m", NAME)
        assert " - runtime_vcpus -> 2" in given.out
        assert " - runtime_memory -> 160" in given.out
        hear(cluster, "ls -d /sys/devices/system/cpu/cpu1", "cpu/cpu1\r")
        assert cluster.value("instance", NAME, "oper_vcpus") == "2"
        assert cluster.value("instance", NAME, "oper_ram") == "160M"
        cluster.ok("gnt-instance", "reboot", "-t", "full", NAME, timeout_s=120)
        hear(cluster, "grep -c processor /proc/cpuinfo", r"(?m)^2\r?$")
