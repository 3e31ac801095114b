"""Command lines for DRBD's tools, and the request to connect; pure."""

import struct

import pytest

from ganeti.base.errors import StorageError
from ganeti.storage.drbd import commands, netlink
from ganeti.storage.drbd.netlink import Connection

OWN, PEER = ("10.77.4.1", 11000), ("10.77.4.2", 11000)


@pytest.mark.requirement("S77")
@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ({}, []),
        ({"disk-barriers": "n"}, []),
        ({"disk-barriers": "bf"}, ["--disk-barrier=no", "--disk-flushes=no"]),
        ({"disk-barriers": "bdf"}, ["--disk-barrier=no", "--disk-drain=no", "--disk-flushes=no"]),
        ({"data_flushes": False}, ["--disk-flushes=no"]),
        ({"meta_flushes": False}, ["--md-flushes=no"]),
        ({"meta-barriers": True}, ["--md-flushes=no"]),
    ],
)
def test_what_is_flushed(params: dict[str, object], wanted: list[str]) -> None:
    words = commands.attach(3, "/dev/vg/a", "/dev/vg/b", 96, params)
    assert words[:8] == [
        *("drbdsetup", "attach", "3", "/dev/vg/a", "/dev/vg/b", "flexible"),
        *("--on-io-error=detach", "--size=96m"),
    ]
    assert words[8 : 8 + len(wanted)] == wanted
    assert words[8 + len(wanted) :] == ["--c-plan-ahead=0", "--resync-rate=61440"]


@pytest.mark.requirement("S77")
def test_the_rate_of_a_synchronisation() -> None:
    assert commands.disk_options(0, {"resync-rate": 4096})[-1] == "--resync-rate=4096"
    dynamic = {"dynamic-resync": True, "c-plan-ahead": 20, "c-max-rate": 100, "resync-rate": 5}
    assert commands.disk_options(0, dynamic)[3:] == ["--c-plan-ahead=20", "--c-max-rate=100"]


def test_addresses_of_both_families() -> None:
    assert commands.disconnect(OWN, PEER)[2:] == ["ipv4:10.77.4.1:11000", "ipv4:10.77.4.2:11000"]
    assert commands.disconnect(("fd00::1", 1), PEER)[2] == "ipv6:[fd00::1]:1"
    assert commands.two_primaries(OWN, PEER, allowed=False)[-1] == "--allow-two-primaries=no"


def test_the_request_to_connect() -> None:
    connection = Connection("abc", OWN, PEER, "C", "s3cret", options={"ping-int": 5})
    assert "s3cret" not in repr(connection)
    message = netlink.connect_message(connection)
    assert struct.unpack_from("=BBxxII", message) == (10, 1, 0xFFFFFFFF, 0)
    top = netlink.attributes(message[12:])
    context, net = netlink.attributes(top[netlink.CONTEXT]), netlink.attributes(top[netlink.NET])
    assert context[2] == b"abc\0"
    assert context[3] == struct.pack("=H", 2) + bytes.fromhex("2af8 0a4d0401") + bytes(8)
    assert net[1] == b"s3cret\0"
    assert net[6] == struct.pack("=I", 3)
    assert net[8 + 1] == struct.pack("=I", 5)
    assert net[24] == b"\0"
    # After a split brain both nodes disconnect, and nothing is thrown away.
    assert [net[number] for number in (17, 18, 19)] == [bytes(4)] * 3


@pytest.mark.requirement("F22", "G13")
@pytest.mark.parametrize(
    "words",
    [
        "--after-sb-0pri=1",
        "--shared-secret=x",
        "--nonsense=1",
        "--ping-int=x",
        "--cram-hmac-alg=md5",
    ],
)
def test_options_that_cannot_be_set(words: str) -> None:
    with pytest.raises(StorageError, match="net-custom"):
        commands.connection_options({"net-custom": words})


def test_options_that_can() -> None:
    given = {"net-custom": "--ping-int=5 max-buffers=8000 --verify-alg=sha1"}
    assert commands.connection_options(given) == {
        "ping-int": 5,
        "max-buffers": 8000,
        "verify-alg": "sha1",
    }


def test_what_the_kernel_answers() -> None:
    head = struct.pack("=BBxxI", 10, 1, 0)
    assert netlink.refusal(head + struct.pack("=i", 101)) == ""
    assert netlink.refusal(head + struct.pack("=i", 1)) == ""
    said = netlink.attribute(1, netlink.attribute(1, b"unknown connection\0"))
    assert netlink.refusal(head + struct.pack("=i", 162) + said) == "error 162 (unknown connection)"
    assert netlink.refusal(b"") != ""
    family = struct.pack("=BBxx", 1, 2) + netlink.attribute(1, struct.pack("=H", 29))
    assert netlink.family_number(family) == 29
    with pytest.raises(StorageError, match="modprobe drbd"):
        netlink.family_number(struct.pack("=BBxx", 1, 2))
