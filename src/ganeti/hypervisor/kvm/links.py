"""The check whether the networks of NICs exist on this node: bridges, routing tables, switches."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from ganeti.base.process import CLEAN_ENVIRONMENT
from ganeti.hypervisor.abilities import ChecksNics
from ganeti.model.instance_spec import NicSpec

DEVICES = Path("/sys/class/net")
TABLES = (Path("/etc/iproute2/rt_tables"), Path("/usr/share/iproute2/rt_tables"))
BUILT_IN_TABLES = ("", "main", "local", "default")
GREATEST_TABLE = (1 << 32) - 1
SWITCH_PROGRAM = "ovs-vsctl"


class HostLinks(ChecksNics):
    """The networks of this host."""

    async def wrong_nics(self, nics: Sequence[NicSpec]) -> list[str]:
        return wrong_nics(nics)


def wrong_nics(
    nics: Sequence[NicSpec],
    *,
    devices: Path = DEVICES,
    tables: Sequence[Path] = TABLES,
    search_path: str = CLEAN_ENVIRONMENT["PATH"],
) -> list[str]:
    """Return the missing networks of this node, a sentence for each NIC."""
    problems = []
    for nic in nics:
        if nic.mode == "bridged":
            wrong = _wrong_bridge(nic, devices)
        elif nic.mode == "routed":
            wrong = _wrong_route(nic, tables, devices)
        else:
            wrong = _wrong_switch(nic, search_path)
        if wrong:
            problems.append(f"NIC {nic.index}: {wrong}")
    return problems


def _wrong_bridge(nic: NicSpec, devices: Path) -> str:
    device = devices / nic.link
    if not nic.link or "/" in nic.link or not device.exists():
        return f"the bridge {nic.link!r:.40} does not exist; create it, or change the NIC's link"
    if not (device / "bridge").is_dir():
        return f"{nic.link} is a network device, but not a bridge"
    if nic.vlan and not _is_one(device / "bridge" / "vlan_filtering"):
        return (
            f"bridge {nic.link} does not filter VLANs, so {nic.vlan} is not possible;"
            f" run: ip link set dev {nic.link} type bridge vlan_filtering 1"
        )
    return ""


def _wrong_route(nic: NicSpec, tables: Sequence[Path], devices: Path) -> str:
    if nic.ip is None:
        return "a routed NIC needs an IP address"
    if nic.vlan:
        return "a routed NIC has no VLAN"
    link = nic.link
    if link in BUILT_IN_TABLES:
        return ""
    if link.isascii() and link.isdecimal():
        return (
            ""
            if 0 < int(link) <= GREATEST_TABLE
            else f"{link} is not the number of a routing table"
        )
    if link in _named_tables(tables):
        return ""
    if link and "/" not in link and (devices / link).exists():
        return (
            ""
            if ":" not in nic.ip
            else "an interface as the link of a routed NIC needs an IPv4 address"
        )
    return (
        f"{link!r:.40} is neither a routing table nor an interface; pass a table's number, 'main',"
        f" a name from {tables[0]}, or an interface of the node"
    )


def _wrong_switch(nic: NicSpec, search_path: str) -> str:
    if nic.mode != "openvswitch":
        return f"the mode {nic.mode!r:.20} is unknown"
    if shutil.which(SWITCH_PROGRAM, path=search_path) is None:
        return (
            f"the mode openvswitch needs Open vSwitch, but this node has no {SWITCH_PROGRAM};"
            " install openvswitch-switch, or use bridged or routed"
        )
    return ""


def _named_tables(tables: Sequence[Path]) -> set[str]:
    names = set()
    for path in tables:
        try:
            lines = path.read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
        rows = (line.partition("#")[0].split() for line in lines)
        names |= {words[1] for words in rows if len(words) > 1}
    return names


def _is_one(path: Path) -> bool:
    try:
        return path.read_text().strip() == "1"
    except OSError:
        return False
