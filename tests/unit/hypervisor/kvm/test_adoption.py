"""Which guests of the original become ours, and which are left alone."""

import json
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.paths import Paths
from ganeti.base.process_table import ProcessId
from ganeti.hypervisor.abilities import Adoption
from ganeti.hypervisor.kvm import adoption
from ganeti.hypervisor.kvm.adoption import UpstreamGuests, directory
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.model.wire import encode

UUID = "66666666-0000-4000-8000-000000000001"
NAME = "web1.example.com"
PID = 4711
SECRET = "5ec7e75ec7e7"


class OneProcess:
    """The processes of a host with one QEMU."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = list(argv)

    def find(self, argv: Sequence[str]) -> ProcessId | None:
        return ProcessId(PID, 77) if list(argv) == self.argv else None


@pytest.fixture
def paths() -> Iterator[Paths]:
    """Short enough for the names of sockets."""
    with tempfile.TemporaryDirectory(prefix="gnt-") as place:
        found = Paths(Path(place))
        for name in ("pid", "ctrl", "conf", "uid"):
            (directory(found) / name).mkdir(parents=True)
        yield found


@pytest.fixture
def control(paths: Paths) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(directory(paths) / "ctrl" / f"{NAME}.qmp"))
        yield


def words(**others: str) -> list[str]:
    given = {"-name": NAME, "-m": "512", "-smp": "2,sockets=1", "-uuid": UUID, **others}
    return ["/usr/bin/kvm", "-enable-kvm", *(word for pair in given.items() for word in pair)]


def left_by_the_original(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, argv: list[str], runtime: Any = None
) -> OneProcess:
    disk = {
        "uuid": "d", "dev_type": "drbd", "size": 1024, "mode": "rw",
        "logical_id": ["node1", "node2", 11000, 0, 1, SECRET],
    }  # fmt: skip
    nic = {"uuid": "n", "mac": "aa:00:00:00:00:01", "nicparams": {"mode": "bridged", "link": "br7"}}
    whole = [
        argv,
        [nic],
        {"boot_order": "disk", "odd": 1, "user_shutdown": True},
        [[disk, "/dev/drbd0", None]],
    ]
    (directory(paths) / "conf" / f"{NAME}.runtime").write_text(json.dumps(runtime or whole))
    (directory(paths) / "pid" / NAME).write_text(f"{PID}\n")
    (directory(paths) / "uid" / NAME).write_text("61003\n")
    monkeypatch.setattr(adoption, "_words", lambda pid: list(argv) if pid == PID else [])
    return OneProcess(argv)


def test_a_running_guest_has_a_record_with_what_it_was_started_with(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, control: None
) -> None:
    processes = left_by_the_original(paths, monkeypatch, words())
    done = UpstreamGuests(paths, processes).adopt()  # type: ignore[arg-type] # what is asked of it
    assert (done.adopted, done.problems) == ((NAME,), ())
    files = GuestFiles.of(paths, UUID)
    record = files.read()
    assert record is not None
    assert (record.pid, record.start_ticks, record.pool_uid) == (PID, 77, 61003)
    assert (record.is_adopted, record.is_prepared, record.accelerator) == (True, True, "kvm")
    assert (record.instance.memory, record.instance.vcpus) == (512, 2)
    assert record.instance.hvparams == {"boot_order": "disk", "user_shutdown": False}
    assert record.instance.nics[0].link == "br7"
    assert files.monitor.is_symlink()
    assert SECRET.encode() not in encode(record)


@pytest.mark.parametrize(
    "argv", [words(**{"-name": "other"}), words(**{"-uuid": "x"}), ["/usr/bin/kvm", "-name", NAME]]
)
def test_a_process_that_is_not_this_guest_is_not_touched(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, control: None, argv: list[str]
) -> None:
    processes = left_by_the_original(paths, monkeypatch, argv)
    done = UpstreamGuests(paths, processes).adopt()  # type: ignore[arg-type] # what is asked of it
    assert done.adopted == ()
    assert [text.partition(":")[0] for text in done.problems] == [NAME]
    assert not list(paths.kvm.glob("*.json"))


@pytest.mark.parametrize("runtime", [{"a": 1}, [1, 2, 3], [[], [], {}, [7]], [[], 7, {}, []], "x"])
def test_a_damaged_runtime_file_is_reported_and_the_guest_not_touched(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, control: None, runtime: object
) -> None:
    processes = left_by_the_original(paths, monkeypatch, words(), runtime)
    done = UpstreamGuests(paths, processes).adopt()  # type: ignore[arg-type] # what is asked of it
    assert done.adopted == ()
    assert len(done.problems) == 1
    assert not list(paths.kvm.glob("*.json"))


def test_a_guest_without_its_control_socket_is_reported(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = left_by_the_original(paths, monkeypatch, words())
    done = UpstreamGuests(paths, processes).adopt()  # type: ignore[arg-type] # what is asked of it
    assert "control socket" in done.problems[0]
    assert not list(paths.kvm.glob("*.json"))


def test_a_guest_that_has_ended_is_no_problem(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = left_by_the_original(paths, monkeypatch, words())
    (directory(paths) / "pid" / NAME).unlink()
    assert UpstreamGuests(paths, processes).adopt() == Adoption((), ())  # type: ignore[arg-type] # as above
