"""A node measures its guests and itself, and answers calls about the figures."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ganeti.base.errors import HypervisorError, InputError
from ganeti.base.paths import Paths
from ganeti.hypervisor.abilities import MeasuresGuests, Options
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.model.figures import NAMES, Reading, Values
from ganeti.model.instance_spec import InstanceSpec
from ganeti.node.figures import OLD_S, Figures
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.figures import HistoryArgs, HistoryForgetArgs, HistoryPart, NodeFigures
from ganeti.rpc.procedures.form import Nothing
from ganeti.simulation.virtual_time import LoopClock
from tests.support.predictable import FrozenClock

GUEST = "0b7c9a3e-1111-2222-3333-444455556666"


class Host:
    """A node that is busy with half a processor."""

    def __init__(self, clock: FrozenClock) -> None:
        self.clock = clock

    def read(self) -> Reading:
        return Reading(None, {"cpu": self.clock.monotonic() / 2}, {"memory": 700.0})


class Measuring(FakeHypervisor):
    """A hypervisor with one guest, which has another life on request."""

    failure = ""
    life = 1
    is_here = True

    @property
    def options(self) -> Options:
        return Options(figures=self)

    def measure(self) -> dict[str, Reading]:
        if self.failure:
            raise HypervisorError(self.failure)
        if not self.is_here:
            return {}
        return {GUEST: Reading(self.life, {"cpu": self._clock.monotonic()}, {"memory": 64.0})}


def named(found: Values) -> dict[str, float]:
    return {name: one for name, one in zip(NAMES, found, strict=True) if one is not None}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def hypervisor(paths: Paths, clock: FrozenClock) -> Measuring:
    return Measuring(paths, clock=clock)


@pytest.fixture
async def figures(
    paths: Paths, clock: FrozenClock, hypervisor: Measuring
) -> AsyncIterator[Figures]:
    host = Host(clock)
    found = Figures(paths, {"fake": hypervisor}, clock, host)  # type: ignore[arg-type]  # its methods suffice
    yield found
    await found.close()


async def sample(figures: Figures, clock: FrozenClock, count: int = 1) -> None:
    for _ in range(count):
        clock.advance(5)
        await figures.sample()


async def present(figures: Figures) -> NodeFigures:
    return await figures.present(Nothing(), Call())


async def history(
    figures: Figures, clock: FrozenClock, uuid: str = GUEST, step: int = 5
) -> HistoryPart:
    now = clock.time()
    args = HistoryArgs(uuid=uuid, start=now - 3000, end=now + 3000, step=step)
    return await figures.history(args, Call())


async def test_two_samples_give_rates(figures: Figures, clock: FrozenClock) -> None:
    assert await present(figures) == NodeFigures()
    await sample(figures, clock)
    found = await present(figures)
    assert named(found.node) == {"memory": 700.0}
    await sample(figures, clock)
    found = await present(figures)
    assert named(found.node) == {"cpu": 0.5, "memory": 700.0}
    assert named(found.guests[GUEST]) == {"cpu": 1.0, "memory": 64.0}


async def test_a_guest_that_begins_again_has_no_rates_at_first(
    figures: Figures, clock: FrozenClock, hypervisor: Measuring
) -> None:
    await sample(figures, clock, 2)
    hypervisor.life += 1
    await sample(figures, clock)
    assert named((await present(figures)).guests[GUEST]) == {"memory": 64.0}
    hypervisor.is_here = False
    await sample(figures, clock)
    assert (await present(figures)).guests == {}
    assert len((await history(figures, clock)).times) == 3


async def test_the_history_has_each_sample_and_the_minutes(
    figures: Figures, clock: FrozenClock
) -> None:
    await sample(figures, clock, 30)
    found = await history(figures, clock)
    assert len(found.times) == 30
    assert found.times == sorted(found.times)
    assert named(found.rows[-1])["cpu"] == 1.0
    assert 2 <= len((await history(figures, clock, step=60)).times) <= 3
    assert len((await history(figures, clock, uuid="")).times) == 30
    assert await history(figures, clock, uuid="another") == HistoryPart()


async def test_old_figures_are_not_present(figures: Figures, clock: FrozenClock) -> None:
    await sample(figures, clock, 2)
    clock.advance(OLD_S + 1)
    assert await present(figures) == NodeFigures()


async def test_a_forgotten_history_is_gone(
    figures: Figures, clock: FrozenClock, hypervisor: Measuring
) -> None:
    await sample(figures, clock, 2)
    hypervisor.is_here = False
    for _ in range(2):
        await figures.forget(HistoryForgetArgs(uuid=GUEST), Call())
    assert await history(figures, clock) == HistoryPart()
    assert (await history(figures, clock, uuid="")).times


async def test_guest_may_have_a_history_from_the_first_record_on(
    figures: Figures, clock: FrozenClock
) -> None:
    assert not figures.may_have(GUEST)
    await sample(figures, clock, 2)
    assert figures.may_have(GUEST)
    await figures.forget(HistoryForgetArgs(uuid=GUEST), Call())
    assert not figures.may_have(GUEST)
    assert not figures.may_have("../node")


@pytest.mark.parametrize("uuid", ["node", "../x", "A", "x/y", "x\n"])
async def test_a_wrong_name_is_refused(figures: Figures, clock: FrozenClock, uuid: str) -> None:
    with pytest.raises(InputError, match="UUID"):
        await history(figures, clock, uuid=uuid)
    with pytest.raises(InputError, match="UUID"):
        await figures.forget(HistoryForgetArgs(uuid=uuid), Call())


async def test_the_node_itself_cannot_be_forgotten(figures: Figures) -> None:
    with pytest.raises(InputError, match="UUID"):
        await figures.forget(HistoryForgetArgs(uuid=""), Call())


async def test_an_unknown_step_is_refused(figures: Figures, clock: FrozenClock) -> None:
    with pytest.raises(InputError, match="5, 60, 900"):
        await history(figures, clock, step=7)


async def test_a_failing_hypervisor_is_logged_once_and_stops_nothing(
    figures: Figures,
    clock: FrozenClock,
    hypervisor: Measuring,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hypervisor.failure = "no guests today"
    with caplog.at_level(logging.WARNING):
        await sample(figures, clock, 3)
    assert [one.message for one in caplog.records if "no guests today" in one.message] == [
        "recording the history of figures: no guests today"
    ]
    assert named((await present(figures)).node)["cpu"] == 0.5
    hypervisor.failure = ""
    await sample(figures, clock, 2)
    assert (await present(figures)).guests.keys() == {GUEST}


async def test_a_disk_that_fails_leaves_the_present_figures(
    figures: Figures, clock: FrozenClock, paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    paths.data.mkdir(parents=True)
    paths.history.write_text("not a directory")
    with caplog.at_level(logging.WARNING):
        await sample(figures, clock, 2)
    assert "recording the history" in caplog.text
    assert (await present(figures)).guests.keys() == {GUEST}


async def test_a_reader_waits_for_a_cancelled_sample(
    figures: Figures, clock: FrozenClock, hypervisor: Measuring, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    measured = hypervisor.measure

    def slow() -> dict[str, Reading]:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        return measured()

    monkeypatch.setattr(hypervisor, "measure", slow)
    assert not figures.may_have(GUEST)
    clock.advance(5)
    task = asyncio.create_task(figures.sample())
    await begun.wait()
    assert figures.may_have(GUEST)
    task.cancel()
    reader = asyncio.create_task(history(figures, clock))
    await asyncio.sleep(0)
    assert not reader.done()
    go_on.set()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert len((await reader).times) == 1


@pytest.mark.virtual_time
async def test_it_samples_once_in_each_step_of_the_clock(paths: Paths) -> None:
    clock = LoopClock()
    steps: list[int] = []

    class Counting(Figures):
        async def sample(self) -> None:
            steps.append(int(clock.time() // 5))

    figures = Counting(paths, {}, clock)
    task = asyncio.create_task(figures.run())
    await asyncio.sleep(60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert steps == list(range(steps[0], steps[0] + len(steps)))
    assert 11 <= len(steps) <= 13


def test_simulated_guests_have_the_same_figures_on_each_node(tmp_path: Path) -> None:
    clock = FrozenClock()
    spec = InstanceSpec(
        name="web1", uuid=GUEST, hypervisor="fake", os="o", memory=512, vcpus=2, hvparams={}
    )
    found = []
    for node in ("a", "b"):
        fake = FakeHypervisor(Paths(tmp_path / node), clock=clock)
        fake.write(spec, "running")
        found.append(fake.measure())
    assert found[0] == found[1]
    assert isinstance(fake, MeasuresGuests)
    one = found[0][GUEST]
    assert one.counters.keys() == {"cpu"}, "no disks, no networks"
    assert 0 < one.present["guest_memory"] < one.present["memory"] < 512
    totals = [one.counters["cpu"]]
    for _ in range(200):
        clock.advance(7)
        totals.append(fake.measure()[GUEST].counters["cpu"])
    assert all(0 < after - before < 2 * 7 for before, after in itertools.pairwise(totals))
    fake.write(spec, "paused")
    assert fake.measure() == {}
