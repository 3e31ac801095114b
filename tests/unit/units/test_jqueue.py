"""The opcode that lets a program look at its job while it waits and while it runs."""

import asyncio
from typing import Any, cast

import pytest

from ganeti.base.errors import ExecError
from ganeti.model.opcodes.test import OpTestJqueue
from ganeti.units.context import UnitContext
from ganeti.units.test import queue
from ganeti.units.test.queue import LUTestJqueue

pytestmark = pytest.mark.requirement("S192")


class Client:
    """Connects wherever the log says, and hangs up after it has looked."""

    def __init__(self) -> None:
        self.run = self
        self.told: list[Any] = []
        self.looking: set[asyncio.Task[None]] = set()
        self.is_there = True

    def log(self, message: Any, kind: str = "message") -> None:
        self.told.append(message if kind == "message" else message[1:])
        if kind == queue.TEST_KIND and self.is_there:
            task = asyncio.create_task(self._look(message[0]))
            self.looking.add(task)
            task.add_done_callback(self.looking.discard)

    async def _look(self, path: str) -> None:
        _reader, writer = await asyncio.open_unix_connection(path)
        await asyncio.sleep(0)
        writer.close()


async def test_a_program_is_told_of_each_step_and_the_opcode_waits_for_it() -> None:
    client = Client()
    unit = LUTestJqueue(
        OpTestJqueue(notify_waitlock=True, notify_exec=True, log_messages=["a", "b"])
    )
    await unit.before_locks(cast("Any", client))
    outcome = await unit.execute(cast("UnitContext", client), None)
    assert outcome.result is True
    assert client.told == [
        ["expandnames", None],
        ["exec", None],
        ["startmsg", 2],
        "TESTMSG=a",
        ["logmsg", 1],
        "TESTMSG=b",
        ["logmsg", 2],
    ]


async def test_without_a_program_the_opcode_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "CONNECT_S", 0.01)
    client = Client()
    client.is_there = False
    with pytest.raises(ExecError, match="no program has connected"):
        await LUTestJqueue(OpTestJqueue(notify_exec=True)).execute(
            cast("UnitContext", client), None
        )
