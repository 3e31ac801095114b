"""What the core decides, event by event."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ganeti.model.objects import NodeRow, NodeUuid
from ganeti.model.recovery import (
    FenceMethod,
    GuestFault,
    InstanceRow,
    NodeState,
    Recovery,
    Token,
)
from ganeti.recovery.core import OFFLINE_RETRY_S, RecoveryCore
from ganeti.recovery.facts import Difference, InstanceFacts, NodeFacts, Watched
from ganeti.recovery.instance import (
    BACKOFF_S,
    MOST_BACKOFF_S,
    QUEUE_RETRY_S,
    ROOM_RETRIES,
    ROOM_RETRY_S,
    InstanceState,
)
from ganeti.recovery.messages import (
    Alarm,
    BeatAnswered,
    Commit,
    CommitFailed,
    Committed,
    Configured,
    Event,
    Fence,
    FenceConfirmed,
    FenceEnded,
    Instruction,
    JobEnded,
    JobKind,
    MajorityConfirmed,
    Outcome,
    Release,
    ReleaseEnded,
    RoomAppeared,
    Row,
    SendBeat,
    Submit,
    TimePassed,
)
from ganeti.recovery.node import MOST_RETRY_S, RETRIES, RETRY_S
from ganeti.recovery.times import LEASE_S, LOST_S, MAJORITY_S, SUSPECT_S, reset_by

A, B, C = (NodeUuid(name) for name in "abc")
NODES = (A, B, C)
POWER, WATCHDOG, STORAGE = FenceMethod.POWER, FenceMethod.WATCHDOG, FenceMethod.STORAGE


class Driver:
    """Commits every row at once, and lets nodes answer each second."""

    def __init__(
        self,
        *instances: InstanceFacts,
        rows: Iterable[Row] = (),
        methods: tuple[FenceMethod, ...] = (POWER,),
        master: NodeUuid | None = None,
        most_jobs: int = 4,
    ) -> None:
        self.now, self.wall = 0.0, 1e9
        self.watched = Watched(
            {node: NodeFacts(node, methods) for node in NODES},
            {one.name: one for one in instances},
            most_jobs=most_jobs,
            master=master,
        )
        self.commits = self.has_majority = True
        self.rows: list[Row] = []
        self.seen: list[Instruction] = []
        self.beats: list[SendBeat] = []
        self.core = RecoveryCore(7, 0.0, rows, self.watched)
        self._take(self.core.begin(self.now, self.wall))

    def _take(self, instructions: Sequence[Instruction]) -> None:
        for one in instructions:
            if isinstance(one, SendBeat):
                self.beats.append(one)
            else:
                self.seen.append(one)
            if isinstance(one, Commit) and self.commits:
                self.rows.append(one.row)
                self.tell(Committed(one.row))

    def tell(self, *events: Event) -> None:
        for event in events:
            self._take(self.core.handle(event, self.now, self.wall))
            calm = (InstanceState.PROTECTED, InstanceState.GIVEN_UP)
            instances = self.core.instances.values()
            is_calm = all(one.state in calm for one in instances)
            is_certain = not any(one.doubt for one in instances if one.state is calm[0])
            assert self.core.is_settled == (is_calm and is_certain)

    def answer(
        self,
        node: NodeUuid,
        *,
        armed: bool = True,
        crashed: bool = False,
        is_direct: bool = True,
    ) -> None:
        faults = {"web": GuestFault.CRASHED} if crashed else {}
        self.tell(BeatAnswered(node, Token(node, self.now), armed, faults, is_direct))

    def run(
        self, seconds: float, *, silent: Sequence[NodeUuid] = (), crashed: bool = False
    ) -> "Driver":
        """Let all but the silent nodes answer; node a reports that `web` has crashed."""
        for _ in range(int(seconds)):
            self.now += 1.0
            self.wall += 1.0
            if self.has_majority:
                self.tell(MajorityConfirmed(self.now))
            self.tell(TimePassed())
            for node in NODES:
                if node not in silent:
                    self.answer(node, crashed=crashed and node == A)
        return self

    def configure(self, **changes: InstanceFacts | None) -> None:
        instances = {**self.watched.instances, **changes}
        self._configure(
            replace(self.watched, instances={k: v for k, v in instances.items() if v is not None})
        )

    def configure_node(self, node: NodeUuid, facts: NodeFacts | None) -> None:
        nodes = {**self.watched.nodes, node: facts}
        self._configure(
            replace(self.watched, nodes={k: v for k, v in nodes.items() if v is not None})
        )

    def _configure(self, watched: Watched) -> None:
        self.watched = watched
        self.tell(Configured(watched))

    def submitted(self, kind: JobKind) -> list[Submit]:
        return [one for one in self.seen if isinstance(one, Submit) and one.kind is kind]

    def end(self, kind: JobKind, outcome: Outcome = Outcome.DONE, detail: str = "") -> None:
        """End the last job of a kind."""
        self.tell(JobEnded(self.submitted(kind)[-1].number, outcome, detail))

    def fenced(self, node: NodeUuid = A) -> "Driver":
        """Lose a node, fence it by its power and mark it offline."""
        self.run(LOST_S + 12, silent=[node])
        assert Fence(node) in self.seen
        self.tell(FenceEnded(node, is_fenced=True, detail="off"))
        self.end(JobKind.MARK_OFFLINE)
        return self

    def state(self, node: NodeUuid = A) -> NodeState:
        return self.core.nodes[node].state


def web(name: str = "web", node: NodeUuid = A, **changes: Any) -> InstanceFacts:
    return replace(InstanceFacts(name, node), **changes)


# Nodes


@pytest.mark.requirement("D7")
def test_the_node_of_a_newly_protected_instance_gets_a_heartbeat_at_once() -> None:
    driver = Driver(web(), web("db", B)).run(3)
    driver.now += 0.1
    driver.beats.clear()
    driver.configure(db=web("db", B, priority=60))
    driver.configure(db=web("db", B, recovery=Recovery.RESTART, is_under_lease=False))
    assert not driver.beats
    driver.configure(db=web("db", B, is_under_lease=False))
    assert [one.node for one in driver.beats] == [B]
    driver.configure(web=web(priority=60))
    assert [one.node for one in driver.beats] == [B]  # one that is protected already causes none


def test_changes_of_instances_neither_cause_nor_delay_heartbeats() -> None:
    times: list[list[tuple[float, NodeUuid]]] = []
    for changes in (0, 9):
        driver = Driver(web(), web("db", B)).run(3)
        times.append([])
        for tenth in range(100):
            driver.beats.clear()
            driver.now = 3.0 + tenth / 10
            if tenth and tenth % 10 <= changes:
                driver.configure(db=web("db", B, priority=tenth))
            if driver.now >= driver.core.next_due():
                driver.tell(TimePassed())
            for node in {one.node for one in driver.beats}:
                driver.answer(node)
            times[-1] += [(driver.now, one.node) for one in driver.beats]
    assert times[0] == times[1]
    assert len(times[0]) == 9 * len(NODES)


def test_node_whose_job_failed_is_due_although_only_instances_change() -> None:
    driver = Driver(web(), web("db", B))
    driver.run(LOST_S + 12, silent=[A])
    driver.tell(FenceEnded(A, is_fenced=True, detail="off"))
    driver.end(JobKind.MARK_OFFLINE, Outcome.FAILED)
    for _ in range(int(OFFLINE_RETRY_S) + 1):
        driver.now += 1.0
        driver.tell(TimePassed())
        for node in (B, C):
            driver.answer(node)
    assert len(driver.submitted(JobKind.MARK_OFFLINE)) == 2
    driver.end(JobKind.MARK_OFFLINE, Outcome.FAILED)
    driver.now += OFFLINE_RETRY_S
    driver.core._nodes_due = driver.now + 1.0
    driver.configure(db=web("db", B, priority=60))
    assert len(driver.submitted(JobKind.MARK_OFFLINE)) == 3


def test_job_that_nobody_wants_any_more_is_due_at_no_time() -> None:
    driver = Driver(web())
    driver.run(LOST_S + 12, silent=[A])
    driver.tell(FenceEnded(A, is_fenced=True, detail="off"))
    driver.end(JobKind.MARK_OFFLINE, Outcome.FAILED)
    driver.watched = replace(
        driver.watched, nodes={node: NodeFacts(node, (POWER,)) for node in (B, C)}
    )
    driver.tell(Configured(driver.watched))
    driver.now += OFFLINE_RETRY_S + 1
    driver.tell(TimePassed())
    for node in (B, C):
        driver.answer(node)
    assert driver.core.next_due() > driver.now
    assert len(driver.submitted(JobKind.MARK_OFFLINE)) == 1


def test_a_difference_from_other_instances_is_not_relied_on() -> None:
    driver = Driver(web(), web("db", B)).run(3)
    moved = replace(driver.watched, instances={"web": web(node=C), "new": web("new", B)})
    driver.tell(Configured(replace(moved, difference=Difference({}, ()))))
    assert driver.core.instances["web"].facts.node == C
    assert set(driver.core.instances) == {"web", "new"}


def test_only_the_instances_of_the_difference_are_looked_at() -> None:
    driver = Driver(web(), web("db", B), web("old", B)).run(3)
    former = driver.watched.instances
    instances = {"web": web(node=C), "db": web("db", C)}
    difference = Difference(former, ["web", "old"])
    driver.tell(Configured(replace(driver.watched, instances=instances, difference=difference)))
    assert driver.core.instances["web"].facts.node == C
    assert driver.core.instances["db"].facts.node == B
    assert "old" not in driver.core.instances


@pytest.mark.requirement("D6", "D7")
def test_instances_of_a_lost_node_start_elsewhere_once_it_is_fenced() -> None:
    driver = Driver(web())
    driver.run(5).run(LOST_S + 2, silent=[A])
    assert driver.state() is NodeState.FENCING
    assert not driver.submitted(JobKind.FAIL_OVER)
    driver.tell(FenceEnded(A, is_fenced=True))
    driver.end(JobKind.MARK_OFFLINE)
    assert [one.about for one in driver.submitted(JobKind.FAIL_OVER)] == ["web"]


@pytest.mark.requirement("D7")
def test_without_power_control_a_node_is_fenced_when_its_watchdog_has_reset_it() -> None:
    driver = Driver(web(), methods=(WATCHDOG,)).run(5)
    heard = driver.now
    driver.run(reset_by(heard, 0.0) - heard - 1, silent=[A])
    assert driver.state() is NodeState.FENCING
    driver.run(3, silent=[A])
    assert driver.state() is NodeState.FENCED


@pytest.mark.requirement("D7")
def test_a_watchdog_that_was_not_armed_fences_nothing() -> None:
    driver = Driver(web(), methods=(WATCHDOG,))
    driver.run(1, silent=[A])
    driver.answer(A, armed=False)
    driver.run(200, silent=[A])
    assert driver.state() is NodeState.STUCK
    assert "no fencing method can be used" in driver.core.status(driver.now).alarms[0]
    driver.tell(FenceConfirmed(A, "root"))
    assert driver.state() is NodeState.FENCED


@pytest.mark.requirement("D7")
def test_a_guest_that_its_node_does_not_know_as_protected_is_not_ended_by_the_watchdog() -> None:
    driver = Driver(web(is_under_lease=False), methods=(WATCHDOG,)).run(5)
    (before,) = driver.core.status(driver.now).instances
    assert before.why == "its node has not confirmed the protection yet"
    driver.run(60, silent=[A])
    driver.end(JobKind.MARK_OFFLINE)
    driver.run(5, silent=[A])
    assert driver.state() is NodeState.FENCED
    assert not driver.submitted(JobKind.FAIL_OVER)
    (alarm,) = driver.core.status(driver.now).alarms
    assert "gnt-node fenced --confirm a" in alarm
    driver.tell(FenceConfirmed(A, "root"))
    driver.run(2, silent=[A])
    assert [one.about for one in driver.submitted(JobKind.FAIL_OVER)] == ["web"]


@pytest.mark.requirement("D7")
def test_power_off_ends_every_guest() -> None:
    driver = Driver(web(is_under_lease=False)).run(5).run(LOST_S + 2, silent=[A])
    driver.tell(FenceEnded(A, is_fenced=True))
    driver.end(JobKind.MARK_OFFLINE)
    driver.run(2, silent=[A])
    assert driver.submitted(JobKind.FAIL_OVER)


@pytest.mark.requirement("D7")
def test_power_that_goes_off_after_the_watchdog_counts_too() -> None:
    driver = Driver(web(is_under_lease=False), methods=(WATCHDOG, POWER)).run(5)
    driver.run(60, silent=[A])
    driver.end(JobKind.MARK_OFFLINE)
    driver.run(2, silent=[A])
    assert not driver.submitted(JobKind.FAIL_OVER)
    driver.tell(FenceEnded(A, is_fenced=True))
    driver.run(2, silent=[A])
    assert driver.submitted(JobKind.FAIL_OVER)


@pytest.mark.requirement("D7")
def test_a_node_that_answers_is_not_fenced_by_a_confirmation() -> None:
    driver = Driver(web()).run(5)
    driver.tell(FenceConfirmed(A, "root"))
    assert driver.state() is NodeState.HEALTHY
    assert [one.about for one in driver.seen if isinstance(one, Alarm)] == [A]


@pytest.mark.requirement("D7")
def test_a_master_returns_tokens_only_while_a_majority_has_confirmed_it() -> None:
    core = Driver(web()).run(5).core
    later = core.handle(TimePassed(), 7.0, 1e9)
    assert any(isinstance(one, SendBeat) and one.token for one in later)
    much_later = core.handle(TimePassed(), 12.0, 1e9)
    assert not any(isinstance(one, SendBeat) and one.token for one in much_later)


def with_second_network(driver: Driver) -> Driver:
    for node in NODES:
        driver.configure_node(node, replace(driver.watched.nodes[node], has_secondary=True))
    return driver


@pytest.mark.requirement("D7")
def test_silent_node_is_asked_at_both_addresses_and_through_peers() -> None:
    driver = with_second_network(Driver(web())).run(5)
    assert all(one.via is None and not one.is_secondary for one in driver.beats)
    driver.run(SUSPECT_S + 1, silent=[A])
    driver.beats.clear()
    driver.run(1, silent=[A])
    ways = {(one.via, one.is_secondary) for one in driver.beats if one.node == A}
    assert ways == {(via, second) for via in (None, B, C) for second in (False, True)}
    assert all(one.via is None for one in driver.beats if one.node != A)


@pytest.mark.requirement("D7")
def test_node_without_a_second_address_is_asked_at_one() -> None:
    driver = Driver(web()).run(5).run(SUSPECT_S + 2, silent=[A])
    assert not any(one.is_secondary for one in driver.beats)
    assert any(one.via for one in driver.beats)


@pytest.mark.requirement("D7")
def test_node_that_answers_at_its_second_address_only_keeps_its_lease() -> None:
    """A token that comes back within 10 s of its sending: the node's own clock counts from there."""
    driver = with_second_network(Driver(web(), methods=(WATCHDOG,))).run(5)
    ends = driver.now + LEASE_S
    for _ in range(120):
        driver.run(1, silent=[A])
        ways = [one for one in driver.beats if one.node == A and one.is_secondary]
        driver.beats.clear()
        for one in ways[:1]:
            assert one.token is not None
            ends = max(ends, one.token.sent_at + LEASE_S)
            driver.answer(A, is_direct=False)
        assert driver.now < ends
    assert driver.state() is NodeState.HEALTHY
    assert "secondary address" in driver.core.status(driver.now).nodes[0].why
    driver.run(10)
    assert driver.core.status(driver.now).nodes[0].why == ""
    driver.beats.clear()
    driver.run(3)
    assert not any(one.is_secondary or one.via for one in driver.beats)


