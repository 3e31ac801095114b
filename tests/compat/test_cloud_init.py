"""Debian's cloud-init reads the seeds that the OS definition `image` writes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from ganeti.protocols.cloud_seed import LABEL, seed_files
from ganeti.protocols.fat_image import fat_files, fat_image
from tests.support.debian_packages import said_by_python

READER = Path(__file__).parents[1] / "support" / "read_seed.py"
CLOUD_INIT = (
    "cloud-init",
    *("python3-configobj", "python3-jinja2", "python3-markupsafe", "python3-requests"),
    *("python3-urllib3", "python3-chardet", "python3-idna", "python3-certifi", "python3-six"),
    *("python3-jsonpatch", "python3-json-pointer", "python3-jsonschema", "python3-attr"),
    *("python3-pyrsistent", "python3-netifaces", "python3-serial", "python3-yaml"),
    *("python3-oauthlib", "python3-blinker", "python3-jwt"),
)
"""With the libraries that its modules for this load."""
ENVIRONMENT = {
    "INSTANCE_NAME": "web1.example.com",
    "INSTANCE_UUID": "5c3f2b1e-0000-4000-8000-000000000001",
    "NIC_COUNT": "2",
    "NIC_0_MAC": "aa:00:00:11:22:33",
    "NIC_0_IP": "192.0.2.9",
    "NIC_0_NETWORK_SUBNET": "192.0.2.0/24",
    "NIC_0_NETWORK_GATEWAY": "192.0.2.1",
    "NIC_1_MAC": "aa:00:00:11:22:34",
}
USER_DATA = b"#cloud-config\npackages: [nginx]\nruncmd: [[touch, /done]]\n"


@pytest.mark.timeout(300)
def test_cloud_init_finds_name_addresses_keys_and_user_data(tmp_path: Path) -> None:
    files = seed_files(
        ENVIRONMENT, user_data=USER_DATA, ssh_key="ssh-ed25519 AAAA me", dns=["192.0.2.53"]
    )
    image = tmp_path / "seed.img"
    image.write_bytes(fat_image(LABEL, files, 2048))
    if shutil.which("blkid") is not None:  # by which cloud-init looks for its disk
        words = ["blkid", "-p", "-o", "export", str(image)]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        assert {"TYPE=vfat", "LABEL=CIDATA"} <= set(said)
    seed, place = tmp_path / "seed", tmp_path / "place"
    seed.mkdir()
    for name, content in fat_files(image.read_bytes()).items():
        (seed / name).write_bytes(content)

    found = said_by_python(READER, str(seed), str(place), packages=CLOUD_INIT)
    assert found["found"] is True
    assert (found["instance_id"], found["name"]) == (
        f"iid-{ENVIRONMENT['INSTANCE_UUID']}",
        ENVIRONMENT["INSTANCE_NAME"],
    )
    assert found["keys"] == ["ssh-ed25519 AAAA me"]
    assert found["user_data"].encode() == USER_DATA
    assert found["names"] == {"aa:00:00:11:22:33": "eth0", "aa:00:00:11:22:34": "eth1"}
    assert found["network"]["ethernets"]["eth0"]["routes"] == [
        {"to": "0.0.0.0/0", "via": "192.0.2.1"}
    ]
    lines = [line.strip() for line in found["interfaces"].splitlines()]
    assert {"iface eth0 inet static", "address 192.0.2.9/24", "iface eth1 inet dhcp"} <= set(lines)
    assert "dns-nameservers 192.0.2.53" in lines
