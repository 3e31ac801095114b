"""A cloud image of Debian's packages, with its own kernel and cloud-init, becomes an instance by the OS definition `image`."""

import base64
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cloud_image import ROOT_MIB, SIZE_MIB, cloud_image
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.tiny_guest import build_tiny_guest, said

pytestmark = [
    pytest.mark.host,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]

NAME, NEW_NAME = "cloud1.example.com", "cloud2.example.com"
ADDRESS, ROUTER, NAME_SERVER = "192.0.2.9", "192.0.2.1", "192.0.2.53"
BOOT_LIMIT_S = 600
DISK_MIB = SIZE_MIB + 256
USER_DATA = b"""#cloud-config
write_files: [{path: /etc/of-user-data, content: written by user-data}]
runcmd: ["echo USER-DATA RAN AS $(hostname --fqdn) >/dev/ttyS0"]
bootcmd: ["echo BOOTED AS $(cat /etc/hostname) >/dev/ttyS0"]
"""


@dataclass(frozen=True)
class Guest:
    """The instance, and the key that may log in."""

    cluster: LocalCluster
    key: Path

    def said(self, name: str) -> str:
        return said(Path(self.cluster.value("instance", name, "console_log")))

    def boots(self, name: str) -> str:
        """Start it, and wait until cloud-init has done all that it does; what the console said."""
        self.cluster.ok("gnt-instance", "startup", name, timeout_s=120)
        done = re.compile(
            rf"BOOTED AS {name.partition('.')[0]}\s[\s\S]*Datasource DataSourceNoCloud"
        )
        wait_until(lambda: done.search(self.said(name)) is not None, done.pattern, BOOT_LIMIT_S)
        return self.said(name)

    def ok(self, command: str) -> str:
        """Run a command in the guest, by ssh."""
        options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]  # fmt: skip
        options += ["-o", "BatchMode=yes", "-o", "ConnectTimeout=60", "-o", "ConnectionAttempts=5"]
        words = ["-i", str(self.key), *options, f"debian@{ADDRESS}", command]
        return self.cluster.ok("ssh", *words, timeout_s=300).out.strip()


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """One node with the definition, the image, and a network in which it is the router."""
    if shutil.which("ssh") is None:
        pytest.skip("there is no ssh here")
    image = cloud_image()
    key = tmp_path_factory.mktemp("key") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    options = ("--netns", "--hypervisor", "kvm", "--guest", str(build_tiny_guest()))
    with local_cluster(*options, nodes=1) as cluster:
        paths = cluster.node(1).paths
        images = paths.below("/srv/ganeti/images")
        images.mkdir(parents=True)
        shutil.copy(image, images / "debian.qcow2")
        for words in (
            ("link", "add", "br0", "type", "bridge"),
            ("addr", "add", f"{ROUTER}/24", "dev", "br0"),
            ("link", "set", "br0", "up"),
        ):
            cluster.ok("ip", *words)
        cluster.ok("gnt-network", "add", "--network=192.0.2.0/24", f"--gateway={ROUTER}", "net")
        cluster.ok("gnt-network", "connect", "--nic-parameters=mode=bridged,link=br0", "net")
        yield Guest(cluster, key)


@pytest.mark.timeout(3600)
def test_debian_with_cloud_init_configures_itself(guest: Guest) -> None:
    image = guest.cluster.node(1).paths.below("/srv/ganeti/images/debian.qcow2")
    facts = {
        "image": "/srv/ganeti/images/debian.qcow2",
        "format": "qcow2",
        "sha256": hashlib.sha256(image.read_bytes()).hexdigest(),
        "ssh_key": guest.key.with_suffix(".pub").read_text().strip(),
        "user_data": base64.b64encode(USER_DATA).decode(),
        "dns": NAME_SERVER,
    }
    guest.cluster.ok(
        "gnt-instance", "add", "-n", "node1", "-t", "file", "--no-start",
        "--disk", f"0:size={DISK_MIB}m", "--disk", "1:size=1m", "-o", "image",
        "-O", ",".join(f"{name}={value}" for name, value in facts.items()),
        "--net", f"0:network=net,ip={ADDRESS}", "-B", "memory=512m",
        "-H", "kvm:kernel_path=,initrd_path=", NAME, timeout_s=300,
    )  # fmt: skip
    assert f"USER-DATA RAN AS {NAME}" in guest.boots(NAME)
    assert guest.ok("hostname --fqdn") == NAME
    assert guest.ok("cat /etc/of-user-data") == "written by user-data"
    assert f"inet {ADDRESS}/24 " in guest.ok("ip -oneline addr show dev eth0")
    assert f"default via {ROUTER} dev eth0" in guest.ok("ip route")
    assert NAME_SERVER in guest.ok("resolvectl dns eth0")
    assert int(guest.ok("df --block-size=1M --output=size /").split()[-1]) > ROOT_MIB
    assert "status: done" in guest.ok("cloud-init status")
    guest.cluster.ok("gnt-instance", "shutdown", NAME, timeout_s=300)
    guest.cluster.ok("gnt-instance", "rename", NAME, NEW_NAME)
    guest.boots(NEW_NAME)
    assert guest.ok("hostname --fqdn") == NEW_NAME
    guest.cluster.ok("gnt-instance", "remove", "-f", "--shutdown-timeout=0", NEW_NAME)
