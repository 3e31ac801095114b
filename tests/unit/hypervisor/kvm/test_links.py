"""Whether a node has the networks that NICs ask for."""

from pathlib import Path
from typing import Any

import pytest

from ganeti.hypervisor.kvm import links
from ganeti.model.instance_spec import NicSpec


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Two bridges, one with VLANs, and a device that is none; one named table."""
    for name, filtering in (("br0", "0"), ("br1", "1")):
        (tmp_path / "net" / name / "bridge").mkdir(parents=True)
        (tmp_path / "net" / name / "bridge/vlan_filtering").write_text(f"{filtering}\n")
    (tmp_path / "net/eth0").mkdir()
    (tmp_path / "rt_tables").write_text("# numbers and names\n100 guests # ours\n\n255\tlocal\n")
    return tmp_path


def wrong(host: Path, *, search_path: str = "", **fields: Any) -> list[str]:
    nic = NicSpec(uuid="n", index=3, mac="m", **fields)
    return links.wrong_nics(
        [nic],
        devices=host / "net",
        tables=[host / "rt_tables", host / "nosuch"],
        search_path=search_path,
    )


@pytest.mark.requirement("S76")
@pytest.mark.parametrize(
    "fields",
    [
        {"link": "br0"},
        {"link": "br1", "vlan": ".10"},
        *(
            {"mode": "routed", "ip": "192.0.2.1", "link": link}
            for link in ("", "main", "guests", "local", "7", "4294967295", "br0", "eth0")
        ),
    ],
)
def test_what_is_there_is_accepted(host: Path, fields: dict[str, Any]) -> None:
    assert wrong(host, **fields) == []


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"link": "br9"}, "the bridge 'br9' does not exist; create it"),
        ({"link": ""}, "the bridge '' does not exist"),
        ({"link": "../net/br0"}, "the bridge '../net/br0' does not exist"),
        ({"link": "eth0"}, "eth0 is a network device, but not a bridge"),
        ({"link": "br0", "vlan": ".10"}, "vlan_filtering 1"),
        ({"mode": "routed", "link": "7"}, "needs an IP address"),
        (
            {"mode": "routed", "ip": "192.0.2.1", "link": "br9"},
            "'br9' is neither a routing table nor an interface",
        ),
        (
            {"mode": "routed", "ip": "192.0.2.1", "link": "../br0"},
            "neither a routing table nor an interface",
        ),
        ({"mode": "routed", "ip": "2001:db8::1", "link": "eth0"}, "needs an IPv4 address"),
        ({"mode": "routed", "ip": "192.0.2.1", "link": "0"}, "not the number of a routing table"),
        (
            {"mode": "routed", "ip": "192.0.2.1", "link": "4294967296"},
            "the number of a routing table",
        ),
        ({"mode": "routed", "ip": "192.0.2.1", "link": "7", "vlan": ".1"}, "has no VLAN"),
        ({"mode": "openvswitch", "link": "switch1"}, "no ovs-vsctl; install openvswitch-switch"),
        ({"mode": "loud"}, "the mode 'loud' is unknown"),
    ],
)
def test_what_is_missing_is_named(host: Path, fields: dict[str, Any], text: str) -> None:
    [problem] = wrong(host, **fields)
    assert problem.startswith("NIC 3: ")
    assert text in problem


def test_a_switch_program_is_enough(host: Path) -> None:
    program = host / "ovs-vsctl"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert wrong(host, mode="openvswitch", link="switch1", search_path=str(host)) == []
