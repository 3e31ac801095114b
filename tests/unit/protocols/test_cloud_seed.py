"""What cloud-init gets, and the file system that it is in."""

import json

import pytest

from ganeti.base.errors import InputError
from ganeti.protocols.cloud_seed import LABEL, renamed, seed_files
from ganeti.protocols.fat_image import SECTOR, fat_files, fat_image

ENVIRONMENT = {
    "INSTANCE_NAME": "web1.example.com",
    "INSTANCE_UUID": "5c3f2b1e-0000-4000-8000-000000000001",
    "NIC_COUNT": "2",
    "NIC_0_MAC": "aa:00:00:11:22:33",
    "NIC_0_IP": "192.0.2.9",
    "NIC_0_NETWORK_SUBNET": "192.0.2.0/24",
    "NIC_0_NETWORK_GATEWAY": "192.0.2.1",
    "NIC_1_MAC": "aa:00:00:11:22:34",
    "NIC_1_IP": "198.51.100.7",
}


def test_a_seed_identifies_the_instance_and_its_network() -> None:
    found = seed_files(
        ENVIRONMENT, user_data=b"#!/bin/sh\n", ssh_key="ssh-ed25519 AAAA x", dns=["192.0.2.53"]
    )
    assert found["user-data"] == b"#!/bin/sh\n"
    assert json.loads(found["meta-data"]) == {
        "instance-id": "iid-5c3f2b1e-0000-4000-8000-000000000001",
        "local-hostname": "web1.example.com",
        "public-keys": ["ssh-ed25519 AAAA x"],
    }
    assert json.loads(found["network-config"]) == {
        "version": 2,
        "ethernets": {
            "eth0": {
                "match": {"macaddress": "aa:00:00:11:22:33"},
                "set-name": "eth0",
                "addresses": ["192.0.2.9/24"],
                "routes": [{"to": "0.0.0.0/0", "via": "192.0.2.1"}],
                "nameservers": {"addresses": ["192.0.2.53"]},
            },
            "eth1": {
                "match": {"macaddress": "aa:00:00:11:22:34"},
                "set-name": "eth1",
                "dhcp4": True,
            },
        },
    }
    assert seed_files(ENVIRONMENT, user_data=b"")["user-data"].startswith(b"#cloud-config\n")


def test_a_new_name_changes_the_name_only() -> None:
    old = seed_files(ENVIRONMENT, user_data=b"secret")
    new = renamed(old, {**ENVIRONMENT, "INSTANCE_NAME": "web2.example.com"})
    assert json.loads(new["meta-data"])["local-hostname"] == "web2.example.com"
    assert (
        json.loads(new["meta-data"])["instance-id"] == json.loads(old["meta-data"])["instance-id"]
    )
    assert {**new, "meta-data": b""} == {**old, "meta-data": b""}
    for files in ({}, {"meta-data": b"{"}, {"meta-data": b"[1]"}):
        with pytest.raises(InputError, match="not written by this"):
            renamed(files, ENVIRONMENT)


def test_seed_of_a_clone_identifies_the_clone() -> None:
    old = seed_files(ENVIRONMENT, user_data=b"secret", ssh_key="ssh-ed25519 AAAA x")
    clone = {
        **ENVIRONMENT,
        "INSTANCE_NAME": "web2.example.com",
        "INSTANCE_UUID": "5c3f2b1e-0000-4000-8000-000000000002",
        "NIC_0_MAC": "aa:00:00:44:55:66",
        "NIC_0_IP": "192.0.2.10",
    }
    new = renamed(old, clone, ["192.0.2.53"])
    fresh = seed_files(clone, user_data=b"secret", ssh_key="ssh-ed25519 AAAA x", dns=["192.0.2.53"])
    assert {name: new[name] for name in ("user-data", "network-config")} == {
        name: fresh[name] for name in ("user-data", "network-config")
    }
    assert json.loads(new["meta-data"]) == json.loads(fresh["meta-data"])


@pytest.mark.parametrize("length", [0, 1, 511, 512, 513, 20_000])
def test_a_file_system_holds_what_was_put_into_it(length: int) -> None:
    files = {"meta-data": b"m" * 300, "user-data": bytes(range(256)) * (length // 256) + b"x" * (length % 256),
             "network-config": b"{}"}  # fmt: skip
    image = fat_image(LABEL, files, 2048)
    assert len(image) == 2048 * SECTOR
    assert image[43:54] == b"CIDATA     "
    assert fat_files(image) == files


def test_files_that_do_not_fit_or_are_foreign_are_refused() -> None:
    with pytest.raises(InputError, match="but needs"):
        fat_image(LABEL, {"user-data": bytes(40_000)}, 64)
    for image in (b"", bytes(4096), b"\xeb\x3c\x90mkfs.fat".ljust(510, b"\0") + b"\x55\xaa"):
        with pytest.raises(InputError, match="no file system that this implementation wrote"):
            fat_files(image)


def test_a_damaged_file_system_is_read_within_its_bounds() -> None:
    image = bytearray(fat_image(LABEL, {"meta-data": b"m"}, 64))
    for at in range(0, 4096, 3):
        image[at] ^= 0xFF
    image[3:11], image[510:512] = b"GANETI  ", b"\x55\xaa"
    assert isinstance(fat_files(bytes(image)), dict)