@pytest.mark.requirement("D11")
def test_nothing_is_fenced_while_most_nodes_are_silent() -> None:
    driver = Driver(web()).run(5).run(100, silent=[A, B])
    assert driver.state() is NodeState.SUSPECT
    assert not any(isinstance(one, Fence) for one in driver.seen)
    assert "may be a fault of the network" in driver.core.status(driver.now).alarms[0]
    driver.run(3)
    assert driver.core.status(driver.now).alarms == ()


@pytest.mark.requirement("D11")
def test_a_master_that_stood_still_gives_every_node_time_to_answer() -> None:
    driver = Driver(web()).run(5)
    driver.now += 40
    driver.run(LOST_S, silent=[A])
    assert driver.state() is not NodeState.FENCING
    driver.run(6, silent=[A])
    assert driver.state() is NodeState.FENCING


@pytest.mark.requirement("D10")
def test_with_two_nodes_neither_is_fenced() -> None:
    driver = Driver(web())
    driver.configure_node(C, None)
    driver.run(5).run(100, silent=[A])
    assert driver.state() is NodeState.SUSPECT
    assert not any(isinstance(one, Fence | Submit) for one in driver.seen)


@pytest.mark.requirement("D12")
def test_a_new_master_does_not_fence_a_node_that_answers_it() -> None:
    driver = Driver(web(), rows=[NodeRow(A, NodeState.FENCING, 6)])
    assert driver.rows == [NodeRow(A, NodeState.FENCING, 7)]
    driver.run(3)
    assert driver.state() is NodeState.HEALTHY
    assert not any(isinstance(one, Fence) for one in driver.seen)


