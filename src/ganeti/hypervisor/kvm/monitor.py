"""QEMU's monitor (QMP): one command, one answer, each within a deadline.

QEMU serves one client at a time on a socket, so every command opens the connection, asks and closes it, which takes
3 ms. Only the commands of a `conversation`, which follow one another at once, share a connection. No connection is
kept beyond it: nothing is lost when this daemon dies, and no command waits behind a long one.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

from qemu.qmp import ExecuteError, Message, QMPClient, QMPError

from ganeti.base.errors import HypervisorError

ANSWER_S = 20.0
"""The time for one answer of QEMU; its main loop never waits."""
ANSWER_LIMIT = 4 << 20
"""Bytes; the longest answers, lists of options, are far below."""

logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)


class MonitorGone(HypervisorError):
    """No process listens, or the connection ended: QEMU has ended, or is about to end."""


class MonitorSilent(HypervisorError):
    """QEMU accepted the connection, or nearly so, but did not answer in time."""


class CommandRefused(HypervisorError):
    """QEMU answered with an error."""


class Ask(Protocol):
    """Sends commands to one monitor; raises MonitorGone, MonitorSilent or CommandRefused."""

    async def __call__(
        self,
        command: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = ANSWER_S,
    ) -> Any: ...


class Conversing(Ask, Protocol):
    """Sends commands, also several over one connection."""

    def conversation(self) -> AbstractAsyncContextManager[None]:
        """Return a block whose commands share one connection; it must not wait for anything else."""
        ...


class Talk(Conversing, Protocol):
    """Sends commands, and passes open files."""

    async def with_files(
        self, files: Sequence[int], commands: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> None:
        """Send commands in one conversation; the first ones get a descriptor each, which stays open here."""
        ...


class _Client(QMPClient):
    """A client that a compromised QEMU cannot fill or keep busy (A64)."""

    def __init__(self) -> None:
        super().__init__(readbuflen=ANSWER_LIMIT)

    async def _do_recv(self) -> Message:
        """Read one answer; in a flood of events, other tasks run in between.

        The library treats whatever comes first as the answer to its greeting, but QEMU may report in between that the
        guest was reset.
        """
        while True:
            await asyncio.sleep(0)
            try:
                message = await super()._do_recv()
            except ValueError as err:
                raise EOFError(f"QEMU sent more than {ANSWER_LIMIT} bytes at once") from err
            if "event" not in message:
                return message


class Monitor:
    """The monitor of one QEMU process; commands are sent one after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = asyncio.Lock()
        self._conversations = 0
        self._kept: _Client | None = None

    async def __call__(
        self,
        command: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = ANSWER_S,
    ) -> Any:
        """Return the `return` value of one QMP command."""
        async with self._talking(command, timeout_s) as client:
            return await client.execute(command, dict(arguments) if arguments else None)

    async def with_files(
        self, files: Sequence[int], commands: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> None:
        """QEMU closes an unused file at the end of a connection, so all commands share one connection."""
        said = " and ".join(dict.fromkeys(name for name, _ in commands))
        async with self._talking(said, ANSWER_S) as client:
            for number, (name, arguments) in enumerate(commands):
                if number < len(files):
                    client.send_fd_scm(files[number])
                try:
                    await client.execute(name, dict(arguments))
                except ExecuteError as err:
                    raise CommandRefused(f"QEMU refused {name}: {err}") from err

    @contextlib.asynccontextmanager
    async def _talking(self, what: str, timeout_s: float) -> AsyncIterator[QMPClient]:
        """A conversation of our own, with the errors of `Ask`."""
        try:
            async with asyncio.timeout(timeout_s), self._turn, self._connected() as client:
                yield client
        except TimeoutError as err:
            raise MonitorSilent(f"QEMU did not answer {what} within {timeout_s:g} s") from err
        except ExecuteError as err:
            raise CommandRefused(f"QEMU refused {what}: {err}") from err
        except (QMPError, OSError, EOFError) as err:
            why = (err.strerror if isinstance(err, OSError) else None) or str(err)
            raise MonitorGone(
                f"QEMU's monitor is closed (asked for {what}: {why}): its process has ended, or is about to end;"
                " start the guest again with gnt-instance startup"
            ) from err

    @contextlib.asynccontextmanager
    async def conversation(self) -> AsyncIterator[None]:
        """Keep the connection for the commands of the block; those of other tasks use it, too."""
        self._conversations += 1
        try:
            yield
        finally:
            self._conversations -= 1
            if not self._conversations:
                async with self._turn:
                    client, self._kept = self._kept, None
                    if client is not None:
                        await _closed(client)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[QMPClient]:
        client, self._kept = self._kept, None
        answered = False
        try:
            if client is None:
                client = _Client()
                await client.connect(str(self._path))
            try:
                yield client
            except ExecuteError:
                answered = True
                raise
            answered = True
        finally:
            if answered and self._conversations:
                self._kept = client
            elif client is not None:
                await _closed(client)


async def _closed(client: QMPClient) -> None:
    with contextlib.suppress(QMPError, OSError, EOFError):
        await client.disconnect()
