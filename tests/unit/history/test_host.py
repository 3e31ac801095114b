"""The node's own figures."""

from pathlib import Path

import pytest

from ganeti.history.host import HostFigures, busy_s, used_mib
from ganeti.model.figures import Reading

STAT = "cpu  100 0 50 1000 200 0 10 0 40 0\ncpu0 100 0 50 1000 200 0 10 0 40 0\nintr 5\n"
MEMORY = "MemTotal:       1048576 kB\nMemFree:          100 kB\nMemAvailable:    262144 kB\n"
DISKS = " 253 0 vda 10 0 8 0 20 0 16 0\n 253 1 vda1 10 0 8 0 20 0 16 0\n 252 0 dm-0 99 0 99 0 99 0 99 0\n"
NETWORKS = "a|b\n" + "".join(
    f"{name}: {received} 1 0 0 0 0 0 0 {sent} 2 0 0 0 0 0 0\n"
    for name, received, sent in (
        ("lo", 9, 9),
        ("eth0", 100, 200),
        ("br0", 1000, 2000),
        ("gnt1", 5, 6),
    )
)


@pytest.fixture
def host(tmp_path: Path) -> HostFigures:
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    (proc / "net").mkdir(parents=True)
    for name, text in {
        "stat": STAT, "meminfo": MEMORY, "diskstats": DISKS, "net/dev": NETWORKS,
    }.items():  # fmt: skip
        (proc / name).write_text(text)
    (sys / "block/vda/device").mkdir(parents=True)
    (sys / "block/dm-0").mkdir()
    (sys / "class/net/br0/bridge").mkdir(parents=True)
    (sys / "class/net/gnt1").mkdir()
    (sys / "class/net/gnt1/tun_flags").write_text("0x1002")
    (sys / "class/net/eth0").mkdir()
    return HostFigures(proc, sys)


def test_disks_and_networks_are_those_of_the_hardware(host: HostFigures, tmp_path: Path) -> None:
    (tmp_path / "sys/class/net/eth0/device").mkdir()
    found = host.read()
    assert found.present == {"memory": 768.0}
    assert found.counters["cpu"] == pytest.approx(1.6, rel=0.01)  # 160 ticks of 10 ms
    assert {name: found.counters[name] for name in ("disk_reads", "disk_read", "disk_write")} == {
        "disk_reads": 10, "disk_read": 4096, "disk_write": 8192,
    }  # fmt: skip
    assert (found.counters["net_in"], found.counters["net_out"]) == (100, 200)


def test_without_hardware_bridges_and_guests_do_not_count(host: HostFigures) -> None:
    found = host.read()
    assert (found.counters["net_in"], found.counters["net_out"]) == (100, 200)


def test_what_the_kernel_does_not_report_is_missing(tmp_path: Path) -> None:
    assert HostFigures(tmp_path / "none", tmp_path / "none").read() == Reading(None)


@pytest.mark.parametrize("text", ["", "cpu", "cpux 1 2", "cpu a b c", "cpu0 1 2 3 4"])
def test_a_strange_stat_has_no_processor_time(text: str) -> None:
    assert busy_s(text, 100) in (None, 0.0)


@pytest.mark.parametrize(
    "text", ["", "MemTotal: 5 kB", "MemTotal: x\nMemAvailable:\n", "MemTotal:\n"]
)
def test_a_strange_meminfo_has_no_memory(text: str) -> None:
    assert used_mib(text) is None


def test_the_figures_of_this_host_are_plausible() -> None:
    found = HostFigures().read()
    assert found.counters["cpu"] > 0
    assert found.present["memory"] > 1
