"""A master for commands: a thread that answers LUXI requests from a table."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ganeti.base.errors import GanetiError
from ganeti.protocols.luxi import (
    Answer,
    MessageBuffer,
    refusal,
)
from ganeti.protocols.luxi_requests import encode_answer, parse_request

Reply = Any
"""A result, an error to raise, or a function of the arguments that gives either."""


def rows_of(*objects: dict[str, Any]) -> Reply:
    """A query's answer: the fields of each object that are asked for, None where it has not."""
    return lambda _names, fields, *_more: [[one.get(name) for name in fields] for one in objects]


class FakeMaster:
    """Answers by method; each request is recorded. A list of replies is used up one by one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.replies: dict[str, Reply] = {}
        self.requests: list[tuple[str, list[Any]]] = []
        self.is_degraded = False
        self.raw: bytes | None = None
        """Sent in place of any answer; empty hangs up."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(8)
        self._conversations: list[tuple[threading.Thread, socket.socket]] = []
        self._thread = threading.Thread(target=self._serve, name="fake-master")
        self._thread.start()

    def methods(self) -> list[str]:
        return [method for method, _args in self.requests]

    def args_of(self, method: str) -> list[Any]:
        """The arguments of the only request of a method."""
        [args] = [given for name, given in self.requests if name == method]
        return args

    def job(self, *log: str, result: Any = None, status: str = "success", job_id: int = 7) -> None:
        """Accept a job that says `log` and ends with `result`."""
        entries: list[list[Any]] = [
            [number, [1_700_000_000 + number, 0], "message", text]
            for number, text in enumerate(log, start=1)
        ]
        self.replies["SubmitJob"] = job_id
        self.replies["SubmitManyJobs"] = lambda jobs, _key=None: [
            [True, job_id + number] for number in range(len(jobs))
        ]
        self.replies["WaitForJobChange"] = lambda _id, _fields, _info, serial, _timeout: [
            [status],
            [entry for entry in entries if entry[0] > (serial or 0)],
        ]
        self.replies["QueryJobs"] = [[status, [status], [result]]] if status else None

    def close(self) -> None:
        # A connection of our own wakes `accept`.
        self._stop = True
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
            knock.connect(str(self.path))
        self._thread.join()
        for conversation, connection in self._conversations:
            with contextlib.suppress(OSError):  # a client may not have closed its end yet
                connection.shutdown(socket.SHUT_RDWR)
            conversation.join()
        self._listener.close()

    _stop = False

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self._stop:
                connection.close()
                return
            conversation = threading.Thread(target=self._converse_to_end, args=(connection,))
            self._conversations.append((conversation, connection))
            conversation.start()

    def _converse_to_end(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self._converse(connection)

    def _converse(self, connection: socket.socket) -> None:
        buffer = MessageBuffer()
        while data := connection.recv(65536):
            for message in buffer.feed(data):
                request = parse_request(message)
                self.requests.append((request.method, request.args))
                if self.raw is not None:
                    connection.sendall(self.raw)
                    return
                connection.sendall(encode_answer(self._answer(request.method, request.args)))

    def _answer(self, method: str, args: list[Any]) -> Answer:
        if method not in self.replies:
            return Answer(False, f"Failed to parse request: the fake has no {method}")
        reply = self.replies[method]
        if callable(reply):
            reply = reply(*args)
        if isinstance(reply, GanetiError):
            return refusal(reply)
        return Answer(True, reply, degraded=self.is_degraded)


@contextlib.contextmanager
def running_master(path: Path) -> Iterator[FakeMaster]:
    master = FakeMaster(path)
    try:
        yield master
    finally:
        master.close()


def captured(text: str) -> tuple[Any, str]:
    """A capture of the original: the result of the last answer, and the output of the command."""
    lines = text.splitlines()
    answers = [line for line in lines if line.startswith("1< ")]
    found = json.loads(answers[-1].removeprefix("1< "))["result"]
    shown = [line.removeprefix("# ") for line in lines if line.startswith("# ")]
    return found, "\n".join(shown) + "\n"


Run = Callable[..., tuple[int, str, str]]
"""Runs a command line of a program: exit code, standard output, standard error."""