@pytest.mark.requirement("D12")
def test_a_new_master_fences_again_what_an_older_one_only_began() -> None:
    driver = Driver(web(), rows=[NodeRow(A, NodeState.FENCING, 6)])
    driver.run(LOST_S + 3, silent=[A])
    assert driver.seen.count(Fence(A)) == 1


@pytest.mark.requirement("D12")
def test_a_master_that_no_majority_confirms_cuts_no_power() -> None:
    driver = Driver(web(), rows=[NodeRow(A, NodeState.FENCING, 6)])
    driver.has_majority = False
    driver.run(LOST_S + 30, silent=[A])
    assert Fence(A) not in driver.seen
    driver.has_majority = True
    driver.run(3, silent=[A])
    assert driver.seen.count(Fence(A)) == 1


@pytest.mark.requirement("D12")
def test_a_new_master_does_not_fence_again_what_is_known_to_be_fenced() -> None:
    driver = Driver(web(), rows=[NodeRow(A, NodeState.FENCED, 6)]).run(LOST_S + 3, silent=[A])
    assert Fence(A) not in driver.seen
    driver.end(JobKind.MARK_OFFLINE)
    assert driver.submitted(JobKind.FAIL_OVER)


@pytest.mark.requirement("D12")
def test_a_commit_without_an_answer_is_repeated_and_counts_only_then() -> None:
    driver = Driver(web()).run(5)
    driver.commits = False
    driver.run(LOST_S + 2, silent=[A])
    row = NodeRow(A, NodeState.FENCING, 7, is_armed=True)
    driver.tell(CommitFailed(row))
    driver.run(3, silent=[A])
    assert driver.seen.count(Commit(row)) == 2
    assert Fence(A) not in driver.seen
    driver.tell(Committed(row))
    assert Fence(A) in driver.seen


