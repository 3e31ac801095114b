"""One thread that runs functions in order, for work that would block the loop."""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from ganeti.base.errors import StoreError

T = TypeVar("T")
P = ParamSpec("P")

_ORPHAN_CHECK_S = 5.0


class Worker:
    """A thread; it ends at `close`, after all earlier calls."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def post(self, task: Callable[[], None]) -> None:
        """Run `task`, which must not raise, after all earlier ones."""
        if self._closed:
            raise StoreError(f"{self._name} is closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=False)
            self._thread.start()
        self._tasks.put(task)

    async def call(self, function: Callable[[], T]) -> T:
        """The result of `function`, run after all earlier ones, even if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def task() -> None:
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001 - every outcome belongs to the caller
                tell(loop, _fail, answer, error)
            else:
                tell(loop, _resolve, answer, result)

        self.post(task)
        return await answer

    async def close(self) -> None:
        """End the thread; may be repeated."""
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is None:
            return
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        self._tasks.put(lambda: tell(loop, _resolve, ended, None))
        self._tasks.put(None)
        try:
            await ended
        finally:
            thread.join()

    def _run(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=_ORPHAN_CHECK_S)
            except queue.Empty:
                # A program that ends without closing its store must not hang for ever.
                if not threading.main_thread().is_alive():
                    return
                continue
            if task is None:
                return
            task()
            del task  # its closure may hold much memory until the next one comes


class WorkerExecutor(ThreadPoolExecutor):
    """Lets `asyncio.to_thread` and its like use a worker, in place of many threads of their own.

    The loop takes nothing else than a ThreadPoolExecutor; this one never starts a thread.
    """

    def __init__(self, worker: Worker) -> None:
        super().__init__(1)
        self._worker = worker

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function after all that was given to the worker before; StoreError if that is closed."""
        answer: Future[T] = Future()

        def task() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - every outcome belongs to the caller
                answer.set_exception(error)
            else:
                answer.set_result(result)

        self._worker.post(task)
        return answer


def tell(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: object) -> None:
    """Call a function on the loop from a thread; does nothing if the loop is closed."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise


def _resolve(answer: "asyncio.Future[T]", result: T) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: "asyncio.Future[T]", error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
