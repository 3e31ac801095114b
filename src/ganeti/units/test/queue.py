"""Opcodes that test the job queue: their messages, results and submitted jobs."""

import asyncio
import tempfile
from collections.abc import Callable, Sequence

from ganeti.base.errors import ErrorCode, ExecError, GanetiError, InputError, PrereqError
from ganeti.jobs.executor import OpRun, Outcome
from ganeti.model.opcode_table import parse_opcode
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.test import OpTestDummy, OpTestJqueue, OpTestOsParams
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext

JOBS_LIMIT = 100
TEST_KIND = "jqueue-test"
"""Prefixes of log lines that programs read: a socket, the test, and its argument."""
MESSAGE_PREFIX = "TESTMSG="
CONNECT_S, LOOK_S = 20.0, 60.0

Jobs = Sequence[Sequence[OpCode]]


class LUTestDummy(LogicalUnit[OpTestDummy, Jobs]):
    """Do as the opcode requests: messages, jobs, an error or a result."""

    def _jobs(self) -> Jobs:
        given = self.op.submit_jobs or []
        if len(given) > JOBS_LIMIT:
            raise InputError(f"at most {JOBS_LIMIT} are possible", "submit_jobs")
        return [
            [
                parse_opcode(op, what=f"submit_jobs[{number}][{index}]")
                for index, op in enumerate(job)
            ]
            for number, job in enumerate(given)
        ]

    def check_arguments(self) -> None:
        self._jobs()

    async def check_prereq(self, ctx: UnitContext) -> Jobs:
        return self._jobs()

    async def execute(self, ctx: UnitContext, plan: Jobs) -> Outcome:
        messages = self.op.messages or []
        for message in [messages] if isinstance(messages, str) else messages:
            ctx.log(message)
        if self.op.fail:
            raise ExecError(self.op.fail if isinstance(self.op.fail, str) else "asked to fail")
        if plan:
            return Outcome({"result": self.op.result}, jobs=plan)
        return Outcome(self.op.result)


class LUTestJqueue(LogicalUnit[OpTestJqueue, None]):
    """Report the opcode's progress to a program, and wait until it has read it; log messages, or fail."""

    async def before_locks(self, run: OpRun) -> None:
        if self.op.notify_waitlock:
            await _notify(run, "expandnames", None, _not_begun)

    async def check_prereq(self, ctx: UnitContext) -> None:
        """Check nothing."""

    async def execute(self, ctx: UnitContext, plan: None) -> Outcome:
        op = self.op
        if op.notify_exec:
            await _notify(ctx.run, "exec", None, ExecError)
        is_told = op.notify_exec or op.notify_waitlock
        if op.log_messages and is_told:
            await _notify(ctx.run, "startmsg", len(op.log_messages), ExecError)
        for number, message in enumerate(op.log_messages, 1):
            ctx.log(f"{MESSAGE_PREFIX}{message}")
            if is_told:
                await _notify(ctx.run, "logmsg", number, ExecError)
        if op.fail:
            raise ExecError("asked to fail")
        return Outcome(True)


def _not_begun(why: str) -> GanetiError:
    return PrereqError(why, ErrorCode.WRONG_STATE)


async def _notify(
    run: OpRun, test: str, arg: int | None, error: Callable[[str], GanetiError]
) -> None:
    """Log the address for a program to connect to, and wait until it has examined the job and closed the connection."""
    connected: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
    connected = asyncio.get_running_loop().create_future()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if connected.done():
            writer.close()
        else:
            connected.set_result((reader, writer))

    with tempfile.TemporaryDirectory(prefix="ganeti-jqueue-") as directory:
        path = f"{directory}/socket"
        server = await asyncio.start_unix_server(take, path)
        try:
            run.log([path, test, arg], TEST_KIND)
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await connected
        except TimeoutError:
            raise error(f"no program has connected to {path} within {CONNECT_S:g} s") from None
        finally:
            server.close()
    try:
        async with asyncio.timeout(LOOK_S):
            await reader.read(1)
    except (TimeoutError, OSError) as err:
        raise error(f"the program that looks at the job does not hang up: {err}") from err
    finally:
        writer.close()


class LUTestOsParams(LogicalUnit[OpTestOsParams, None]):
    """Report which secrets have arrived, without their values (G23)."""

    async def check_prereq(self, ctx: UnitContext) -> None:
        if not self.op.osparams_secret:
            raise InputError("must name at least one", "osparams_secret")

    async def execute(self, ctx: UnitContext, plan: None) -> Outcome:
        return Outcome({name: len(value) for name, value in self.op.osparams_secret.items()})