def test_a_master_does_not_cut_its_own_power() -> None:
    driver = Driver(web(), methods=(POWER, WATCHDOG), master=A).run(5)
    driver.run(60, silent=[A])
    assert driver.state() is NodeState.FENCED
    assert Fence(A) not in driver.seen


def test_a_node_whose_power_was_tried_in_vain_is_healthy_when_it_answers() -> None:
    driver = Driver(web()).run(5).run(LOST_S + 2, silent=[A])
    driver.answer(A)
    assert driver.state() is NodeState.FENCING  # its power may go off any moment
    driver.tell(FenceEnded(A, is_fenced=False, detail="no route"))
    driver.answer(A)
    assert driver.state() is NodeState.HEALTHY


def stuck() -> Driver:
    """Node a is lost, and its management controller does not answer."""
    driver = Driver(web()).run(5).run(LOST_S + 2, silent=[A])
    driver.tell(FenceEnded(A, is_fenced=False, detail="no route"))
    assert driver.state() is NodeState.STUCK
    return driver


@pytest.mark.requirement("D7", "D13")
def test_stuck_node_is_fenced_once_its_management_controller_is_back() -> None:
    driver = stuck().run(RETRY_S - 3, silent=[A])
    assert driver.seen.count(Fence(A)) == 1
    driver.run(5, silent=[A])
    assert driver.seen.count(Fence(A)) == 2
    driver.tell(FenceEnded(A, is_fenced=True, detail="off"))
    assert driver.state() is NodeState.FENCED
    assert driver.core.status(driver.now).alarms == ()
    driver.end(JobKind.MARK_OFFLINE)
    assert driver.submitted(JobKind.FAIL_OVER)


@pytest.mark.requirement("D13")
def test_attempts_to_fence_a_stuck_node_are_spaced_and_bounded() -> None:
    driver = stuck()
    began: list[float] = []
    for _ in range(3 * 3600):
        driver.run(1, silent=[A])
        if driver.seen.count(Fence(A)) > len(began) + 1:
            began.append(driver.now)
            driver.tell(FenceEnded(A, is_fenced=False, detail="no route"))
    pauses = [two - one for one, two in itertools.pairwise(began)]
    assert len(began) == RETRIES
    assert pauses == sorted(pauses)
    assert RETRY_S < pauses[0] < pauses[-1] <= MOST_RETRY_S + 1
    assert "(not tried again)" in driver.core.status(driver.now).alarms[0]
    driver.configure_node(A, NodeFacts(A, (POWER, WATCHDOG)))
    driver.run(3, silent=[A])
    assert driver.seen.count(Fence(A)) == RETRIES + 2


@pytest.mark.requirement("D11", "D12")
def test_stuck_node_is_not_tried_again_by_a_master_that_may_be_cut_off() -> None:
    driver = stuck().run(2 * RETRY_S, silent=[A, B])
    driver.has_majority = False
    driver.run(MAJORITY_S + 1, silent=[A, B]).run(2 * RETRY_S, silent=[A])
    assert driver.seen.count(Fence(A)) == 1
    driver.has_majority = True
    driver.run(3, silent=[A])
    assert driver.seen.count(Fence(A)) == 2


def test_stuck_node_stays_so_while_its_power_is_being_cut() -> None:
    driver = stuck().run(RETRY_S + 2, silent=[A])
    driver.answer(A)
    assert driver.state() is NodeState.STUCK  # its power may go off any moment
    driver.tell(FenceEnded(A, is_fenced=False, detail="no route"))
    driver.answer(A)
    assert driver.state() is NodeState.HEALTHY


@pytest.mark.requirement("D12")
def test_new_master_tries_the_power_of_a_stuck_node_again() -> None:
    driver = Driver(web(), rows=[NodeRow(A, NodeState.STUCK, 6, why="power: no route")])
    driver.run(RETRY_S + 2, silent=[A])
    assert driver.seen.count(Fence(A)) == 1


