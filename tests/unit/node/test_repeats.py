"""A changing call that comes twice happens once (G7)."""

import asyncio
from typing import Any

import pytest

from ganeti.base.errors import StorageError
from ganeti.model.instance_spec import DiskSpec
from ganeti.node.repeats import Repeats
from ganeti.rpc.calls import Call, Handler
from ganeti.rpc.procedures.disks import BLOCKDEV_CREATE, BLOCKDEV_INFO, DiskArgs

CALL = Call(key="7/0/1")


def args(uuid: str = "d") -> DiskArgs:
    return DiskArgs(
        instance_name="web1",
        disk=DiskSpec(uuid=uuid, index=0, size=1, template="file", logical_id=()),
    )


class Counter:
    """A handler that counts how often it runs, and waits at a gate if it has one."""

    def __init__(
        self, *, gate: asyncio.Event | None = None, error: Exception | None = None
    ) -> None:
        self.runs = 0
        self.gate = gate
        self.error = error

    async def __call__(self, args: Any, call: Call) -> int:
        self.runs += 1
        run = self.runs
        if self.gate:
            await self.gate.wait()
        if self.error:
            raise self.error
        return run


def wrapped(counter: Counter, procedure: str = BLOCKDEV_CREATE.name, **options: int) -> Handler:
    return Repeats(**options).wrap({procedure: counter})[procedure]


@pytest.mark.requirement("G7")
async def test_a_repeated_call_gets_the_recorded_result() -> None:
    counter = Counter()
    handler = wrapped(counter)
    assert [await handler(args(), CALL) for _ in range(3)] == [1, 1, 1]
    assert counter.runs == 1


@pytest.mark.requirement("G7")
async def test_a_repeated_call_joins_the_one_that_runs() -> None:
    gate = asyncio.Event()
    counter = Counter(gate=gate)
    handler = wrapped(counter)
    calls = [asyncio.ensure_future(handler(args(), CALL)) for _ in range(3)]
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(*calls) == [1, 1, 1]


async def test_a_recorded_error_is_the_answer_again() -> None:
    counter = Counter(error=StorageError("full"))
    handler = wrapped(counter)
    for _ in range(2):
        with pytest.raises(StorageError, match="full"):
            await handler(args(), CALL)
    assert counter.runs == 1


async def test_a_fault_of_the_program_is_not_remembered() -> None:
    counter = Counter(error=ZeroDivisionError())
    handler = wrapped(counter)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await handler(args(), CALL)
    assert counter.runs == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((args(), CALL), (args(), Call(key="7/0/2"))),
        ((args("a"), CALL), (args("b"), CALL)),
        ((args(), Call()), (args(), Call())),
    ],
)
async def test_another_key_other_arguments_or_no_key_make_another_call(
    first: tuple[DiskArgs, Call], second: tuple[DiskArgs, Call]
) -> None:
    counter = Counter()
    handler = wrapped(counter)
    await handler(*first)
    await handler(*second)
    assert counter.runs == 2


async def test_a_call_that_changes_nothing_is_answered_each_time() -> None:
    counter = Counter()
    handler = wrapped(counter, BLOCKDEV_INFO.name)
    await handler(args(), CALL)
    await handler(args(), CALL)
    assert counter.runs == 2


async def test_if_the_running_call_is_cancelled_a_waiting_one_takes_over() -> None:
    gate = asyncio.Event()
    counter = Counter(gate=gate)
    handler = wrapped(counter)
    first, second = (asyncio.ensure_future(handler(args(), CALL)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    gate.set()
    assert await second == 2
    assert first.cancelled()


async def test_a_waiting_call_that_is_cancelled_leaves_the_running_one_alone() -> None:
    gate = asyncio.Event()
    counter = Counter(gate=gate)
    handler = wrapped(counter)
    first, second = (asyncio.ensure_future(handler(args(), CALL)) for _ in range(2))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.set()
    assert await first == 1


async def test_only_the_last_calls_are_remembered() -> None:
    counter = Counter()
    handler = wrapped(counter, remembered=2)
    for key in ("1", "2", "3"):
        await handler(args(), Call(key=key))
    assert await handler(args(), Call(key="3")) == 3
    assert await handler(args(), Call(key="1")) == 4
