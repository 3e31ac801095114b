"""Guests of a node, found in a pretended /proc."""

import os
from pathlib import Path

import pytest

from ganeti.monitoring.guests import guests, memory_data, status_data, uptime_text
from ganeti.monitoring.report import Code

UUID = "8a4b5c6d-0000-4000-9000-000000000001"
BOOT = 1_700_000_000


def process(proc: Path, pid: int, words: list[str], *, state: str = "S", ticks: int = 500) -> None:
    directory = proc / str(pid)
    directory.mkdir(parents=True)
    (directory / "cmdline").write_text("\0".join([*words, ""]))
    rest = " ".join(["0"] * 18)
    (directory / "stat").write_text(f"{pid} (qemu ) x) {state} {rest} {ticks} 0 0\n")
    (directory / "statm").write_text("1000 421 30 4 0 60 0\n")


def qemu(directory: Path, name: str = "guest=web1,debug-threads=on", uuid: str = UUID) -> list[str]:
    socket = f"socket,id=m,path={directory}/{uuid[:13]}.m,server=on"
    return ["/usr/bin/kvm", "-name", name, "-uuid", uuid, "-chardev", socket]


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "stat").write_text(f"cpu  1 2 3 4\nbtime {BOOT}\n")
    return tmp_path / "proc"


def test_only_guests_of_this_node_are_found(proc: Path, tmp_path: Path) -> None:
    mine, other = tmp_path / "kvm", tmp_path / "elsewhere"
    process(proc, 10, qemu(mine))
    process(proc, 11, qemu(other, "guest=web2", UUID.replace("8a", "9a")))
    process(proc, 12, ["/bin/sh", "-c", f"ls {mine}"])
    process(proc, 13, qemu(mine, "guest=web3", UUID.replace("8a", "7a")), state="Z")
    process(proc, 14, [])
    (proc / "15").mkdir()
    [found] = guests(proc, mine)
    assert (found.name, found.uuid, found.resident_pages) == ("web1", UUID, 421)
    assert found.started == pytest.approx(BOOT + 500 / os.sysconf("SC_CLK_TCK"))
    assert memory_data([found]) == {"web1": 421}


def test_a_running_guest_is_up_and_a_stopped_process_is_not_understood(
    proc: Path, tmp_path: Path
) -> None:
    process(proc, 10, qemu(tmp_path, "web1"), ticks=0)
    process(proc, 11, qemu(tmp_path, "guest=web2", UUID.replace("8a", "9a")), state="T")
    found = status_data(list(guests(proc, tmp_path)), BOOT + 3661)
    first, second = found["instances"]
    assert (first["name"], first["actualState"], first["uptime"]) == ("web1", "up", "1:01:01")
    assert first["status"] == {"code": Code.GOOD, "message": ""}
    assert (second["actualState"], second["status"]["code"]) == ("hung", Code.UNKNOWN)
    assert found["status"] == {"code": Code.UNKNOWN, "message": "stopped: web2"}
    assert status_data([], 0.0) == {"status": {"code": 0, "message": ""}, "instances": []}


def test_times_as_people_write_them() -> None:
    assert [uptime_text(one) for one in (0, 59.9, 86_400, 200_000)] == [
        "0:00:00", "0:00:59", "1 day, 0:00:00", "2 days, 7:33:20",
    ]  # fmt: skip