ASKED = Fence(A, STORAGE)


def fenced_by_storage(driver: Driver, *instances: str) -> None:
    """The storage of some instances refuses the writes of node a."""
    detail = "Ceph refuses it"
    driver.tell(FenceEnded(A, bool(instances), detail, STORAGE, fenced_instances=instances))


def lost(*methods: FenceMethod, armed: bool = False, **changes: Any) -> Driver:
    """Node a runs `web` and `db`, and is lost."""
    driver = Driver(web(**changes), web("db", **changes), methods=methods)
    driver.run(1, silent=[A])
    driver.answer(A, armed=armed)
    return driver.run(LOST_S + 3, silent=[A])


@pytest.mark.requirement("D7")
def test_storage_is_asked_once_the_power_was_tried_in_vain() -> None:
    driver = lost(STORAGE, POWER, is_under_lease=False)
    assert ASKED not in driver.seen
    driver.tell(FenceEnded(A, is_fenced=False, detail="no route"))
    assert driver.core.nodes[A].row.asked_storage, "it is committed before the storage is asked"
    assert driver.seen.count(ASKED) == 1
    fenced_by_storage(driver, "web", "db")
    assert driver.state() is NodeState.FENCED
    driver.end(JobKind.MARK_OFFLINE)
    assert {one.about for one in driver.submitted(JobKind.FAIL_OVER)} == {"web", "db"}


@pytest.mark.requirement("D7")
@pytest.mark.parametrize("is_under_lease", [False, True])
def test_only_instances_whose_storage_refuses_the_node_start_elsewhere(
    is_under_lease: bool,
) -> None:
    driver = lost(STORAGE, is_under_lease=is_under_lease)
    fenced_by_storage(driver, "web")
    driver.end(JobKind.MARK_OFFLINE)
    driver.run(3, silent=[A])
    assert [one.about for one in driver.submitted(JobKind.FAIL_OVER)] == ["web"]
    (alarm,) = driver.core.status(driver.now).alarms
    assert "gnt-node fenced --confirm a" in alarm
    driver.tell(FenceConfirmed(A, "root"))
    driver.run(2, silent=[A])
    assert {one.about for one in driver.submitted(JobKind.FAIL_OVER)} == {"web", "db"}


@pytest.mark.requirement("D7")
def test_storage_is_not_asked_while_the_watchdog_ends_the_guests() -> None:
    driver = lost(STORAGE, WATCHDOG, armed=True).run(60, silent=[A])
    assert driver.state() is NodeState.FENCED
    assert ASKED not in driver.seen


@pytest.mark.requirement("D11")
def test_storage_is_not_asked_by_a_master_that_may_be_cut_off() -> None:
    driver = Driver(web(), methods=(STORAGE,)).run(1)
    driver.answer(A, armed=False)
    driver.has_majority = False
    driver.run(LOST_S + MAJORITY_S + 5, silent=[A])
    assert ASKED not in driver.seen


@pytest.mark.requirement("D7")
def test_storage_that_does_not_refuse_the_node_is_named_and_asked_again() -> None:
    driver = lost(POWER, STORAGE)
    driver.tell(FenceEnded(A, is_fenced=False, detail="no route"))
    fenced_by_storage(driver)
    assert driver.state() is NodeState.STUCK
    (alarm,) = driver.core.status(driver.now).alarms
    assert "power: no route; storage: Ceph refuses it" in alarm
    assert "gnt-node fenced --confirm a" in alarm
    driver.run(RETRY_S + 2, silent=[A])
    assert driver.seen.count(Fence(A)) == 2
    driver.tell(FenceEnded(A, is_fenced=False, detail="no route"))
    assert driver.seen.count(ASKED) == 2
    fenced_by_storage(driver, "web", "db")
    assert driver.state() is NodeState.FENCED


@pytest.mark.requirement("D9")
def test_storage_accepts_a_node_again_only_when_it_has_dropped_what_moved_away() -> None:
    driver = lost(STORAGE)
    fenced_by_storage(driver, "web")
    driver.end(JobKind.MARK_OFFLINE)
    driver.run(5)
    assert driver.state() is NodeState.RETURNING
    assert Release(A, ("web",)) not in driver.seen
    driver.end(JobKind.REJOIN)
    assert driver.seen.count(Release(A, ("web",))) == 1
    driver.tell(ReleaseEnded(A, "Ceph does not answer"))
    assert driver.state() is NodeState.RETURNING
    assert Alarm("a", "node a is back, but Ceph does not answer") in driver.seen
    driver.run(RETRY_S + 2)
    assert driver.seen.count(Release(A, ("web",))) == 2
    driver.tell(ReleaseEnded(A))
    assert driver.state() is NodeState.HEALTHY
    assert not driver.core.nodes[A].row.fenced_instances
    assert not driver.core.nodes[A].row.asked_storage


@pytest.mark.requirement("D12")
def test_node_whose_storage_an_older_master_may_have_asked_returns_before_it_is_healthy() -> None:
    row = NodeRow(A, NodeState.FENCING, 6, asked_storage=True)
    driver = Driver(web(), methods=(STORAGE,), rows=[row]).run(1, silent=[A])
    driver.answer(A, armed=False)
    assert driver.state() is NodeState.RETURNING
    driver.run(2)
    driver.end(JobKind.REJOIN)
    assert Release(A, ()) in driver.seen


def test_a_node_whose_power_was_cut_returns_when_it_answers() -> None:
    driver = Driver(web()).run(5).run(LOST_S + 2, silent=[A])
    driver.answer(A)
    driver.tell(FenceEnded(A, is_fenced=True))
    assert driver.state() is NodeState.FENCED
    driver.answer(A)
    assert driver.state() is NodeState.RETURNING


