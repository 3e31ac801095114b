"""Opcodes that show what the job queue does with what they say, give back and submit."""

from collections.abc import Sequence

from ganeti.base.errors import ExecError, InputError
from ganeti.jobs.executor import Outcome
from ganeti.model.opcodes import OpCode, parse_opcode
from ganeti.model.opcodes.test import OpTestDummy, OpTestJqueue, OpTestOsParams
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext

JOBS_LIMIT = 100
TEST_KIND = "jqueue-test"
"""Of lines in the log that programs read."""

Jobs = Sequence[Sequence[OpCode]]


class LUTestDummy(LogicalUnit[OpTestDummy, Jobs]):
    """Do as one is told: messages, jobs, an error or a result."""

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
    """Say how far the opcode is, then what is to be said, or fail."""

    async def check_prereq(self, ctx: UnitContext) -> None:
        if self.op.notify_waitlock:
            ctx.run.log("waitlock", TEST_KIND)

    async def execute(self, ctx: UnitContext, plan: None) -> Outcome:
        if self.op.notify_exec:
            ctx.run.log("exec", TEST_KIND)
        for message in self.op.log_messages:
            ctx.log(message)
        if self.op.fail:
            raise ExecError("asked to fail")
        return Outcome(True)


class LUTestOsParams(LogicalUnit[OpTestOsParams, None]):
    """Tell which secrets have arrived, and not what they are (G23)."""

    async def check_prereq(self, ctx: UnitContext) -> None:
        if not self.op.osparams_secret:
            raise InputError("give at least one", "osparams_secret")

    async def execute(self, ctx: UnitContext, plan: None) -> Outcome:
        return Outcome({name: len(value) for name, value in self.op.osparams_secret.items()})
