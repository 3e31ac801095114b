"""One thread: in order, every outcome told, and gone after close."""

import asyncio
import subprocess
import sys
import threading
from functools import partial

import pytest

from ganeti.base.errors import StoreError
from ganeti.store.worker import Worker, WorkerExecutor


async def test_calls_run_in_order_on_one_other_thread() -> None:
    worker = Worker("test")
    ran: list[int] = []
    threads: set[int] = set()

    def note(number: int) -> int:
        ran.append(number)
        threads.add(threading.get_ident())
        return number

    calls = [worker.call(partial(note, number)) for number in range(20)]
    assert await asyncio.gather(*calls) == list(range(20))
    assert ran == list(range(20))
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    await worker.close()


async def test_error_reaches_the_caller_and_the_thread_continues() -> None:
    worker = Worker("test")
    with pytest.raises(ZeroDivisionError):
        await worker.call(lambda: 1 // 0)
    assert await worker.call(lambda: 5) == 5
    await worker.close()


async def test_closing_runs_what_was_given_before_and_nothing_after() -> None:
    worker = Worker("test")
    gate = threading.Event()
    ran: list[str] = []
    worker.post(lambda: ran.append(str(gate.wait(5))))
    worker.post(lambda: ran.append("second"))
    gate.set()
    await worker.close()
    await worker.close()
    assert ran == ["True", "second"]
    with pytest.raises(StoreError, match="test is closed"):
        await worker.call(lambda: None)


async def test_a_cancelled_caller_leaves_the_call_to_its_end() -> None:
    worker = Worker("test")
    gate = threading.Event()
    ended: list[bool] = []
    task = asyncio.create_task(worker.call(lambda: ended.append(gate.wait(5))))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    gate.set()
    await worker.close()
    assert task.cancelled()
    assert ended == [True]


def test_a_program_that_forgets_to_close_still_ends() -> None:
    program = (
        "import asyncio, ganeti.store.worker as w\n"
        "w._ORPHAN_CHECK_S = 0.05\n"
        "asyncio.run(w.Worker('forgotten').call(lambda: None))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=10, check=False)
    assert done.returncode == 0


@pytest.mark.requirement("S202")
async def test_the_loops_executor_may_be_the_workers_one_thread() -> None:
    worker = Worker("test")
    asyncio.get_running_loop().set_default_executor(WorkerExecutor(worker))
    theirs = await asyncio.gather(*(asyncio.to_thread(threading.get_ident) for _ in range(20)))
    assert set(theirs) == {await worker.call(threading.get_ident)}
    assert await asyncio.to_thread(int, "11", base=2) == 3
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(lambda: 1 // 0)
    await worker.close()
    with pytest.raises(StoreError, match="test is closed"):
        await asyncio.to_thread(int)


async def test_what_is_cancelled_before_its_turn_does_not_run() -> None:
    worker = Worker("test")
    executor = WorkerExecutor(worker)
    gate = threading.Event()
    ran: list[str] = []
    first = executor.submit(gate.wait, 5)
    second = executor.submit(ran.append, "second")
    assert second.cancel()
    gate.set()
    assert await asyncio.wrap_future(first)
    await worker.close()
    assert ran == []