@pytest.mark.requirement("D9")
def test_a_node_that_returns_gets_no_lease_before_it_has_dropped_what_moved_away() -> None:
    driver = Driver(web()).run(5).fenced()
    driver.run(5)
    assert driver.state() is NodeState.RETURNING
    assert not driver.core.nodes[A].has_lease
    driver.end(JobKind.REJOIN, Outcome.FAILED)
    driver.run(5)
    assert driver.state() is NodeState.RETURNING
    driver.run(10)
    driver.end(JobKind.REJOIN)
    assert driver.state() is NodeState.HEALTHY


@pytest.mark.requirement("D6", "D7")
def test_node_that_is_lost_again_while_it_returns_is_fenced_again() -> None:
    driver = Driver(web()).run(5).fenced().run(5)
    assert driver.state() is NodeState.RETURNING
    driver.run(LOST_S + 2, silent=[A])
    assert driver.seen.count(Fence(A)) == 2
    driver.tell(FenceEnded(A, is_fenced=True))
    assert driver.state() is NodeState.FENCED
    driver.end(JobKind.REJOIN, Outcome.FAILED)
    driver.run(12)
    driver.end(JobKind.REJOIN)
    assert driver.state() is NodeState.HEALTHY


@pytest.mark.requirement("D9")
@pytest.mark.parametrize("methods", [(POWER,), ()], ids=["fencing", "stuck"])
def test_node_that_is_lost_while_it_returns_still_returns_if_it_answers(
    methods: tuple[FenceMethod, ...],
) -> None:
    driver = Driver(web()).run(5).fenced()
    driver.configure_node(A, NodeFacts(A, methods, awaits_return=True))
    driver.run(5)
    assert driver.state() is NodeState.RETURNING
    driver.run(LOST_S + 2, silent=[A])
    if methods:
        driver.tell(FenceEnded(A, is_fenced=False, detail="no route"))
    assert driver.state() is NodeState.STUCK
    driver.answer(A)
    assert driver.state() is NodeState.RETURNING
    driver.end(JobKind.REJOIN, Outcome.FAILED)
    driver.configure_node(A, NodeFacts(A, methods))
    driver.run(15)
    driver.end(JobKind.REJOIN)
    assert driver.state() is NodeState.HEALTHY


@pytest.mark.requirement("D9")
def test_healthy_node_that_is_marked_offline_by_recovery_returns() -> None:
    """A job of an older master was late."""
    driver = Driver(web()).run(5)
    driver.configure_node(A, NodeFacts(A, (POWER,), awaits_return=True))
    driver.run(3)
    assert driver.state() is NodeState.RETURNING
    assert driver.submitted(JobKind.REJOIN)


@pytest.mark.requirement("D9")
def test_node_that_an_administrator_marked_offline_does_not_return_by_itself() -> None:
    driver = Driver(web()).run(5).fenced()
    driver.configure_node(A, NodeFacts(A, (POWER,), stays_offline=True))
    driver.run(30)
    assert driver.state() is NodeState.FENCED
    driver.configure_node(A, NodeFacts(A, (POWER,)))
    driver.run(3)
    assert driver.state() is NodeState.RETURNING
    assert driver.submitted(JobKind.REJOIN)
    driver.configure_node(A, NodeFacts(A, (POWER,), stays_offline=True))
    driver.end(JobKind.REJOIN, Outcome.FAILED)
    driver.run(30)
    assert len(driver.submitted(JobKind.REJOIN)) == 1


def test_a_node_is_cleaned_once_when_it_returns() -> None:
    driver = Driver(web()).run(5).fenced().run(3)
    driver.commits = False
    driver.end(JobKind.REJOIN)
    driver.run(5)  # HEALTHY is being committed: guests may start there any moment
    assert len(driver.submitted(JobKind.REJOIN)) == 1


def test_a_node_in_maintenance_is_not_fenced_and_its_guests_are_left_alone() -> None:
    driver = Driver(web()).run(5)
    driver.configure_node(A, NodeFacts(A, in_maintenance=True))
    driver.run(5, crashed=True)
    driver.run(100, silent=[A])
    assert driver.state() is NodeState.SUSPECT
    assert not any(isinstance(one, Fence | Submit) for one in driver.seen)
    assert "in maintenance" in driver.core.status(driver.now).nodes[0].why


def test_silence_during_maintenance_does_not_count_when_it_ends() -> None:
    driver = Driver(web()).run(5)
    driver.configure_node(A, NodeFacts(A, in_maintenance=True))
    driver.run(100, silent=[A])
    driver.configure_node(A, NodeFacts(A))
    driver.run(LOST_S - 2, silent=[A])
    assert driver.state() is NodeState.SUSPECT
    assert driver.run(2).state() is NodeState.HEALTHY
    assert not any(isinstance(one, Fence | Submit) for one in driver.seen)


def test_node_that_is_silent_after_its_maintenance_is_fenced() -> None:
    driver = Driver(web()).run(5)
    driver.configure_node(A, NodeFacts(A, in_maintenance=True))
    driver.run(100, silent=[A])
    driver.configure_node(A, NodeFacts(A, (POWER,)))
    driver.fenced()


def test_maintenance_stops_a_fencing_that_has_begun() -> None:
    driver = Driver(web(), methods=(WATCHDOG,)).run(5).run(LOST_S + 2, silent=[A])
    assert driver.state() is NodeState.FENCING
    driver.configure_node(A, NodeFacts(A, in_maintenance=True))
    driver.run(100, silent=[A])
    assert driver.state() is NodeState.FENCING
    assert not driver.submitted(JobKind.FAIL_OVER)


def test_a_node_that_an_administrator_marked_offline_is_not_watched() -> None:
    driver = Driver(web()).run(5)
    driver.configure_node(A, None)
    driver.run(100, silent=[A])
    assert not any(isinstance(one, Fence | Submit) for one in driver.seen)


