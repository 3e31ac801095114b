"""Random clients, masters that die, and what must hold all the same."""

import asyncio
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ganeti.base.errors import GanetiError
from ganeti.jobs.executor import OpRun, Outcome
from ganeti.model.job import UndoStep
from ganeti.model.names import JobStatus
from ganeti.simulation.faulty_store import Crash, Refuse
from tests.support.virtual_time import run_virtual
from tests.unit.jobs.rig import Rig, World, act, delay, statuses

COMMAND = st.one_of(
    st.tuples(
        st.just("submit"), st.lists(st.sampled_from("aardf"), min_size=1, max_size=3),
        st.integers(-2, 2), st.booleans(),
    ),
    st.tuples(st.just("cancel"), st.integers(0, 8)),
    st.tuples(st.just("archive"), st.integers(0, 8)),
    st.tuples(st.just("priority"), st.integers(0, 8), st.integers(-5, 5)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.1, 1.0, 30.0])),
    st.tuples(st.just("crash"), st.booleans(), st.integers(0, 5)),
    st.tuples(st.just("full"), st.integers(0, 3)),
    st.just(("restart",)),
)  # fmt: skip


class Clients:
    """Carries commands out, and remembers what was promised."""

    def __init__(self) -> None:
        self.world = World()
        self.accepted: dict[int, list[str]] = {}
        self.canceled: dict[int, int] = {}
        self.final: dict[int, list[str]] = {}
        self.greatest = 0
        self.rig: Rig

    async def begin(self) -> None:
        self.rig = await Rig.loaded(self.world)
        self.rig.executor.behaviours = {"a": self._act, "r": self._read, "f": self._fail}

    async def _act(self, run: OpRun) -> Outcome:
        await run.acquire([])
        await run.record_undo([UndoStep("undo", {"job": run.job_id})])
        self.world.effects.append((run.job_id, run.index))
        await asyncio.sleep(0.3)
        return Outcome()

    async def _read(self, run: OpRun) -> Outcome:
        await run.acquire([])
        run.log("reading")
        await asyncio.sleep(0.2)
        return Outcome()

    async def _fail(self, run: OpRun) -> Outcome:
        await run.acquire([])
        raise GanetiError("it broke")

    async def do(self, command: tuple[Any, ...]) -> None:
        name, *arguments = command
        try:
            await getattr(self, f"do_{name}")(*arguments)
        except GanetiError:
            if self.rig.lost:
                await self.do_restart()
        self.look()

    async def do_submit(self, letters: list[str], priority: int, chained: bool) -> None:
        depends: list[tuple[int, list[str]]] | None
        depends = [(self._pick(0), [])] if chained and self.accepted else None
        jobs = [
            (act if letter in "af" else delay)(
                comment=letter, priority=priority, depends=depends if index == 0 else None
            )
            for index, letter in enumerate(letters)
        ]
        job_id = await self.rig.queue.submit(jobs)
        assert job_id > self.greatest, "an id was used again"
        self.greatest = job_id
        self.accepted[job_id] = [op.summary() for op in jobs]

    def _pick(self, number: int) -> int:
        return sorted(self.accepted, reverse=True)[number % len(self.accepted)]

    async def do_cancel(self, number: int) -> None:
        if self.accepted:
            job_id = self._pick(number)
            running = self._effects(job_id)
            said_yes, _ = await self.rig.queue.cancel(job_id)
            if said_yes and job_id not in self.canceled:
                self.canceled[job_id] = max(running, self._effects(job_id)) + 1

    async def do_archive(self, number: int) -> None:
        if self.accepted:
            await self.rig.queue.archive(self._pick(number))

    async def do_priority(self, number: int, priority: int) -> None:
        if self.accepted:
            await self.rig.queue.change_priority(self._pick(number), priority)

    async def do_wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self.rig.lost:
            await self.do_restart()

    async def do_crash(self, written: bool, after: int) -> None:
        self.rig.store.inject(Crash(written=written), after=after)

    async def do_full(self, after: int) -> None:
        self.rig.store.inject(Refuse(), after=after)

    async def do_restart(self) -> None:
        self.greatest = max([self.greatest, *self.rig.queue.ids()])
        await self.rig.crash()
        await self.begin()

    def _effects(self, job_id: int) -> int:
        return sum(1 for one, _ in self.world.effects if one == job_id)

    def look(self) -> None:
        for job_id in self.rig.queue.ids():
            view = self.rig.queue.view(job_id)
            assert view is not None
            if view.status.is_final and not self.rig.lost:
                assert self.final.setdefault(view.id, statuses(view)) == statuses(view)

    async def check(self) -> None:
        """Let everything end, then hold it against the promises."""
        if self.rig.lost:
            await self.do_restart()
        self.rig.store._faults.clear()
        await asyncio.sleep(100)
        if self.rig.lost:  # a fault was on its way when the others were taken back
            await self.do_restart()
            await asyncio.sleep(100)
        self.look()
        assert len(set(self.world.effects)) == len(self.world.effects), "an opcode ran twice"
        for job_id, summaries in self.accepted.items():
            view = self.rig.queue.view(job_id) or await self.rig.queue.archived_view(job_id)
            assert view is not None, f"job {job_id} is lost"
            assert view.status.is_final
            assert [state.op.summary() for state in view.ops] == summaries
            assert self.final.get(job_id, statuses(view)) == statuses(view)
            for index, state in enumerate(view.ops):
                ran = (job_id, index) in self.world.effects
                changes = state.op.comment == "a"
                assert not (changes and state.status is JobStatus.SUCCESS and not ran)
                if state.status is JobStatus.CANCELED:
                    assert not ran
        for job_id, most in self.canceled.items():
            assert self._effects(job_id) <= most
        assert not self.rig.locks.owners()
        self.rig.queue._scheduler.validate()
        assert self.rig.queue.statistics()["running"] == 0
        await self.rig.end()


@pytest.mark.requirement("G1", "G6", "G7", "G8", "G9", "F13", "F14", "F15")
@settings(max_examples=120, deadline=None)
@example(commands=[("submit", ["a"], 0, False), ("restart",), ("full", 0), ("cancel", 0)])
@given(commands=st.lists(COMMAND, max_size=25))
def test_promises_hold_whatever_clients_and_masters_do(commands: list[tuple[Any, ...]]) -> None:
    async def play() -> None:
        clients = Clients()
        await clients.begin()
        for command in commands:
            await clients.do(command)
        await clients.check()

    run_virtual(play())
