"""A client of QEMU's guest agent, a program of the guest: its answers are not trusted.

A query opens the channel, synchronises both ends, asks, and closes the channel. Each query has a deadline and a
limit for the size of the answer, whatever the guest does (A64). Text from the guest is limited here, and escaped
where it is printed.
"""

import asyncio
import contextlib
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ganeti.base.errors import HypervisorError
from ganeti.rpc.procedures.agent import AgentInfo, AgentInterface

T = TypeVar("T")

ANSWER_S = 5.0
FREEZE_S = 30.0
"""A guest writes its cached data before its file systems freeze."""
ANSWER_LIMIT = 1024 * 1024
"""The limit of bytes for one query."""
MOST_LINES = 1000
MOST, LONGEST = 64, 256
"""Limits of interfaces, of addresses of each, and of characters of one text."""
_SYNC = b"\xff"


class AgentSilent(HypervisorError):
    """No agent, or no valid answer within the limits of time and size."""


class AgentRefused(HypervisorError):
    """The agent answered with an error."""


class _Address(msgspec.Struct):
    address: str = msgspec.field(name="ip-address", default="")
    prefix: int = 0


class _Interface(msgspec.Struct):
    name: str = ""
    mac: str = msgspec.field(name="hardware-address", default="")
    addresses: list[_Address] = msgspec.field(name="ip-addresses", default_factory=list)


class _System(msgspec.Struct):
    pretty: str = msgspec.field(name="pretty-name", default="")
    name: str = ""
    kernel: str = msgspec.field(name="kernel-release", default="")


class _HostName(msgspec.Struct):
    name: str = msgspec.field(name="host-name", default="")


class GuestAgent:
    """The agent behind one socket; queries are sent one after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = asyncio.Lock()

    async def info(self) -> AgentInfo:
        """Return the guest's report about itself; unknown values stay empty. AgentSilent."""
        interfaces = await self._known("guest-network-get-interfaces", list[_Interface], [])
        system = await self._known("guest-get-osinfo", _System, _System())
        host = await self._known("guest-get-host-name", _HostName, _HostName())
        return AgentInfo(
            host_name=_cut(host.name),
            os=_cut(system.pretty or system.name),
            kernel=_cut(system.kernel),
            interfaces=[_interface(one) for one in interfaces[:MOST]],
        )

    async def ping(self) -> None:
        """Return if the agent answers. AgentSilent."""
        await self._ask("guest-ping")

    async def shutdown(self) -> None:
        """Request a shutdown; an agent that obeys does not answer."""
        with contextlib.suppress(AgentSilent):
            await self._ask("guest-shutdown", {"mode": "powerdown"})

    async def set_time(self, seconds: float) -> None:
        """Set the guest's clock, in seconds since the epoch. AgentSilent, AgentRefused."""
        await self._ask("guest-set-time", {"time": round(seconds * 1e9)})

    async def freeze(self) -> int:
        """Freeze all file systems in a consistent state; return how many. Idempotent."""
        if await self._frozen():
            return 0
        return _count(await self._ask("guest-fsfreeze-freeze", timeout_s=FREEZE_S))

    async def thaw(self) -> int:
        """Thaw them; return how many. Idempotent."""
        return _count(await self._ask("guest-fsfreeze-thaw", timeout_s=FREEZE_S))

    async def _frozen(self) -> bool:
        return bool(await self._ask("guest-fsfreeze-status") == "frozen")

    async def _known(self, command: str, kind: type[T], otherwise: T) -> T:
        try:
            return msgspec.convert(await self._ask(command), kind)
        except AgentRefused:
            return otherwise
        except (msgspec.ValidationError, RecursionError) as err:
            raise AgentSilent(f"the guest's agent sent an invalid answer to {command}") from err

    async def _ask(
        self,
        command: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = 0,
    ) -> Any:
        """Return the `return` value of one command."""
        timeout_s = timeout_s or ANSWER_S
        question = {"execute": command, **({"arguments": arguments} if arguments else {})}
        try:
            async with asyncio.timeout(timeout_s), self._turn:
                answer = await self._conversation(question)
        except TimeoutError as err:
            raise AgentSilent(
                f"the guest's agent did not answer {command} within {timeout_s:g} s"
            ) from err
        except (OSError, EOFError, ValueError, RecursionError) as err:
            raise AgentSilent(f"the guest's agent cannot be reached for {command}: {err}") from err
        if "error" in answer:
            error = answer["error"]
            said = error.get("desc") if isinstance(error, dict) else error
            raise AgentRefused(f"the guest's agent refused {command}: {_cut(str(said))}")
        return answer.get("return")

    async def _conversation(self, question: Mapping[str, Any]) -> dict[str, Any]:
        reader, writer = await asyncio.open_unix_connection(self._path, limit=ANSWER_LIMIT)
        try:
            lines = _Lines(reader)
            token = secrets.randbits(31)
            # The mark ends an incomplete query of an earlier client.
            await _say(writer, {"execute": "guest-sync-delimited", "arguments": {"id": token}})
            while (await lines.answer()).get("return") != token:
                pass  # an answer to an earlier client
            await _say(writer, question)
            return await lines.answer()
        finally:
            writer.close()


class _Lines:
    """The answers of one conversation, as long as their total is below the limit."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader, self._left, self._lines = reader, ANSWER_LIMIT, MOST_LINES

    async def answer(self) -> dict[str, Any]:
        """Return the next object; other input is skipped."""
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as err:
                raise ValueError(f"the answer has more than {ANSWER_LIMIT} bytes") from err
            self._left, self._lines = self._left - len(line), self._lines - 1
            if self._left < 0 or self._lines < 0:
                raise ValueError(
                    f"the answer has more than {ANSWER_LIMIT} bytes or {MOST_LINES} lines"
                )
            with contextlib.suppress(ValueError):
                found = json.loads(line.rpartition(_SYNC)[2])
                if isinstance(found, dict):
                    return found
            await asyncio.sleep(0)  # let other tasks run during a flood


async def _say(writer: asyncio.StreamWriter, what: Mapping[str, Any]) -> None:
    writer.write(_SYNC + json.dumps(what).encode() + b"\n")
    await writer.drain()


def _interface(one: _Interface) -> AgentInterface:
    found = [f"{_cut(ip.address)}/{ip.prefix}" for ip in one.addresses[:MOST] if ip.address]
    return AgentInterface(name=_cut(one.name), mac=_cut(one.mac), addresses=found)


def _cut(text: str) -> str:
    return text[:LONGEST]


def _count(answer: Any) -> int:
    return answer if type(answer) is int else 0
