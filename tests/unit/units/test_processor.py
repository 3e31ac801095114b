"""How an opcode is taken through the phases of its unit."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import ExecError
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.job import UndoStep
from ganeti.model.opcodes.instance import OpInstanceRemove, OpInstanceShutdown
from ganeti.model.opcodes.test import OpTestDelay
from ganeti.units import processor
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.registry import UNITS
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import GROUP, NODES, Master, failed, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time


class Probe(LogicalUnit[OpTestDelay, str]):
    """A unit whose phases do what a test says."""

    requests: list[str]
    error: Exception | None = None
    phase = ""
    seen: list[str]

    def _meet(self, phase: str) -> None:
        self.seen.append(phase)
        if self.phase == phase and self.error is not None:
            raise self.error

    def check_arguments(self) -> None:
        self._meet("check_arguments")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        self._meet("declare_locks")
        return [lock(Level.NODE, self.names(snapshot))]

    @staticmethod
    def names(snapshot: Snapshot) -> list[str]:
        return ["one"]

    async def check_prereq(self, ctx: UnitContext) -> str:
        self._meet("check_prereq")
        ctx.config.reservations.take_name(ctx.job_id, "taken")
        return "the plan"

    async def execute(self, ctx: UnitContext, plan: str) -> Outcome:
        self._meet("execute")
        return Outcome(plan)

    def dry_run_result(self, ctx: UnitContext, plan: str) -> Any:
        return f"would do {plan}"


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> type[Probe]:
    class Fresh(Probe):
        seen: list[str] = []  # noqa: RUF012 - one list for one test

    units: dict[Any, Any] = {**UNITS, OpTestDelay: Fresh}
    monkeypatch.setattr(processor, "UNITS", units)
    return Fresh


OP = OpTestDelay(duration=0)


async def test_the_phases_come_in_order(master: Master, probe: type[Probe]) -> None:
    assert succeeded(await master.run(OP)) == "the plan"
    assert probe.seen == [
        "check_arguments",
        "declare_locks",
        "declare_locks",
        "check_prereq",
        "execute",
    ]
    master.check_nothing_is_held()


async def test_a_dry_run_ends_before_the_act(master: Master, probe: type[Probe]) -> None:
    assert succeeded(await master.run(replace(OP, dry_run=True))) == "would do the plan"
    assert "execute" not in probe.seen
    master.check_nothing_is_held()


@pytest.mark.parametrize("phase", ["check_arguments", "declare_locks", "check_prereq", "execute"])
async def test_a_fault_of_the_program_is_an_error_without_its_inside(
    master: Master, probe: type[Probe], phase: str, caplog: pytest.LogCaptureFixture
) -> None:
    probe.phase, probe.error = phase, KeyError("a secret of the inside")
    name, (text,) = failed(await master.run(OP))
    assert name == "OpExecError"
    assert text == "internal error in TEST_DELAY(0) (KeyError); see the log of the master daemon"
    assert "failed unexpectedly" in caplog.text
    assert "a secret of the inside" in caplog.text
    master.check_nothing_is_held()


async def test_locks_are_declared_again_until_they_are_those_that_are_needed(
    master: Master, probe: type[Probe], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the job waited for `one`, the thing that it needs became `two`."""
    declared: list[list[str]] = []
    needed = ["one"]
    held: list[Any] = []

    def names(snapshot: Snapshot) -> list[str]:
        declared.append(list(needed))
        return list(needed)

    async def check_prereq(self: Probe, ctx: UnitContext) -> str:
        held.append(master.locks.owned(ctx.job_id))
        return ""

    monkeypatch.setattr(probe, "names", staticmethod(names))
    monkeypatch.setattr(probe, "check_prereq", check_prereq)
    await master.locks.acquire("somebody", [lock(Level.NODE, "one")])
    job_id = await master.submit(OP)
    await asyncio.sleep(1)
    needed[:] = ["two"]
    master.locks.release("somebody")
    succeeded(await master.final(job_id))
    assert declared == [["one"], ["two"], ["two"], ["two"]]
    assert [set(one[Level.NODE]) for one in held] == [{"two"}]
    master.check_nothing_is_held()


