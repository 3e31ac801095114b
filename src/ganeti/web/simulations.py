"""Simulations that users have asked for (`gnt-whatif`): each a process of its own, few at a time, bounded in everything.

They are this server's, and end with it: a simulation changes nothing, so it can be asked for again.
"""

import asyncio
import logging
import secrets
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from ganeti.base.clock import Clock
from ganeti.base.errors import InputError
from ganeti.model import wire
from ganeti.protocols.simulation_requests import Line, Request
from ganeti.web.refusals import Refusal, bad_request, not_found

AT_ONCE = 2
"""Running simulations, at most one of each user."""
KEPT_LIMIT = 20
"""The oldest that has ended gives way."""
LINE_BYTES = 4 * 1024 * 1024
ACCEPTED_S, SLOWEST_S = 60.0, 3600.0
"""Seconds until the request is accepted or refused, and until the report."""
PROGRAM = (sys.executable, "-m", "ganeti.whatif.requested")

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Simulation:
    """One simulation: `running`, `done` or `failed`."""

    user: str
    request: Request
    began: float
    """Seconds since the epoch."""
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    state: str = "running"
    ended: float | None = None
    done: int = 0
    """Number of complete runs."""
    report: str = ""
    html: str = ""
    error: str = ""
    task: "asyncio.Task[None] | None" = field(default=None, repr=False)


class Simulations:
    """The simulations of all users."""

    def __init__(self, clock: Clock, program: Sequence[str] = PROGRAM) -> None:
        self._clock = clock
        self._program = program
        self._known: dict[str, Simulation] = {}

    def of(self, user: str) -> list[Simulation]:
        """Return the simulations of a user, the oldest first."""
        return [one for one in self._known.values() if one.user == user]

    def find(self, user: str, number: str) -> Simulation:
        """Return one simulation of a user; Refusal (404)."""
        found = self._known.get(number)
        if found is None or found.user != user:
            raise not_found(
                f"simulation {number} does not exist for this user; simulations end with the REST server,"
                f" and at most {KEPT_LIMIT} are kept"
            )
        return found

    async def begin(self, user: str, request: Request) -> Simulation:
        """Return a simulation whose request its process has accepted; Refusal (400, 429)."""
        self._check_room(user)
        new = Simulation(user, request, self._clock.time())
        self._known[new.id] = new  # counts from now on
        try:
            process = await self._accepted(request)
        except (TimeoutError, OSError, EOFError, ValueError, InputError) as err:
            del self._known[new.id]
            log.warning("a simulation has not begun: %r", err)
            why = (
                "the process of the simulation has not begun; the log of the REST server tells why"
            )
            raise Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, why) from err
        except BaseException:
            del self._known[new.id]
            raise
        new.task = asyncio.create_task(self._follow(new, process), name=f"simulation {new.id}")
        return new

    async def remove(self, simulation: Simulation) -> None:
        """End a simulation if it runs, and forget it."""
        if simulation.task is not None:
            simulation.task.cancel()
            await asyncio.wait([simulation.task])
        self._known.pop(simulation.id, None)

    async def close(self) -> None:
        """End all simulations."""
        for one in list(self._known.values()):
            await self.remove(one)

    def _check_room(self, user: str) -> None:
        running = [one for one in self._known.values() if one.state == "running"]
        own = next((one for one in running if one.user == user), None)
        if own is not None:
            why = f"simulation {own.id} of this user is running; wait for its end, or remove it"
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, why, {"Retry-After": "10"})
        if len(running) >= AT_ONCE:
            why = f"{AT_ONCE} simulations of other users are running; try again later"
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, why, {"Retry-After": "10"})
        ended = (one for one in self._known.values() if one.state != "running")
        if len(self._known) >= KEPT_LIMIT and (oldest := next(ended, None)) is not None:
            del self._known[oldest.id]

    async def _accepted(self, request: Request) -> asyncio.subprocess.Process:
        """Return a process that has accepted the request; Refusal (400) if it refuses."""
        process = await asyncio.create_subprocess_exec(
            *self._program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES,
        )
        assert process.stdin is not None  # noqa: S101 - it has a pipe
        try:
            process.stdin.write(wire.encode(request) + b"\n")
            async with asyncio.timeout(ACCEPTED_S):
                line = await _line(process)
        except BaseException:
            await _end(process)
            raise
        if line.refused:
            await _end(process)
            raise bad_request(line.refused)
        return process

    async def _follow(self, one: Simulation, process: asyncio.subprocess.Process) -> None:
        try:
            async with asyncio.timeout(SLOWEST_S):
                while not (one.report or one.error):
                    line = await _line(process)
                    one.done = max(one.done, line.done)
                    one.report, one.html, one.error = line.report, line.html, line.failed
        except InputError as err:
            one.error = f"its process has sent something else: {err.message}"
        except TimeoutError:
            one.error = f"has taken {SLOWEST_S / 60:.0f} minutes; simulate less"
        except ValueError:
            one.error = f"its report is larger than {LINE_BYTES // 1024**2} MiB; simulate less"
        except (OSError, EOFError):
            one.error = _why_ended(await process.wait())
        finally:
            one.state = "failed" if one.error else "done"
            one.ended = self._clock.time()
            await _end(process)


async def _line(process: asyncio.subprocess.Process) -> Line:
    """Return the next line; EOFError without one, ValueError if it is too long, InputError if it is no `Line`."""
    assert process.stdout is not None  # noqa: S101 - it has a pipe
    text = await process.stdout.readline()
    if not text.endswith(b"\n"):
        raise EOFError(f"its process ended after {len(text)} bytes of a line")
    return wire.decode(text, Line)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


def _why_ended(status: int) -> str:
    if status == -signal.SIGXCPU:
        return "has used the processor for too long; simulate less, or run 'gnt-whatif' on a host"
    return f"its process ended (status {status}); the log of the REST server may tell why"
