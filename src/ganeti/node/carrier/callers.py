"""Waits for the one expected caller, identified by its certificate and its greeting.

Any host can connect and stay silent. So all callers are read concurrently, and the expected one is
accepted at once. If there are too many silent callers, the longest silent one is disconnected.

The port is open before the program that reads the callers has started, so both ends can start at
the same time.
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
"""Time limit for a caller's certificate and greeting."""
CALLERS = 16
"""Maximum number of concurrent callers."""

Said = TypeVar("Said")
Steps = Generator[int, None, Said]
"""Yields the event that it waits for: selectors.EVENT_READ or EVENT_WRITE."""


@dataclass(frozen=True)
class Expected(Generic[Said]):
    """The expected caller."""

    context: ssl.SSLContext
    check: Callable[[ssl.SSLSocket], None]
    """Raises HostError for another certificate."""
    greet: Callable[[bytes], Said]
    """Returns the meaning of the greeting; GanetiError or ValueError for a wrong one."""
    length: int = 0
    """The length of the greeting; 0: a line."""


def standard_input() -> socket.socket:
    """The port that was opened for this program."""
    return socket.socket(fileno=os.dup(sys.stdin.fileno()))


def listen(
    listener: socket.socket, expected: Expected[Said], *, wait_s: float
) -> tuple[ssl.SSLSocket, Said] | None:
    """Return the expected connection, non-blocking, and its greeting; None if it does not arrive in time.

    Afterwards no caller is accepted, whichever process has the socket.
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
    """Time of its disconnection, by the monotonic clock."""


class _Callers(Generic[Said]):
    def __init__(self, listener: socket.socket, expected: Expected[Said]) -> None:
        self._listener, self._expected = listener, expected
        self._callers: list[_Caller[Said]] = []
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def next(self, left: float) -> tuple[ssl.SSLSocket, Said] | None:
        """Advance all callers that can continue; return the accepted one."""
        now = time.monotonic()
        ends = [caller.silent_at - now for caller in self._callers]
        for key, _ in self._selector.select(max(0.0, min([left, *ends]))):
            caller: _Caller[Said] | None = key.data
            if caller is None:
                self._take()
            elif caller in self._callers and (said := self._go_on(caller)):
                return caller.stream, said[0]
        for caller in [one for one in self._callers if one.silent_at <= time.monotonic()]:
            self._hang_up(caller, "it sends nothing")
        return None

    def close(self) -> None:
        for caller in list(self._callers):
            self._hang_up(caller, "another caller was accepted, or the time is over")
        self._selector.close()

    def _take(self) -> None:
        try:
            plain, _ = self._listener.accept()
        except OSError:  # it has disconnected already
            return
        try:
            plain.setblocking(False)
            stream = self._expected.context.wrap_socket(
                plain,
                server_side=True,
                do_handshake_on_connect=False,
                # A caller that sends no lines ends TLS to show that it has sent everything.
                suppress_ragged_eofs=not self._expected.length,
            )
        except OSError as err:
            plain.close()
            say(f"disconnected a caller: {err}", file=sys.stderr)
            return
        if len(self._callers) >= CALLERS:
            self._hang_up(self._callers[0], "other callers wait")
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
        say(f"disconnected a caller: {why}", file=sys.stderr)
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
    """Run an operation once it is possible without waiting."""
    while True:
        try:
            return act()
        except ssl.SSLWantReadError:
            yield selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            yield selectors.EVENT_WRITE
