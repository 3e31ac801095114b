"""What facts of hosts say: each rule by a host that breaks it, and a healthy host that breaks none."""

from typing import Any

import msgspec
import pytest

from ganeti.doctor.judge import AREAS, findings_of_cluster, findings_of_host
from ganeti.model.host_facts import HostFacts, HostQuestion, Level, Link, Space

QUESTION = HostQuestion(
    volume_group="xenvg", uses_drbd=True, directories=("/srv/disks",), links=("br0",), ports=(1811,)
)
HEALTHY = HostFacts(
    name="node1.example.com",
    name_addresses=("192.0.2.1",),
    system="Debian GNU/Linux 12 (bookworm)",
    kernel="6.1.0",
    memory_mib=65536,
    cpus=16,
    cpu_flags=("aes", "vmx"),
    is_clock_synchronised=True,
    time_service="chronyd",
    links={"br0": Link(is_bridge=True, is_up=True, mtu=1500)},
    spaces={"/srv/disks": Space(total=1_000_000, free=500_000, kind="ext4")},
    qemu_version="7.2.9",
    volume_groups={"xenvg": 900_000},
    drbd_version="8.4.11",
    has_systemd=True,
)


def facts(**changes: Any) -> HostFacts:
    """The healthy host with some facts changed."""
    return msgspec.structs.replace(HEALTHY, **changes)


def test_healthy_host_has_one_good_line_for_each_area() -> None:
    found = findings_of_host(QUESTION, HEALTHY)
    assert [one.area for one in found] == list(AREAS)
    assert {one.level for one in found} == {Level.OK}
    assert {one.host for one in found} == {"node1.example.com"}
    texts = " ".join(one.text for one in found)
    for shown in ("192.0.2.1", "chronyd", "xenvg 900000 MiB free", "DRBD 8.4.11", "QEMU 7.2.9"):
        assert shown in texts


BROKEN: list[tuple[str, Level, str, dict[str, Any]]] = [
    ("little-memory", Level.WARNING, "", {"memory_mib": 300}),
    ("memory-errors", Level.ERROR, "gnt-node evacuate", {"uncorrected_memory_errors": 2}),
    (
        "units-disabled",
        Level.WARNING,
        "systemctl enable --now ganeti-noded.service",
        {"disabled_units": ("ganeti-noded.service",)},
    ),
    ("no-name", Level.ERROR, "hostnamectl", {"name": "localhost"}),
    ("name-without-address", Level.ERROR, "/etc/hosts", {"name_addresses": ()}),
    ("name-is-loopback", Level.ERROR, "/etc/hosts", {"name_addresses": ("127.0.1.1",)}),
    ("name-is-loopback", Level.ERROR, "/etc/hosts", {"name_addresses": ("::1",)}),
    ("link-missing", Level.ERROR, "ip link add br0 type bridge", {"links": {}}),
    (
        "link-down",
        Level.ERROR,
        "ip link set br0 up",
        {"links": {"br0": Link(is_bridge=True, is_up=False, mtu=1500)}},
    ),
    ("bridge-filtered", Level.WARNING, "sysctl -w net.bridge", {"filters_bridges": True}),
    ("port-in-use", Level.ERROR, ":1811", {"ports_in_use": (1811,)}),
    (
        "no-time-service",
        Level.ERROR,
        "apt-get install chrony",
        {"is_clock_synchronised": False, "time_service": ""},
    ),
    (
        "clock-not-synchronised",
        Level.WARNING,
        "chronyc sources",
        {"is_clock_synchronised": False},
    ),
    ("no-lvm", Level.ERROR, "apt-get install lvm2", {"lvm_problem": "vgs does not exist"}),
    ("no-volume-group", Level.ERROR, "vgcreate xenvg", {"volume_groups": {"other": 1}}),
    ("no-drbd", Level.ERROR, "drbd-utils", {"drbd_problem": "drbdsetup does not exist"}),
    ("no-drbd", Level.ERROR, "modprobe drbd", {"drbd_problem": "the module is not loaded"}),
    ("raid-degraded", Level.ERROR, "mdadm --detail /dev/md0", {"degraded_raids": ("md0",)}),
    (
        "little-space",
        Level.WARNING,
        "du -xh",
        {"spaces": {"/srv/disks": Space(total=100_000, free=2_000)}},
    ),
    (
        "little-space",
        Level.ERROR,
        "du -xh",
        {"spaces": {"/srv/disks": Space(total=100_000, free=100)}},
    ),
    (
        "volatile-directory",
        Level.WARNING,
        "",
        {"spaces": {"/srv/disks": Space(total=100_000, free=90_000, kind="tmpfs")}},
    ),
    ("no-qemu", Level.ERROR, "qemu-system-x86", {"qemu_problem": "it does not exist"}),
    ("kvm-unusable", Level.ERROR, "modprobe kvm_intel", {"kvm_problem": "/dev/kvm: No such file"}),
    (
        "kvm-unusable",
        Level.ERROR,
        "modprobe kvm_amd",
        {"kvm_problem": "/dev/kvm: No such file", "cpu_flags": ("svm",)},
    ),
    (
        "no-hardware-virtualisation",
        Level.WARNING,
        "",
        {"kvm_problem": "/dev/kvm: No such file", "cpu_flags": ("aes",)},
    ),
    ("no-tun", Level.ERROR, "modprobe tun", {"has_tun": False}),
    ("no-vhost-net", Level.WARNING, "modprobe vhost_net", {"has_vhost_net": False}),
]