@pytest.mark.requirement("D12")
def test_a_node_that_is_watched_again_has_the_state_that_was_committed() -> None:
    driver = Driver(web()).run(5).fenced()
    facts = driver.watched.nodes[A]
    driver.configure_node(A, None)
    driver.configure_node(A, facts)
    assert driver.state() is NodeState.FENCED


# Instances


def test_a_guest_that_failed_is_started_again_on_its_node() -> None:
    driver = Driver(web(recovery=Recovery.RESTART)).run(5)
    driver.run(1, crashed=True)
    assert [one.about for one in driver.submitted(JobKind.RESTART)] == ["web"]
    driver.end(JobKind.RESTART)
    assert driver.core.instances["web"].state is InstanceState.PROTECTED


def test_a_guest_is_not_started_on_a_node_without_a_lease() -> None:
    driver = Driver(web())
    driver.answer(A, crashed=True)  # the first answer: no token was returned yet
    assert driver.core.instances["web"].state is InstanceState.PROTECTED
    driver.run(4, crashed=True)
    assert len(driver.submitted(JobKind.RESTART)) == 1


def test_an_instance_that_is_only_restarted_waits_for_its_node() -> None:
    driver = Driver(web(recovery=Recovery.RESTART)).run(5).fenced().run(20, silent=[A])
    assert not driver.submitted(JobKind.FAIL_OVER)


def test_important_instances_come_first_and_only_so_many_at_once() -> None:
    driver = Driver(
        web("i1", priority=10), web("i2", priority=90), web("i3"), web("i4"), most_jobs=2
    )
    driver.run(5).fenced()
    assert [one.about for one in driver.submitted(JobKind.FAIL_OVER)] == ["i2", "i3"]
    driver.end(JobKind.FAIL_OVER)
    assert [one.about for one in driver.submitted(JobKind.FAIL_OVER)] == ["i2", "i3", "i4"]


@pytest.mark.requirement("D13")
def test_a_failover_whose_result_is_not_yet_configured_is_not_repeated() -> None:
    driver = Driver(web()).run(5).fenced()
    driver.end(JobKind.FAIL_OVER)
    driver.run(3, silent=[A])
    driver.configure(web=web(node=B))
    driver.run(20, silent=[A])
    assert len(driver.submitted(JobKind.FAIL_OVER)) == 1


def test_an_instance_that_its_administrator_stopped_is_not_started() -> None:
    driver = Driver(web(), web("other"), most_jobs=1).run(5).fenced()
    assert driver.core.instances["web"].state is InstanceState.QUEUED
    driver.configure(web=web(is_wanted=False))
    driver.end(JobKind.FAIL_OVER)
    assert [one.about for one in driver.submitted(JobKind.FAIL_OVER)] == ["other"]


def test_an_instance_that_is_stopped_while_its_attempt_is_counted_is_not_started() -> None:
    driver = Driver(web()).run(5)
    driver.commits = False
    driver.run(1, crashed=True)
    driver.configure(web=web(is_wanted=False))
    driver.tell(Committed(InstanceRow("web", (driver.wall,))))
    assert not driver.submitted(JobKind.RESTART)
    assert driver.core.instances["web"].state is InstanceState.PROTECTED


def test_a_removed_instance_is_forgotten_when_its_job_has_ended() -> None:
    driver = Driver(web()).run(5).run(1, crashed=True)
    driver.configure(web=None)
    assert "web" in driver.core.instances
    driver.end(JobKind.RESTART, Outcome.FAILED)
    assert "web" not in driver.core.instances


def test_a_policy_without_failover_ends_the_waiting_for_room() -> None:
    driver = Driver(web()).run(5).fenced()
    driver.end(JobKind.FAIL_OVER, Outcome.NO_ROOM, "no node has room")
    driver.configure(web=web(recovery=Recovery.RESTART))
    assert driver.core.instances["web"].state is InstanceState.PROTECTED


@pytest.mark.requirement("D13")
def test_what_has_no_room_comes_again_when_room_appears_and_does_not_count() -> None:
    driver = Driver(web()).run(5).fenced()
    driver.end(JobKind.FAIL_OVER, Outcome.NO_ROOM, "no node has room")
    status = driver.core.status(driver.now).instances[0]
    assert (status.state, status.why, status.attempts) == (
        InstanceState.QUEUED,
        "no node has room",
        0,
    )
    driver.run(ROOM_RETRY_S / 2, silent=[A])
    assert len(driver.submitted(JobKind.FAIL_OVER)) == 1
    driver.configure(other=web("other", B))
    assert len(driver.submitted(JobKind.FAIL_OVER)) == 1
    driver.tell(RoomAppeared())
    assert len(driver.submitted(JobKind.FAIL_OVER)) == 2


@pytest.mark.requirement("D13")
def test_waiting_for_room_is_an_alarm_that_is_raised_once() -> None:
    driver = Driver(web()).run(5).fenced()
    driver.end(JobKind.FAIL_OVER, Outcome.NO_ROOM, "no node has room")
    (alarm,) = driver.core.status(driver.now).alarms
    assert "no node has room" in alarm
    driver.run(ROOM_RETRY_S + 5, silent=[A])
    driver.end(JobKind.FAIL_OVER, Outcome.NO_ROOM, "no node has room")
    assert [one.text for one in driver.seen if isinstance(one, Alarm)] == [alarm]
    driver.run(2 * ROOM_RETRY_S + 5, silent=[A])
    driver.end(JobKind.FAIL_OVER, Outcome.DONE)
    assert not driver.core.status(driver.now).alarms


