"""Listening for the one expected caller, which shows the right certificate and sends the right greeting.

Any host can connect and stay silent. So all callers are heard beside each other, and the expected one gets through at
once. If there are too many silent callers, the one that has been silent for longest is hung up on.

The port is open before the program that hears callers has begun, so both ends can start at the same time.
"""

import contextlib
import os
import selectors
import socket
import ssl
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ganeti.base.errors import GanetiError
from ganeti.base.terminal import say
from ganeti.node.carrier.greeting import longer

SAY_S = 10.0
"""How long a caller may take until it has shown its certificate and said what it wants."""
CALLERS = 16
"""So many are heard at once."""

Said = TypeVar("Said")
Steps = Generator[int, None, Said]
"""Yields what must be possible before it goes on: selectors.EVENT_READ or EVENT_WRITE."""


@dataclass(frozen=True)
class Expected(Generic[Said]):
    """The caller that is meant."""

    context: ssl.SSLContext
    check: Callable[[ssl.SSLSocket], None]
    """HostError if its certificate is another one."""
    greet: Callable[[bytes], Said]
    """What its first words mean; GanetiError or ValueError if they mean something else."""
    length: int = 0
    """How long its first words are; 0: a line."""


def standard_input() -> socket.socket:
    """The port that was opened for this program."""
    return socket.socket(fileno=os.dup(sys.stdin.fileno()))


def listen(
    listener: socket.socket, expected: Expected[Said], *, wait_s: float
) -> tuple[ssl.SSLSocket, Said] | None:
    """The connection that is meant, which does not block, and what it said; None if it does not come in time.

    Nobody is accepted any more afterwards, whoever else has the socket.
    """
    end = time.monotonic() + wait_s
    with listener, contextlib.closing(_Callers(listener, expected)) as callers:
        try:
            while (left := end - time.monotonic()) > 0:
                if (found := callers.next(left)) is not None:
                    return found
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    return None


@dataclass(eq=False)
class _Caller(Generic[Said]):
    stream: ssl.SSLSocket
    steps: Steps[Said]
    silent_at: float
    """When it is hung up on, by the monotonic clock."""


class _Callers(Generic[Said]):
    def __init__(self, listener: socket.socket, expected: Expected[Said]) -> None:
        self._listener, self._expected = listener, expected
        self._callers: list[_Caller[Said]] = []
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def next(self, left: float) -> tuple[ssl.SSLSocket, Said] | None:
        """Let all who can go on; the one that has said all."""
        now = time.monotonic()
        ends = [caller.silent_at - now for caller in self._callers]
        for key, _ in self._selector.select(max(0.0, min([left, *ends]))):
            caller: _Caller[Said] | None = key.data
            if caller is None:
                self._take()
            elif caller in self._callers and (said := self._go_on(caller)):
                return caller.stream, said[0]
        for caller in [one for one in self._callers if one.silent_at <= time.monotonic()]:
            self._hang_up(caller, "it says nothing")
        return None

    def close(self) -> None:
        for caller in list(self._callers):
            self._hang_up(caller, "another one is the one that is meant, or the time is over")
        self._selector.close()

    def _take(self) -> None:
        try:
            plain, _ = self._listener.accept()
        except OSError:  # it has gone already
            return
        try:
            plain.setblocking(False)
            stream = self._expected.context.wrap_socket(
                plain,
                server_side=True,
                do_handshake_on_connect=False,
                # Who sends no lines says by the end of TLS that all was sent.
                suppress_ragged_eofs=not self._expected.length,
            )
        except OSError as err:
            plain.close()
            say(f"hung up on a caller: {err}", file=sys.stderr)
            return
        if len(self._callers) >= CALLERS:
            self._hang_up(self._callers[0], "others wait")
        caller = _Caller(stream, _introduced(stream, self._expected), time.monotonic() + SAY_S)
        self._callers.append(caller)
        self._selector.register(stream, selectors.EVENT_READ, caller)

    def _go_on(self, caller: _Caller[Said]) -> tuple[Said] | None:
        try:
            events = next(caller.steps)
        except StopIteration as ended:
            self._forget(caller)
            return (ended.value,)
        except (GanetiError, OSError, ValueError) as err:
            self._hang_up(caller, str(err))
            return None
        self._selector.modify(caller.stream, events, caller)
        return None

    def _hang_up(self, caller: _Caller[Said], why: str) -> None:
        say(f"hung up on a caller: {why}", file=sys.stderr)
        self._forget(caller)
        caller.stream.close()

    def _forget(self, caller: _Caller[Said]) -> None:
        self._callers.remove(caller)
        self._selector.unregister(caller.stream)
        caller.steps.close()


def _introduced(stream: ssl.SSLSocket, expected: Expected[Said]) -> Steps[Said]:
    yield from _patiently(stream.do_handshake)
    expected.check(stream)
    said, length = b"", expected.length
    while len(said) < length if length else not said.endswith(b"\n"):
        said = longer(said, (yield from _patiently(lambda: stream.recv(1))))
    return expected.greet(said)


_Done = TypeVar("_Done")


def _patiently(act: Callable[[], _Done]) -> Steps[_Done]:
    """Do it, once that is possible without waiting."""
    while True:
        try:
            return act()
        except ssl.SSLWantReadError:
            yield selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            yield selectors.EVENT_WRITE
