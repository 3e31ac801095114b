"""Bridged and routed guests, real ones, on a node in a network namespace of its own."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.tiny_guest import build_tiny_guest, said

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]

TABLE = "100"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    guest = build_tiny_guest()
    options = ("--netns", "--hypervisor", "kvm", "--guest", str(guest))
    with local_cluster(*options, nodes=1) as one:
        ip(one, "link", "add", "br0", "type", "bridge")
        ip(one, "link", "set", "br0", "up")
        yield one


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: LocalCluster) -> Iterator[None]:
    yield
    for name in sorted(cluster.names("instance")):
        cluster.ok("gnt-instance", "remove", "-f", "--shutdown-timeout=0", name)
    assert taps(cluster) == set()
    assert "gnt" not in ip(cluster, "rule")


def ip(cluster: LocalCluster, *words: str) -> str:
    """Run `ip` in the node's namespace."""
    return cluster.ok("ip", *words).out


def taps(cluster: LocalCluster) -> set[str]:
    lines = ip(cluster, "-o", "link").splitlines()
    return {name for name in (line.split(": ")[1] for line in lines) if name.startswith("gnt")}


def add(cluster: LocalCluster, name: str, net: str) -> None:
    cluster.ok(
        "gnt-instance", "add", "-n", "node1", "-t", "file", "--disk", "0:size=64m",
        "-o", "tiny+default", "-O", "heartbeat_interval=60", "-B", "memory=96m",
        "--net", f"0:{net}", name, timeout_s=120,
    )  # fmt: skip


def console(cluster: LocalCluster, name: str) -> Path:
    return Path(cluster.value("instance", name, "console_log"))


def tell(cluster: LocalCluster, name: str, command: str, mark: str) -> None:
    """Run a command in the guest, which must succeed; a silent network may take some tries."""
    log = console(cluster, name)
    wait_until(lambda: "READY" in said(log), f"{name} has booted", 60)
    words = f"for try in 1 2 3 4 5; do {command} && break; done; echo {mark}=$?\n"
    cluster.run("gnt-instance", "console", name, stdin=words)
    wait_until(lambda: f"{mark}=0" in said(log), f"{command}: {said(log)[-400:]}", 60)


@pytest.mark.requirement("S76", "S82")
def test_bridged_guests_reach_each_other(cluster: LocalCluster) -> None:
    names = ("bridged1.example.com", "bridged2.example.com")
    for name in names:
        add(cluster, name, "mode=bridged,link=br0")
    assert len(taps(cluster)) == len(names)
    for number, name in enumerate(names, 1):
        tell(cluster, name, f"ip addr add 192.0.2.{number}/24 dev eth0", "CONFIGURED")
    tell(cluster, names[0], "ping -c 2 -W 2 192.0.2.2", "REACHED")
    tell(cluster, names[1], "ping -c 2 -W 2 192.0.2.1", "REACHED")


@pytest.mark.requirement("S76", "S81", "S82")
@pytest.mark.parametrize("link", [pytest.param("main", marks=pytest.mark.soak), "br0", TABLE])
def test_routed_guests_reach_each_other(cluster: LocalCluster, link: str) -> None:
    names = (f"routed1-{link}.example.com", f"routed2-{link}.example.com")
    for number, name in enumerate(names, 1):
        add(cluster, name, f"mode=routed,link={link},ip=198.51.100.{number}")
    for number, name in enumerate(names, 1):
        tell(cluster, name, f"ip addr add 198.51.100.{number}/24 dev eth0", "CONFIGURED")
    tell(cluster, names[0], "ping -c 2 -W 2 198.51.100.2", "REACHED")
    tell(cluster, names[1], "ping -c 2 -W 2 198.51.100.1", "REACHED")
    # A reboot makes new taps; the routes lead there again.
    cluster.ok("gnt-instance", "reboot", "-t", "full", "--shutdown-timeout=0", names[0])
    table = "main" if link == "br0" else link
    assert ip(cluster, "route", "show", "table", table).count("198.51.100.") == len(names)
    if link == "br0":
        assert cluster.ok("cat", "/proc/sys/net/ipv4/conf/br0/proxy_arp").out == "1\n"


@pytest.mark.parametrize("net", ["mode=bridged,link=br0", f"mode=routed,link={TABLE},ip=192.0.2.9"])
def test_a_guest_that_dies_by_itself_leaves_no_tap(cluster: LocalCluster, net: str) -> None:
    add(cluster, "dying.example.com", net)
    assert len(taps(cluster)) == 1
    [pid] = cluster.machines()
    os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: cluster.value("instance", "dying.example.com", "status") == "ERROR_down",
        "the death is seen",
    )
    assert taps(cluster) == set()
    assert "iif gnt" not in ip(cluster, "rule")


@pytest.mark.parametrize(
    ("net", "text"),
    [
        ("mode=bridged,link=nosuch", "the bridge 'nosuch' does not exist"),
        ("mode=bridged,link=eth0", "not a bridge"),
        (
            "mode=routed,link=nosuch,ip=192.0.2.9",
            "'nosuch' is neither a routing table nor an interface",
        ),
        ("mode=routed,link=100", "needs an IP address"),
        ("mode=ovs,link=switch1", "Open vSwitch"),
    ],
)
def test_a_network_that_is_not_there_is_refused_before_anything_is_made(
    cluster: LocalCluster, net: str, text: str
) -> None:
    answer = cluster.fails(
        "gnt-instance", "add", "-n", "node1", "-t", "diskless", "-o", "tiny+default",
        "-B", "memory=96m", "--net", f"0:{net}", "refused.example.com",
    )  # fmt: skip
    assert text in answer
    assert cluster.names("instance") == set()


def test_administrator_script_replaces_the_network_script(cluster: LocalCluster) -> None:
    told = cluster.directory / "told"
    own = cluster.node(1).paths.etc / "kvm-vif-bridge"
    own.write_text(f'#!/bin/sh\nenv >{told}\nip link set dev "$INTERFACE" up\n')
    own.chmod(0o755)
    try:
        add(cluster, "own.example.com", "mode=bridged,link=br0")
    finally:
        own.unlink()
    lines = told.read_text().splitlines()
    assert "INSTANCE=own.example.com" in lines
    assert "MODE=bridged" in lines
    assert {f"INTERFACE={tap}" for tap in taps(cluster)} <= set(lines)
