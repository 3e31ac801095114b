"""Reading a running guest's disk: at full speed while it does not write, otherwise in small parts with pauses."""

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ganeti.node.backups.throttle import (
    LARGE,
    LEAST_RATE,
    NICENESS,
    PAUSE,
    SMALL,
    WRITES_STILL_S,
    Throttle,
    server_of,
    step_back,
    written_by,
)


@dataclass
class World:
    """A guest, and a disk that takes its time."""

    time: float = 1000.0
    written: int | None = 0
    paused: list[float] = field(default_factory=list)

    def throttle(self) -> Throttle:
        return Throttle(lambda: self.written, now=lambda: self.time, sleep=self.paused.append)

    def read(self, throttle: Throttle, taken_s: float) -> tuple[int, float]:
        """Return the length of a read and the pause after it."""
        self.paused.clear()
        length = throttle.begin()
        self.time += taken_s
        throttle.end()
        return length, sum(self.paused)


def test_guest_that_does_not_write_is_read_at_full_speed() -> None:
    world = World(written=4096)
    throttle = world.throttle()
    assert [world.read(throttle, 0.001) for _ in range(3)] == [(LARGE, 0.0)] * 3


def test_each_write_slows_the_reading_down_for_some_time() -> None:
    world = World()
    throttle = world.throttle()
    for _ in range(2):
        world.written = (world.written or 0) + 512
        length, pause = world.read(throttle, 0.0005)
        assert length == SMALL
        assert pause == pytest.approx(PAUSE * 0.0005)
        world.time += WRITES_STILL_S / 2
        assert world.read(throttle, 0.001)[0] == SMALL
        world.time += WRITES_STILL_S / 2
        assert world.read(throttle, 0.001) == (LARGE, 0.0)


@pytest.mark.parametrize("taken_s", [0.0, 0.0001, 0.002, SMALL / LEAST_RATE, 0.1])
def test_pauses_alone_do_not_lower_the_rate_below_the_least_one(taken_s: float) -> None:
    world = World()
    throttle = world.throttle()
    world.written = 1
    length, pause = world.read(throttle, taken_s)
    assert 0.0 <= pause <= PAUSE * taken_s + 1e-9
    assert length / max(taken_s + pause, 1e-9) >= LEAST_RATE * 0.999 or pause == 0.0


def test_unknown_writes_do_not_slow_the_reading_down() -> None:
    world = World(written=None)
    assert world.read(world.throttle(), 0.001) == (LARGE, 0.0)


def test_written_bytes_of_a_process_are_those_that_reach_a_disk(tmp_path: Path) -> None:
    io = b"rchar: 5\nwchar: 6\nsyscr: 1\nsyscw: 1\nread_bytes: 7\nwrite_bytes: 8192\ncancelled_write_bytes: 9\n"
    (tmp_path / "io").write_bytes(io)
    assert written_by(tmp_path) == 8192
    for other in (b"", b"write_bytes: 1\n", b"x\nwrite_bytes: many\n"):
        (tmp_path / "io").write_bytes(other)
        assert written_by(tmp_path) is None
    assert written_by(tmp_path / "none") is None


def test_server_of_a_local_socket_is_the_process_that_listens(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        client.connect(str(tmp_path / "s"))
        assert server_of(client) == Path("/proc") / str(os.getpid())


@pytest.mark.parametrize(("before", "after"), [(0, NICENESS), (-5, NICENESS), (19, 19)])
def test_program_of_a_backup_never_raises_its_priority(
    monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    chosen = list[int]()
    monkeypatch.setattr(os, "getpriority", lambda _which, _who: before)
    monkeypatch.setattr(os, "setpriority", lambda _which, _who, value: chosen.append(value))
    step_back()
    assert chosen == [after]
