"""Filling devices with zeros."""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ganeti.storage import wipe as module
from ganeti.storage.wipe import Stopped, in_stoppable_thread, wipe


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(module, "PIECE", 1000)
    monkeypatch.setattr(module, "_ZEROS_AT_ONCE", 300)
    path = tmp_path / "device"
    path.write_bytes(b"x" * 5000)
    descriptor = os.open(path, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize(("start", "end"), [(0, 5000), (1, 4999), (2500, 2501), (7, 7)])
def test_exactly_the_bytes_asked_for_become_zeros(device: int, start: int, end: int) -> None:
    wipe(device, start, end)
    wanted = b"x" * start + bytes(end - start) + b"x" * (5000 - end)
    assert os.pread(device, 6000, 0) == wanted


def test_the_call_shows_how_much_of_the_new_space_is_clear(
    device: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[tuple[int, int]]()
    monkeypatch.setattr(module, "report", lambda done, total: seen.append((done, total)))
    wipe(device, 2500, 5000)
    assert seen == [(0, 2500), (1000, 2500), (2000, 2500)]


def test_it_stops_between_two_pieces(device: int) -> None:
    looks = iter([False, True])
    with pytest.raises(Stopped):
        wipe(device, 0, 5000, lambda: next(looks))
    assert os.pread(device, 6000, 0) == bytes(1000) + b"x" * 4000


async def test_a_cancellation_waits_until_nothing_is_written_any_more() -> None:
    begun, loop, events = asyncio.Event(), asyncio.get_running_loop(), []

    def work(is_stopped: Callable[[], bool]) -> None:
        loop.call_soon_threadsafe(begun.set)
        while not is_stopped():
            pass
        events.append("stopped")

    task = asyncio.create_task(in_stoppable_thread(work))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events == ["stopped"]
