"""The monitor client, against a small server that speaks QMP."""

import asyncio
import contextlib
import json
import os
import socket
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ganeti.hypervisor.kvm.monitor import CommandRefused, Monitor, MonitorGone, MonitorSilent

GREETING = {
    "QMP": {
        "version": {"qemu": {"major": 7, "minor": 2, "micro": 0}, "package": ""},
        "capabilities": [],
    }
}


class Server:
    """Answers `query-status`; `stop` is refused, `hang` gets no answer, `quit` ends the connection."""

    def __init__(self) -> None:
        self.clients = 0
        self.most = 0
        self.served: list[asyncio.Task[None]] = []
        self.before_each_answer = b""
        self.hostile: dict[str, bytes] = {}
        """What is said again and again in place of an answer."""

    async def _never_end(self, writer: asyncio.StreamWriter, words: bytes) -> None:
        with contextlib.suppress(OSError):
            while not writer.is_closing():
                writer.write(words)
                await writer.drain()
                await asyncio.sleep(0)  # the client is in the same loop

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.served.append(task)
        self.clients += 1
        self.most = max(self.most, self.clients)
        try:
            with contextlib.suppress(ConnectionError):  # it had enough of us
                await self._serve(reader, writer)
        finally:
            self.clients -= 1
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps(GREETING).encode() + b"\r\n")
        # Like QEMU, it knows the end of a message by its braces, not by the end of a line.
        while chunk := await reader.read(65536):
            message = json.loads(chunk)
            command = message["execute"]
            answer = {"id": message["id"]} if "id" in message else {}
            if command == "quit":
                return
            if command == "hang":
                continue
            if command in self.hostile:
                await self._never_end(writer, self.hostile[command])
                return
            if command == "stop":
                answer["error"] = {"class": "GenericError", "desc": "not now"}
            else:
                status = {"status": "running"} if command == "query-status" else {}
                answer["return"] = status | message.get("arguments", {})
            writer.write(self.before_each_answer + json.dumps(answer).encode() + b"\r\n")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m"


@pytest_asyncio.fixture
async def server(path: Path) -> AsyncIterator[Server]:
    handler = Server()
    listener = await asyncio.start_unix_server(handler, path)
    yield handler
    listener.close()
    await listener.wait_closed()
    await asyncio.gather(*handler.served)


async def test_a_question_is_answered(path: Path, server: Server) -> None:
    monitor = Monitor(path)
    assert await monitor("query-status") == {"status": "running"}
    assert await monitor("cont", {"a": 1}) == {"a": 1}


async def test_many_questions_take_turns_on_the_one_connection(path: Path, server: Server) -> None:
    monitor = Monitor(path)
    answers = await asyncio.gather(*(monitor("query-status") for _ in range(5)))
    assert answers == [{"status": "running"}] * 5
    assert server.most == 1


async def test_questions_of_a_conversation_share_one_connection(path: Path, server: Server) -> None:
    monitor = Monitor(path)
    async with monitor.conversation():
        await monitor("query-status")
        with pytest.raises(CommandRefused):
            await monitor("stop")
        await asyncio.gather(*(monitor("query-status") for _ in range(3)))
        assert len(server.served) == 1
    await monitor("query-status")
    assert len(server.served) == 2


async def test_conversation_connects_again_after_a_silent_question(
    path: Path, server: Server
) -> None:
    """The late answer to one question must not be taken for that to the next."""
    monitor = Monitor(path)
    async with monitor.conversation():
        with pytest.raises(MonitorSilent):
            await monitor("hang", timeout_s=0.2)
        assert await monitor("query-status") == {"status": "running"}
        with pytest.raises(MonitorGone):
            await monitor("quit")
        assert await monitor("query-status") == {"status": "running"}


async def test_each_way_to_fail_has_its_error(path: Path, server: Server) -> None:
    monitor = Monitor(path)
    with pytest.raises(CommandRefused, match="refused stop: not now"):
        await monitor("stop")
    with pytest.raises(MonitorSilent, match=r"did not answer hang within 0\.2 s"):
        await monitor("hang", timeout_s=0.2)
    with pytest.raises(MonitorGone):
        await monitor("quit")
    with pytest.raises(MonitorGone):
        await Monitor(path.with_name("none"))("query-status")
    assert await monitor("query-status") == {"status": "running"}


EVENT = b'{"event": "RESET", "timestamp": {"seconds": 1, "microseconds": 2}}\r\n'


async def test_what_happens_meanwhile_is_not_taken_for_an_answer(
    path: Path, server: Server
) -> None:
    server.before_each_answer = EVENT * 3
    assert await Monitor(path)("query-status") == {"status": "running"}
    with pytest.raises(CommandRefused, match="refused stop: not now"):
        await Monitor(path)("stop")


@pytest.mark.sampled(1)
@pytest.mark.requirement("A64")
@pytest.mark.parametrize(
    "words",
    [
        b"x" * 65536,  # one endless line
        b'{"return": {"no": \r\n',
        b"[]\r\n" * 1000,
        EVENT * 1000,
        b'{"return": {}, "id": "of nobody"}\r\n' * 1000,
    ],
    ids=["endless", "broken", "no object", "events", "answers to others"],
)
async def test_a_hostile_qemu_takes_neither_memory_nor_time(
    path: Path, server: Server, words: bytes
) -> None:
    server.hostile["query-block"] = words
    loop = asyncio.get_running_loop()
    longest, last = 0.0, loop.time()

    async def watch() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0)
            now = loop.time()
            longest, last = max(longest, now - last), now

    watching = asyncio.create_task(watch())
    tracemalloc.start()
    try:
        with pytest.raises((MonitorGone, MonitorSilent)):
            await Monitor(path)("query-block", timeout_s=0.5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        watching.cancel()
    assert peak < 40 << 20
    assert longest < 1.0
    assert await Monitor(path)("query-status") == {"status": "running"}


class FileServer:
    """Like QEMU, takes a descriptor beside the words, and says what it could read through it."""

    def __init__(self, path: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.read: list[bytes] = []
        self.commands: list[str] = []

    def serve(self) -> None:
        client, _ = self.listener.accept()
        with client:
            client.sendall(json.dumps(GREETING).encode() + b"\r\n")
            while True:
                data, files, _, _ = socket.recv_fds(client, 65536, 1)
                for file in files:
                    self.read.append(os.pread(file, 100, 0))
                    os.close(file)
                if not data:
                    return
                if not data.strip():
                    continue
                message = json.loads(data)
                self.commands.append(message["execute"])
                answer = {"return": {}} | ({"id": message["id"]} if "id" in message else {})
                client.sendall(json.dumps(answer).encode() + b"\r\n")


async def test_a_file_is_handed_over_with_the_commands_that_use_it(
    path: Path, tmp_path: Path
) -> None:
    server = FileServer(path)
    serving = asyncio.create_task(asyncio.to_thread(server.serve))
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"disk {name}")
    with (tmp_path / "one").open("rb") as one, (tmp_path / "two").open("rb") as two:
        files = [one.fileno(), two.fileno()]
        commands = [("add-fd", {"fdset-id": number}) for number in (7, 8)]
        await Monitor(path).with_files(files, [*commands, ("blockdev-add", {"driver": "file"})])
        assert os.fstat(one.fileno()).st_size == 8  # it is still open here
    await serving
    server.listener.close()
    assert server.read == [b"disk one", b"disk two"]
    assert server.commands == ["qmp_capabilities", "add-fd", "add-fd", "blockdev-add"]