async def test_an_object_that_keeps_changing_is_an_error(
    master: Master, probe: type[Probe], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = iter(range(1000))
    monkeypatch.setattr(probe, "names", staticmethod(lambda snapshot: [str(next(count))]))
    name, (text, code) = failed(await master.run(OP))
    assert (name, code) == ("OpPrereqError", "temp_insufficient_resources")
    assert "kept changing" in text
    assert next(count) == 2 * processor.LOCK_ATTEMPTS


async def test_job_that_waited_for_a_removed_instance_reports_that_it_is_gone(
    master: Master,
) -> None:
    """A job that waits for an instance that is removed meanwhile hears that it is gone."""
    succeeded(await master.run(create()))
    master.locks.add_names(Level.INSTANCE, [NAME])
    await master.locks.acquire("somebody", [lock(Level.INSTANCE, NAME)])
    job_id = await master.submit(OpInstanceShutdown(instance_name=NAME))
    await asyncio.sleep(0.5)  # within its first try, so that it stands in the queue
    instance = master.instance(NAME)
    await master.change(lambda draft: draft.remove(instance))
    master.locks.release("somebody")
    name, (text, code) = failed(await master.final(job_id))
    assert (name, code) == ("OpPrereqError", "unknown_entity")
    assert f"there is no instance {NAME}" in text


async def test_what_was_reserved_is_given_back_after_an_error(
    master: Master, probe: type[Probe]
) -> None:
    probe.phase, probe.error = "execute", ExecError("it broke")
    assert failed(await master.run(OP)) == ("OpExecError", ["it broke"])
    master.check_nothing_is_held()


async def test_operations_on_one_instance_wait_for_each_other(master: Master) -> None:
    succeeded(await master.run(create()))
    jobs = [
        await master.submit(OpInstanceShutdown(instance_name=NAME)),
        await master.submit(OpInstanceRemove(instance_name="web1")),
    ]
    for job_id in jobs:
        succeeded(await master.final(job_id))
    master.check()


# --- undo ---


def disk_step(node: str, path: str = "/shared/x") -> UndoStep:
    disk = {
        "uuid": "u",
        "index": 0,
        "size": 1,
        "template": "sharedfile",
        "logical_id": ["loop", path],
    }
    return UndoStep("remove_disk", {"node": node, "instance": NAME, "disk": disk})


async def test_disks_are_removed_last_first_and_all_are_tried(master: Master) -> None:
    master.world.shared.disks |= {"/shared/x": 1, "/shared/y": 1}
    steps = [
        disk_step(NODES[0], "/shared/x"),
        disk_step(NODES[0], "/shared/z"),
        disk_step(NODES[0], "/shared/y"),
    ]
    master.rpc.fail(2, Fault.REFUSED)
    [(step, _why)] = await master.processor.undo(7, steps)
    assert step == steps[1]
    assert master.world.disks() == set()
    removed = [call.args.disk.logical_id[1] for call in master.rpc.changing_calls]
    assert removed == ["/shared/y", "/shared/z", "/shared/x"]


@pytest.mark.requirement("G1")
async def test_no_disk_is_removed_beneath_what_could_not_be_undone(master: Master) -> None:
    succeeded(await master.run(create()))
    master.world.shared.disks |= {"/shared/x": 1, "/shared/y": 1}
    steps = [
        UndoStep("forget_instance", {"instance": master.instance(NAME).uuid}),
        disk_step(NODES[0], "/shared/x"),
        UndoStep("forget_everything", {}),
        disk_step(NODES[0], "/shared/y"),
    ]
    failures = await master.processor.undo(7, steps)
    assert failures == [
        (steps[1], "not tried, because forget_everything could not be undone"),
        (steps[2], "this version does not know how to undo 'forget_everything'"),
    ]
    assert "/shared/x" in master.world.disks()
    assert "/shared/y" not in master.world.disks()
    assert not master.snapshot.instances, "what takes nothing away is tried all the same"


async def test_every_step_succeeds_where_there_is_nothing_to_undo(master: Master) -> None:
    succeeded(await master.run(create()))
    spec = master.rpc.calls[-1].args.instance
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    plain = {"name": spec.name, "uuid": spec.uuid, "hypervisor": "fake", "os": "tiny"}
    plain |= {"memory": 1, "vcpus": 1, "hvparams": {}}
    ends = {"instance": spec.uuid, "source": NODES[0], "target": NODES[1]}
    steps = [
        disk_step(NODES[0]),
        disk_step(GROUP),  # a node that has left the cluster
        UndoStep("stop_instance", {"node": NODES[0], "instance": plain}),
        UndoStep("forget_instance", {"instance": spec.uuid}),
        UndoStep("settle_migration", ends),
    ]
    for deferred in (False, False, True):
        assert await master.processor.undo(7, steps, deferred=deferred) == []
    master.check()