def waiting(driver: Driver, seconds: float, *, appears_s: float = 0.0) -> int:
    """How many jobs found no room within this time; room for others appears this often."""
    begin, last = len(driver.submitted(JobKind.FAIL_OVER)), driver.now
    end = driver.now + seconds
    while driver.now < end:
        driver.run(1, silent=[A])
        if appears_s and driver.now - last >= appears_s:
            last = driver.now
            driver.tell(RoomAppeared())
        if driver.core.instances["web"].state is InstanceState.RUNNING:
            driver.end(JobKind.FAIL_OVER, Outcome.NO_ROOM, "no node has room")
    return len(driver.submitted(JobKind.FAIL_OVER)) - begin


@pytest.mark.requirement("D13")
def test_instance_that_never_finds_room_is_tried_rarely_and_not_without_end() -> None:
    driver = Driver(web()).run(5).fenced()
    driver.end(JobKind.FAIL_OVER, Outcome.NO_ROOM, "no node has room")
    assert waiting(driver, 7200) == 6  # after 1, 3, 7, 15, 31 and 63 minutes
    assert waiting(driver, 8 * 3600) == ROOM_RETRIES - 6
    assert waiting(driver, 8 * 3600) == 0
    assert driver.core.status(driver.now).alarms
    driver.tell(RoomAppeared())
    assert driver.core.instances["web"].state is InstanceState.RUNNING


@pytest.mark.requirement("D13")
def test_room_that_appears_all_the_time_brings_spaced_attempts() -> None:
    driver = Driver(web()).run(5).fenced()
    driver.end(JobKind.FAIL_OVER, Outcome.NO_ROOM, "no node has room")
    assert waiting(driver, 600, appears_s=1.0) <= 2 + 600 / MOST_BACKOFF_S


@pytest.mark.requirement("D13")
def test_room_that_appears_while_the_job_runs_brings_another_soon() -> None:
    driver = Driver(web()).run(5).fenced()
    driver.tell(RoomAppeared())
    driver.end(JobKind.FAIL_OVER, Outcome.NO_ROOM, "no node has room")
    driver.run(BACKOFF_S + 2, silent=[A])
    assert len(driver.submitted(JobKind.FAIL_OVER)) == 2


@pytest.mark.requirement("D13")
def test_queue_that_takes_no_jobs_is_asked_again_and_again() -> None:
    driver = Driver(web()).run(5).fenced()
    for count in range(1, 6):
        assert len(driver.submitted(JobKind.FAIL_OVER)) == count
        driver.end(JobKind.FAIL_OVER, Outcome.NOT_ACCEPTED, "the queue is drained")
        driver.tell(RoomAppeared())
        driver.run(QUEUE_RETRY_S + 2, silent=[A])


@pytest.mark.requirement("D13")
def test_a_failed_attempt_is_spaced_whatever_else_changes() -> None:
    driver = Driver(web()).run(5).fenced()
    driver.end(JobKind.FAIL_OVER, Outcome.FAILED, "cannot start")
    driver.configure(other=web("other", B))
    driver.run(BACKOFF_S - 3, silent=[A])
    assert len(driver.submitted(JobKind.FAIL_OVER)) == 1
    driver.run(5, silent=[A])
    assert len(driver.submitted(JobKind.FAIL_OVER)) == 2


def give_up(driver: Driver) -> None:
    for _ in range(3):
        driver.run(70, crashed=True)
        driver.end(JobKind.RESTART, Outcome.FAILED, "cannot start")
    driver.run(70, crashed=True)


@pytest.mark.requirement("D13")
def test_attempts_are_bounded_and_giving_up_names_the_command() -> None:
    driver = Driver(web()).run(5)
    give_up(driver)
    assert len(driver.submitted(JobKind.RESTART)) == 3
    (alarm,) = driver.core.status(driver.now).alarms
    assert "cannot start" in alarm
    assert "gnt-instance start web" in alarm
    assert [one.text for one in driver.seen if isinstance(one, Alarm)] == [alarm]


@pytest.mark.requirement("D13")
def test_a_new_master_keeps_what_was_given_up() -> None:
    driver = Driver(web(), rows=[InstanceRow("web", (1e9,), "3 attempts")]).run(30, crashed=True)
    assert not driver.submitted(JobKind.RESTART)
    assert driver.core.status(driver.now).alarms


def test_an_instance_that_an_administrator_started_is_recovered_again() -> None:
    driver = Driver(web()).run(5)
    give_up(driver)
    driver.run(1)
    assert driver.rows[-1] == InstanceRow("web")
    driver.run(1, crashed=True)
    assert len(driver.submitted(JobKind.RESTART)) == 4


def test_an_instance_that_an_administrator_moved_is_recovered_again() -> None:
    driver = Driver(web()).run(5)
    give_up(driver)
    driver.configure(web=web(node=B))
    assert driver.rows[-1] == InstanceRow("web")
    assert driver.core.instances["web"].state is InstanceState.PROTECTED


def test_the_lost_answer_of_another_commit_starts_no_second_job() -> None:
    driver = Driver(web()).run(5).run(1, crashed=True)
    driver.tell(CommitFailed(InstanceRow("web")))
    driver.run(BACKOFF_S + 3, crashed=True)
    assert len(driver.submitted(JobKind.RESTART)) == 1


def test_a_clock_that_is_set_back_does_not_use_up_the_attempts() -> None:
    rows = [InstanceRow("web", (1e9 + 50_000, 1e9 + 50_001, 1e9 + 50_002))]
    driver = Driver(web(), rows=rows).run(6, crashed=True)
    assert len(driver.submitted(JobKind.RESTART)) == 1


def test_people_see_each_state_and_since_when() -> None:
    driver = Driver(web()).run(5).run(LOST_S + 22, silent=[A])
    one = driver.core.status(driver.now).nodes[0]
    assert (one.name, one.state, one.methods, one.is_armed) == (
        A,
        NodeState.FENCING,
        (POWER,),
        True,
    )
    assert one.silent_s == LOST_S + 22
    assert 0 < one.state_s < one.silent_s