@pytest.mark.parametrize(("code", "level", "command", "changes"), BROKEN)
def test_broken_fact_is_one_finding_with_its_command(
    code: str, level: Level, command: str, changes: dict[str, Any]
) -> None:
    found = findings_of_host(QUESTION, facts(**changes))
    [bad] = [one for one in found if one.level is not Level.OK]
    assert (bad.code, bad.level) == (code, level)
    assert command in bad.command
    assert {one.area for one in found} == set(AREAS), "every area has a finding"


def test_host_is_judged_only_by_what_the_cluster_uses() -> None:
    """A cluster of the fake hypervisor on files needs no LVM, no bridge and no QEMU."""
    bare = facts(
        links={}, volume_groups={}, lvm_problem="x", drbd_problem="x", qemu_problem="x",
        kvm_problem="x", has_tun=False, has_vhost_net=False,
    )  # fmt: skip
    found = findings_of_host(HostQuestion(runs_kvm=False), bare, "node9")
    assert {one.level for one in found} == {Level.OK}
    assert {one.host for one in found} == {"node9"}


def test_unknown_clock_and_virtual_name_are_no_problem() -> None:
    unknown = facts(is_clock_synchronised=None, name_addresses=None, name="localhost")
    assert {one.level for one in findings_of_host(QUESTION, unknown)} == {Level.OK}


def compared(cpu_type: str = "host", **hosts: HostFacts) -> dict[str, str]:
    """Codes and texts of the findings about several hosts."""
    return {one.code: one.text for one in findings_of_cluster(QUESTION, hosts, cpu_type)}


def test_equal_hosts_have_no_difference() -> None:
    assert compared(a=HEALTHY, b=HEALTHY, c=HEALTHY) == {}
    assert compared(a=HEALTHY) == {}
    assert compared() == {}


def test_differences_name_the_hosts_and_the_values() -> None:
    other = facts(
        qemu_version="8.0.0",
        cpu_flags=("aes", "avx512f", "vmx"),
        links={"br0": Link(is_bridge=True, is_up=True, mtu=9000)},
    )
    found = compared(a=HEALTHY, b=HEALTHY, c=other)
    assert set(found) == {"qemu-differs", "mtu-differs", "processors-differ"}
    assert "7.2.9 on a, b; 8.0.0 on c" in found["qemu-differs"]
    assert "1500 on a, b; 9000 on c" in found["mtu-differs"]
    assert "c has avx512f, which a, b lack" in found["processors-differ"]


def test_processors_may_differ_if_guests_do_not_see_them() -> None:
    other = facts(cpu_flags=("vmx",))
    assert "processors-differ" not in compared("x86-64-v2-AES", a=HEALTHY, b=other)
    assert "processors-differ" in compared("max", a=HEALTHY, b=other)


def test_many_names_are_counted() -> None:
    hosts = {f"n{one}": HEALTHY for one in range(9)}
    found = compared("host", **hosts, z=facts(qemu_version="8.0.0"))
    assert "7.2.9 on n0, n1, n2 and 6 more; 8.0.0 on z" in found["qemu-differs"]
