"""How far the programs and calls of a node are, also where all is zeros."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ganeti.model.progress import Progress
from ganeti.node.carrier.ends import HOLE_PIECE, open_source
from ganeti.node.carrier.flow import Count
from ganeti.node.carrier.order import EndOrder, StreamOrder
from ganeti.node.carrier.progress import ProgressFile, read_progress
from ganeti.rpc.calls import Call
from ganeti.rpc.meters import Meters, follow, report
from ganeti.rpc.procedures.disks import BLOCKDEV_CREATE, BLOCKDEV_INFO
from ganeti.rpc.procedures.progress import CALL_PROGRESS, ProgressArgs

MIB = 1024 * 1024


def test_a_sparse_disk_is_passed_on_in_pieces_that_are_counted_one_by_one(tmp_path: Path) -> None:
    disk, positions = tmp_path / "disk", list[int]()
    with disk.open("wb") as file:
        file.truncate(1024 * MIB)
        file.seek(512 * MIB)
        file.write(b"data")

    class Recorded(ProgressFile):
        def at(self, done: int) -> None:
            positions.append(done)

    count = Count(Recorded(tmp_path / "order", 1024 * MIB))
    with open_source(EndOrder(path=str(disk)), 1024 * MIB, {}) as source:
        for zeros, data in source.pieces():
            count.add(zeros, data)
    assert positions == sorted(positions)
    assert positions[-1] == 1024 * MIB
    steps = [after - before for before, after in zip([0, *positions], positions, strict=False)]
    assert max(steps) <= HOLE_PIECE


def test_a_program_writes_its_position_at_most_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, now = tmp_path / "stream.order", [100.0]
    monkeypatch.setattr("ganeti.node.carrier.progress.time.monotonic", lambda: now[0])
    assert read_progress(order) is None
    file = ProgressFile(order, 50)
    for time, done in ((100.0, 1), (100.9, 2), (101.5, 3), (102.0, 4)):
        now[0] = time
        file.at(done)
    assert read_progress(order) == Progress(done=3, total=50)


@pytest.mark.parametrize(("argv", "total"), [((), 50), (("script",), 0)])
def test_total_of_a_script_is_unknown(argv: tuple[str, ...], total: int) -> None:
    assert StreamOrder(size=50, source=EndOrder(argv=argv)).total == total
    assert StreamOrder(size=50, sink=EndOrder(argv=argv)).total == total


async def test_running_call_reports_its_progress() -> None:
    meters, go_on = Meters(), asyncio.Event()

    async def create(args: Any, call: Call) -> Any:
        del args, call
        await asyncio.to_thread(report, 3, 10, "disks")
        await go_on.wait()
        follow(lambda: Progress(done=4))
        await go_on.wait()

    async def info(args: Any, call: Call) -> Any:
        del args, call
        report(1, 2)

    handlers = meters.wrap({BLOCKDEV_CREATE.name: create, BLOCKDEV_INFO.name: info})

    async def asked(key: str) -> Progress | None:
        found: Progress | None = await handlers[CALL_PROGRESS.name](ProgressArgs(key=key), Call())
        return found

    made = handlers[BLOCKDEV_CREATE.name]
    tasks = [asyncio.ensure_future(made(None, Call(key=key))) for key in "ab"]
    while await asked("b") is None:  # noqa: ASYNC110 - the report comes from a thread
        await asyncio.sleep(0.01)
    await handlers[BLOCKDEV_INFO.name](None, Call(key="c"))
    assert await asked("b") == Progress(done=3, total=10, part="disks")
    assert await asked("c") is None
    go_on.set()
    await asyncio.gather(*tasks)
    assert await asked("b") is None
