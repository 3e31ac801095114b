"""Node daemons over real QEMU processes that are killed (SIGKILL) before and after their questions."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.hypervisor.kvm.monitor import ANSWER_S, Monitor
from ganeti.hypervisor.kvm.runtime import GuestFiles
from tests.support.kvm_nodes import Node

T = TypeVar("T")
Act = Callable[[Node], Awaitable[object]]


@dataclass(frozen=True)
class Kill:
    """When the daemon dies: at the first question of this name, or at this number, before or after it."""

    question: str | int
    is_done: bool


def each(*questions: str) -> list[Kill]:
    return [Kill(question, is_done) for question in questions for is_done in (False, True)]


def numbered() -> Iterator[Kill]:
    for number in range(1, 80):
        yield from (Kill(number, False), Kill(number, True))


class DyingMonitor(Monitor):
    """A monitor whose process ends at a question, once it is to."""

    kill: Kill | None = None
    asked = 0
    """Both for all monitors of a process."""

    async def __call__(
        self,
        command: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = ANSWER_S,
    ) -> Any:
        return await self._ends_with(
            command,
            lambda: super(DyingMonitor, self).__call__(command, arguments, timeout_s=timeout_s),
        )

    async def with_files(
        self, files: Sequence[int], commands: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> None:
        await self._ends_with(
            commands[-1][0], lambda: super(DyingMonitor, self).with_files(files, commands)
        )

    async def _ends_with(self, command: str, ask: Callable[[], Awaitable[T]]) -> T:
        if self.kill is None:
            return await ask()
        DyingMonitor.asked += 1
        is_it = self.kill.question in (command, self.asked)
        if is_it and not self.kill.is_done:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return await ask()
        finally:
            if is_it:
                os.kill(os.getpid(), signal.SIGKILL)


class Daemons:
    """The daemons of one node, one after the other."""

    def __init__(self, root: Path, acceleration: bytes) -> None:
        self.paths = Paths(root)
        self.paths.kvm.mkdir(parents=True)
        (self.paths.kvm / "acceleration").write_bytes(acceleration)
        self.monitor: type[Monitor] = DyingMonitor
        self.node = self._new()

    def renew(self) -> None:
        """Begin another daemon, as after an end of the last one."""
        self.node = self._new()

    def _new(self) -> Node:
        """A daemon that knows only what is on the disk and in QEMU."""
        return Node(self.paths, KvmHypervisor(self.paths, run, monitor=self.monitor))

    def do(self, act: Callable[[Node], Awaitable[T]]) -> T:
        """Act in a daemon that lives."""
        return asyncio.run(self._act(act))

    def killed(self, act: Act, kill: Kill) -> bool:
        """Act in a process that dies at a question, and begin a new one; False if it was not asked."""
        pid = os.fork()
        if not pid:
            try:
                DyingMonitor.kill = kill
                asyncio.run(self._act(act))
            finally:
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        self.renew()
        return os.WIFSIGNALED(status)

    async def _act(self, act: Callable[[Node], Awaitable[T]]) -> T:
        return await act(self.node)

    def end_guests(self) -> None:
        """End whatever still runs."""

        async def end_all(node: Node) -> None:
            for one in await node.driver.running():
                record = GuestFiles.of(node.paths, one.uuid).read()
                assert record is not None
                await node.driver.stop(record.instance, 0)

        self.do(end_all)
