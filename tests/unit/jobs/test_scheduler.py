"""Which jobs start: examples, and a model under random events."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ganeti.base.transitions import IllegalTransition
from ganeti.jobs.scheduler import FINAL_STATES, Scheduler, Unsatisfiable
from ganeti.jobs.states import TRANSITIONS, Event, after
from ganeti.model.job_filter import FREE, Limit, Ruling
from ganeti.model.names import JobStatus

SUCCESS = frozenset({JobStatus.SUCCESS})


@pytest.mark.requirement("S28")
def test_urgent_jobs_come_first_and_then_those_that_came_first() -> None:
    scheduler = Scheduler()
    for job_id, priority in ((1, 0), (2, 5), (3, -5), (4, 0)):
        scheduler.add(job_id, priority, {})
    assert scheduler.take(3) == [3, 1, 4]
    assert scheduler.take(3) == []
    assert scheduler.ended(1, JobStatus.SUCCESS) == []
    assert scheduler.take(3) == [2]


def test_a_job_waits_for_all_of_its_dependencies() -> None:
    scheduler = Scheduler()
    scheduler.add(1, 0, {})
    scheduler.add(2, 0, {})
    scheduler.add(3, -20, {1: SUCCESS, 2: FINAL_STATES})
    assert scheduler.take(10) == [1, 2]
    scheduler.ended(1, JobStatus.SUCCESS)
    assert scheduler.take(10) == []
    assert scheduler.reason(3) == "waiting for job 2 to end"
    scheduler.ended(2, JobStatus.ERROR)
    assert scheduler.take(10) == [3]


def test_unsatisfiable_job_is_named() -> None:
    scheduler = Scheduler()
    scheduler.add(1, 0, {})
    scheduler.add(2, 0, {1: SUCCESS})
    scheduler.take(10)
    assert scheduler.ended(1, JobStatus.CANCELED) == [Unsatisfiable(2, 1, JobStatus.CANCELED)]
    assert scheduler.queued == 0


def test_a_changed_priority_counts_once() -> None:
    scheduler = Scheduler()
    scheduler.add(1, 0, {})
    scheduler.add(2, 0, {})
    scheduler.set_priority(2, -1)
    scheduler.set_priority(1, 3)
    scheduler.set_priority(1, 0)
    assert scheduler.take(10) == [2, 1]
    scheduler.validate()


def test_a_job_that_leaves_a_bucket_keeps_no_other_job_waiting_there() -> None:
    one = Ruling(limits=(Limit("a", 1, "a"),))
    scheduler = Scheduler()
    for job_id in (1, 2):
        scheduler.add(job_id, 0, {})
        scheduler.rule(job_id, one)  # each job has two entries from now on
    scheduler.add(3, 0, {}, one)
    assert scheduler.take(9) == [1]
    scheduler.rule(1, FREE)
    scheduler.rule(2, FREE)
    scheduler.validate()
    assert scheduler.take(9) == [2, 3]


@pytest.mark.requirement("G6")
def test_final_states_never_change_and_every_other_pair_is_known_or_refused() -> None:
    for status in JobStatus:
        for event in Event:
            if status.is_final or (status, event) not in TRANSITIONS:
                with pytest.raises(IllegalTransition):
                    after(status, event)
            else:
                assert after(status, event) in JobStatus


A1, B1, B2 = (Limit(name, most, name) for name, most in (("a", 1), ("b", 1), ("c", 2)))
RULINGS = st.sampled_from(
    [
        *[FREE] * 3,
        Ruling(paused="a rule"),
        Ruling(limits=(A1,)),
        Ruling(limits=(A1, B2)),
        Ruling(limits=(B1, A1)),
        Ruling(limits=(B2,)),
    ]
)


class SchedulerModel(RuleBasedStateMachine):
    """Against a list that is searched anew each time."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler()
        self.next_id = 1
        self.queued: dict[int, tuple[int, dict[int, frozenset[JobStatus]]]] = {}
        self.running: set[int] = set()
        self.rulings: dict[int, Ruling] = {}

    @rule(priority=st.integers(-3, 3), data=st.data(), ruling=RULINGS)
    def submit(self, priority: int, data: st.DataObject, ruling: Ruling) -> None:
        alive = sorted({*self.queued, *self.running})
        chosen = data.draw(st.sets(st.sampled_from(alive), max_size=3)) if alive else set()
        wanted = data.draw(st.sampled_from([SUCCESS, FINAL_STATES]))
        needs = dict.fromkeys(chosen, wanted)
        self.scheduler.add(self.next_id, priority, needs, ruling)
        self.rulings[self.next_id] = ruling
        self.queued[self.next_id] = (priority, dict(needs))
        self.next_id += 1

    @rule(limit=st.integers(0, 4), most=st.integers(1, 3))
    def start(self, limit: int, most: int) -> None:
        ready = sorted((p, job_id) for job_id, (p, needs) in self.queued.items() if not needs)
        room = max(0, min(limit - len(self.running), most))
        expected: list[int] = []
        for _, job_id in ready:
            if len(expected) < room and self._may_start(job_id):
                expected.append(job_id)
                del self.queued[job_id]
                self.running.add(job_id)
        assert self.scheduler.take(limit, most=most) == expected

    def _may_start(self, job_id: int) -> bool:
        ruling = self.rulings[job_id]
        used = Counter(one.bucket for other in self.running for one in self.rulings[other].limits)
        return ruling.paused is None and all(used[one.bucket] < one.most for one in ruling.limits)

    @rule(data=st.data(), ruling=RULINGS)
    def change_rules(self, data: st.DataObject, ruling: Ruling) -> None:
        alive = sorted({*self.queued, *self.running})
        if alive:
            job_id = data.draw(st.sampled_from(alive))
            self.rulings[job_id] = ruling
            self.scheduler.rule(job_id, ruling)

    @rule(data=st.data(), status=st.sampled_from(sorted(FINAL_STATES)))
    def end(self, data: st.DataObject, status: JobStatus) -> None:
        if self.running:
            job_id = data.draw(st.sampled_from(sorted(self.running)))
            self.running.discard(job_id)
            self._ended(job_id, status)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.queued:
            job_id = data.draw(st.sampled_from(sorted(self.queued)))
            assert self.scheduler.remove(job_id)
            del self.queued[job_id]
            self._ended(job_id, JobStatus.CANCELED)

    def _ended(self, job_id: int, status: JobStatus) -> None:
        unsatisfiable = self.scheduler.ended(job_id, status)
        expected = []
        for other, (_, needs) in sorted(self.queued.items()):
            wanted = needs.pop(job_id, None)
            if wanted is not None and status not in wanted:
                expected.append(Unsatisfiable(other, job_id, status))
        assert unsatisfiable == expected
        for one in unsatisfiable:
            del self.queued[one.job_id]
        for one in unsatisfiable:
            self._ended(one.job_id, JobStatus.ERROR)

    @rule(data=st.data(), priority=st.integers(-3, 3))
    def reprioritise(self, data: st.DataObject, priority: int) -> None:
        if self.queued:
            job_id = data.draw(st.sampled_from(sorted(self.queued)))
            self.scheduler.set_priority(job_id, priority)
            self.queued[job_id] = (priority, self.queued[job_id][1])

    @invariant()
    def holds(self) -> None:
        self.scheduler.validate()
        assert self.scheduler.queued == len(self.queued)
        assert self.scheduler.running == len(self.running)


TestSchedulerModel = SchedulerModel.TestCase
TestSchedulerModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
