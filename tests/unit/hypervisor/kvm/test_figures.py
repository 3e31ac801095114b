"""The figures of guests, from files that look like the kernel's."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm.figures import LOOK_AGAIN, Figures
from ganeti.hypervisor.kvm.runtime import GuestFiles, Record
from ganeti.model.figures import Reading
from ganeti.model.instance_spec import InstanceSpec

UUID = "0b7c9a3e-1111-2222-3333-444455556666"
PID, STARTED = 4242, 777
TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1024 * 1024
RECORD = Record(
    instance=InstanceSpec(
        name="web1", uuid=UUID, hypervisor="kvm", os="o", memory=128, vcpus=1, hvparams={}
    ),
    argv=("qemu",),
    accelerator="tcg",
    boot_id="boot",
    taps=("gnt1", "gnt2"),
    pid=PID,
    start_ticks=STARTED,
)


class Kernel:
    """The files of the kernel about one QEMU."""

    def __init__(self, proc: Path, sys: Path) -> None:
        self.proc, self.sys, self.own = proc, sys, proc / str(PID)
        (self.own / "fd").mkdir(parents=True)
        (proc / "net").mkdir()
        self.runs(user=3 * TICKS, system=2 * TICKS)
        pages = 64 * MIB // os.sysconf("SC_PAGE_SIZE")
        (self.own / "statm").write_text(f"99999 {pages} 10 1 0 1 0\n")
        (self.own / "io").write_text("rchar: 9\nwchar: 9\nread_bytes: 4096\nwrite_bytes: 8192\n")
        (proc / "net/dev").write_text(
            "gnt1: 100 1 0 0 0 0 0 0 1000 5 0 0 0 0 0 0\ngnt2: 200 2 0 0 0 0 0 0 2000 6 0 0 0 0 0 0\n"
            "eth0: 7 7 0 0 0 0 0 0 7 7 0 0 0 0 0 0\n"
        )

    def runs(
        self, user: int, system: int, *, started: int = STARTED, state: str = "S", threads: int = 4
    ) -> None:
        fields = ["0"] * 30
        fields[0], fields[11], fields[12], fields[17], fields[19] = (
            state, str(user), str(system), str(threads), str(started),
        )  # fmt: skip
        (self.own / "stat").write_text(f"{PID} (qemu (odd) name) {' '.join(fields)}\n")


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path / "proc", tmp_path / "sys")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path / "node")
    paths.kvm.mkdir(parents=True)
    GuestFiles.of(paths, UUID).write(RECORD)
    return paths


@pytest.fixture
def figures(paths: Paths, kernel: Kernel) -> Figures:
    return Figures(paths, kernel.proc, kernel.sys)


def one(figures: Figures) -> Reading:
    found = figures.measure()
    assert found.keys() == {UUID}
    return found[UUID]


def test_a_guest_has_the_figures_of_its_process_and_its_taps(figures: Figures) -> None:
    found = one(figures)
    assert found.present == {"memory": 64.0}
    assert found.counters == {
        "cpu": 5.0,
        "disk_read": 4096.0,
        "disk_write": 8192.0,
        # What a tap receives, the guest has sent.
        "net_out": 300.0,
        "net_out_packets": 3.0,
        "net_in": 3000.0,
        "net_in_packets": 11.0,
    }


def with_block_device(kernel: Kernel, name: str) -> None:
    device = kernel.proc.parent / name
    try:
        os.mknod(device, 0o600 | 0o060000, os.makedev(253, 7))
    except PermissionError:
        pytest.skip("this process may not make device nodes")
    (kernel.own / "fd" / name).symlink_to(device)
    (kernel.own / "fd/again").symlink_to(device)
    (kernel.own / "fd/file").symlink_to(kernel.own / "stat")
    (kernel.own / "fd/gone").symlink_to("/none")
    counters = kernel.sys / "dev/block/253:7"
    counters.mkdir(parents=True)
    (counters / "stat").write_text("  10 0 16 1 20 0 32 1 0 0 0\n")


def test_block_devices_have_requests(figures: Figures, kernel: Kernel) -> None:
    with_block_device(kernel, "disk")
    counters = one(figures).counters
    assert {name: counters[name] for name in counters if name.startswith("disk")} == {
        "disk_reads": 10.0, "disk_read": 8192.0, "disk_writes": 20.0, "disk_write": 16384.0,
    }  # fmt: skip


def test_a_new_disk_is_noticed_and_begins_another_life(figures: Figures, kernel: Kernel) -> None:
    before = one(figures)
    with_block_device(kernel, "disk")
    assert one(figures).life == before.life
    for _ in range(LOOK_AGAIN):
        after = one(figures)
    assert after.life != before.life, "the counters of the new disk do not begin at 0"
    assert "disk_reads" in after.counters


@pytest.mark.parametrize(
    "record",
    [replace(RECORD, is_incoming=True), replace(RECORD, pid=0)],
    ids=["incoming", "not started yet"],
)
def test_a_guest_that_does_not_run_here_is_not_measured(
    figures: Figures, paths: Paths, record: Record
) -> None:
    GuestFiles.of(paths, UUID).write(record)
    assert figures.measure() == {}


def test_an_ended_guest_is_not_measured(figures: Figures, kernel: Kernel, paths: Paths) -> None:
    kernel.runs(user=1, system=1, started=STARTED + 1)
    assert figures.measure() == {}, "another process with the same id"
    kernel.runs(user=1, system=1, state="Z", threads=1)
    assert figures.measure() == {}, "a zombie"
    kernel.runs(user=1, system=1, state="Z", threads=2)
    assert figures.measure().keys() == {UUID}, "its other threads may still hold disks"
    (kernel.own / "stat").unlink()
    assert figures.measure() == {}
    GuestFiles.of(paths, UUID).forget()
    assert figures.measure() == {}


def test_a_damaged_record_hides_no_other_guest(figures: Figures, paths: Paths) -> None:
    (paths.kvm / "ffffffff-ffff.json").write_text("{")
    assert figures.measure().keys() == {UUID}


def test_a_changed_record_is_read_again(figures: Figures, paths: Paths) -> None:
    assert one(figures).counters["net_in"] == 3000.0
    GuestFiles.of(paths, UUID).write(replace(RECORD, taps=("gnt1",)))
    assert one(figures).counters["net_in"] == 1000.0


def test_what_the_kernel_hides_is_unknown(figures: Figures, kernel: Kernel) -> None:
    for name in ("io", "statm"):
        (kernel.own / name).unlink()
    (kernel.proc / "net/dev").unlink()
    assert one(figures) == Reading(one(figures).life, {"cpu": 5.0}, {})
