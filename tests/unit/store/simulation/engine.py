"""A tiny world in virtual time: coroutines, and calls between nodes that are lost, late or repeated.

Much faster than an event loop, since thousands of histories are run. Everything random comes from one
seeded source.
"""

import heapq
import random
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Gate(Generic[T]):
    """A result that somebody waits for; the first one counts."""

    __slots__ = ("_waiters", "done", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: T | None = None
        self._waiters: list[Callable[[], None]] = []

    def open(self, value: T | None = None) -> None:
        if self.done:
            return
        self.done, self.value = True, value
        for waiter in self._waiters:
            waiter()

    def when_open(self, waiter: Callable[[], None]) -> None:
        if self.done:
            waiter()
        else:
            self._waiters.append(waiter)

    def __await__(self) -> Generator["Gate[T]", None, T | None]:
        if not self.done:
            yield self
        return self.value


class Process:
    """What dies together: its coroutines end, without notice, when it is killed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_up = True
        self.life = 0


class World:
    """Time, chance, and a network."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.is_over = False
        self.cut: set[tuple[str, str]] = set()
        """From which node to which nothing gets through; it may the other way."""
        self.loss = 0.0
        self.repeats = 0.0
        self.slowness_s = 0.005
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def cut_links(self, links: Iterable[tuple[str, str]], *, both_ways: bool = True) -> None:
        """Cut these, and mend all others; with one way, only the first of two is not heard."""
        self.cut = set(links)
        if both_ways:
            self.cut |= {(two, one) for one, two in self.cut}

    def at(self, delay_s: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + delay_s, self._count, action))

    def run(self, until: float) -> None:
        """Let time pass until then, or until `is_over`."""
        events = self._events
        while events and events[0][0] <= until and not self.is_over:
            self.now, _, action = heapq.heappop(events)
            action()
        if not self.is_over:
            self.now = until

    def sleep(self, seconds: float) -> Gate[None]:
        gate: Gate[None] = Gate()
        self.at(seconds, gate.open)
        return gate

    def spawn(self, process: Process, work: Coroutine[Any, Any, Any]) -> None:
        life = process.life

        def step() -> None:
            if process.life != life or not process.is_up:
                work.close()
                return
            try:
                gate: Gate[Any] = work.send(None)
            except StopIteration:
                return
            gate.when_open(step)

        step()

    def call(
        self,
        source: Process,
        target: Process,
        handler: Callable[[], Coroutine[Any, Any, T]],
        timeout_s: float = 0.5,
    ) -> Gate[T]:
        """What `handler` answers at the target, or None: then it may have been carried out, or may be yet."""
        answer: Gate[T] = Gate()

        async def carry_out() -> None:
            result = await handler()
            self._send(target, source, lambda: answer.open(result))

        def arrive() -> None:
            if target.is_up:
                self.spawn(target, carry_out())

        self._send(source, target, arrive)
        if source is not target and self.random.random() < self.repeats:
            self._send(source, target, arrive)
        self.at(timeout_s, answer.open)
        return answer

    def _send(self, source: Process, target: Process, arrive: Callable[[], None]) -> None:
        if source is target:
            self.at(0.0, arrive)
            return
        way = source.name, target.name
        if way in self.cut or self.random.random() < self.loss:
            return
        delay = self.random.random() * self.slowness_s
        if self.random.random() < self.repeats:  # where there are odd messages, some are very late
            delay += self.random.random() * 2
        self.at(delay, lambda: arrive() if way not in self.cut else None)
