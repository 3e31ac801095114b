"""What the watcher decides, and that it does so seldom enough: eight hours pass in no time."""

import random
from itertools import pairwise

import msgspec
import pytest

from ganeti.watcher.decide import (
    MOST_STARTS,
    WAITS_S,
    WINDOW_S,
    Decision,
    after_verification,
    decide,
)
from ganeti.watcher.facts import Facts, Instance, Memory, Node

RUN_S = 300.0
NOW = 1_000_000.0


def instance(name: str = "web1", status: str = "ERROR_down", **fields: object) -> Instance:
    given: dict[str, object] = {"is_wanted": True, "group": "g1", **fields}
    return Instance(name=name, status=status, **given)  # type: ignore[arg-type]  # by the caller


def facts(*instances: Instance, **fields: object) -> Facts:
    given: dict[str, object] = {"groups": {"g1": "default"}, **fields}
    return Facts(instances=instances, **given)  # type: ignore[arg-type]  # by the caller


def abouts(done: Decision) -> list[str]:
    return [job.about for job in done.jobs if not job.about.startswith("verify")]


@pytest.mark.requirement("G20")
@pytest.mark.parametrize(
    ("one", "is_started"),
    [
        (instance(), True),
        (instance(is_wanted=False), False),
        (instance(is_there=True), False),
        *((instance(status=status), False) for status in ("running", "ADMIN_down", "ERROR_up")),
        *((instance(status=status), False) for status in ("ERROR_wrongnode", "ERROR_nodedown")),
        *((instance(status=status), False) for status in ("ERROR_nodeoffline", "ADMIN_offline")),
    ],
)
def test_what_is_started(one: Instance, is_started: bool) -> None:
    assert abouts(decide(facts(one), Memory(), NOW)) == (["start web1"] if is_started else [])


@pytest.mark.requirement("G20", "F27")
def test_locked_instance_is_skipped() -> None:
    assert abouts(decide(facts(instance(), locked=frozenset({"web1"})), Memory(), NOW)) == []


@pytest.mark.requirement("F28")
def test_while_a_job_of_an_earlier_run_lives_there_is_no_other() -> None:
    memory = Memory(jobs={"start web1": 7, "verify g1": 8}, starts={"web1": [NOW - 7200]})
    found = facts(instance(), live_jobs=frozenset({7, 8}))
    assert decide(found, memory, NOW).jobs == []
    ended = decide(facts(instance()), memory, NOW)
    assert [job.about for job in ended.jobs] == ["start web1", "verify g1"]
    assert ended.memory.jobs == {}


@pytest.mark.requirement("G20", "F28")
def test_eight_hours_of_a_guest_that_crashes_at_once() -> None:
    memory, started = Memory(), []
    for run in range(int(3 * WINDOW_S / RUN_S)):
        now = NOW + run * RUN_S + random.Random(run).uniform(-2, 2)
        done = decide(facts(instance()), memory, now)
        memory = done.memory
        started += [now for about in abouts(done) if about == "start web1"]
    for begin in started:
        assert len([at for at in started if begin <= at < begin + WINDOW_S]) <= MOST_STARTS
    gaps = [later - earlier for earlier, later in pairwise(started)]
    assert gaps[:4] == sorted(gaps[:4]), "the waits grow"
    assert gaps[3] >= WAITS_S[4] - 60
    assert len(started) > MOST_STARTS, "it is not given up for ever"


@pytest.mark.requirement("G20")
def test_short_run_does_not_reset_the_count_of_starts() -> None:
    memory, started = Memory(), 0
    for run in range(int(WINDOW_S / RUN_S)):
        status = "ERROR_down" if run % 2 else "running"
        done = decide(facts(instance(status=status)), memory, NOW + run * RUN_S)
        memory = done.memory
        started += "start web1" in abouts(done)
    assert started == MOST_STARTS


@pytest.mark.requirement("F28")
def test_abandoned_instance_is_reported_once() -> None:
    memory = Memory(starts={"web1": [NOW - 60.0 * one for one in range(MOST_STARTS)]})
    first = decide(facts(instance()), memory, NOW)
    assert len(first.remarks) == 1
    assert "not restarting it" in first.remarks[0]
    assert decide(facts(instance()), first.memory, NOW + RUN_S).remarks == []


def test_a_clock_that_was_set_back_does_not_stop_the_watcher() -> None:
    memory = Memory(starts={"web1": [NOW + 10 * WINDOW_S] * MOST_STARTS})
    assert abouts(decide(facts(instance()), memory, NOW)) == ["start web1"]


def test_what_its_user_has_shut_down_is_recorded_as_that() -> None:
    done = decide(facts(instance(status="USER_down")), Memory(), NOW)
    [job] = [job for job in done.jobs if job.about == "record web1"]
    assert job.op["admin_state_source"] == "user"


def test_disks_are_activated_after_a_restart_of_a_node_that_has_a_copy() -> None:
    mirrored = instance(status="running", secondaries=("node2",))
    one = facts(mirrored, nodes=(Node(name="node2", boot_id="a"), Node(name="node1", boot_id="x")))
    first = decide(one, Memory(), NOW)
    assert abouts(first) == [], "nothing is known of an earlier boot"
    rebooted = (Node(name="node2", boot_id="b"), Node(name="node1", boot_id="x"))
    second = decide(facts(mirrored, nodes=rebooted), first.memory, NOW)
    assert abouts(second) == ["disks web1"]
    assert abouts(decide(facts(mirrored, nodes=rebooted), second.memory, NOW)) == []


def test_a_restart_is_remembered_until_all_disks_are_taken_care_of() -> None:
    mirrored = instance(status="running", secondaries=("node2",))
    memory = Memory(boot_ids={"node2": "a"})
    rebooted = (Node(name="node2", boot_id="b"),)
    busy = facts(mirrored, nodes=rebooted, locked=frozenset({"web1"}))
    held = decide(busy, memory, NOW)
    assert abouts(held) == []
    assert held.memory.boot_ids == {"node2": "a"}
    assert abouts(decide(facts(mirrored, nodes=rebooted), held.memory, NOW)) == ["disks web1"]


def test_a_node_that_does_not_answer_has_not_been_restarted() -> None:
    mirrored = instance(status="running", secondaries=("node2",))
    memory = Memory(boot_ids={"node2": "a"})
    silent = decide(facts(mirrored, nodes=(Node(name="node2"),)), memory, NOW)
    assert abouts(silent) == []
    assert silent.memory.boot_ids == {"node2": "a"}


@pytest.mark.requirement("F28")
def test_disks_are_verified_a_job_for_each_group_that_has_instances() -> None:
    groups = {"g1": "default", "g2": "other", "empty": "empty"}
    found = facts(
        instance(status="running"), instance("web2", "running", group="g2"), groups=groups
    )
    ops = [job.op for job in decide(found, Memory(), NOW).jobs]
    assert [op["group_name"] for op in ops] == ["default", "other"]
    assert decide(found, Memory(), NOW, verify_disks=False).jobs == []


def test_disks_that_a_check_found_not_in_use_are_activated() -> None:
    found = facts(instance(status="running"), instance("web2", "ADMIN_down", is_wanted=False))
    jobs = after_verification(found, Memory(), ["web1", "web2", "gone"])
    assert [(job.about, job.op["if_wanted"]) for job in jobs] == [("disks web1", True)]


@pytest.mark.requirement("G20")
@pytest.mark.parametrize("seed", range(20))
def test_no_history_starts_one_instance_too_often(seed: int) -> None:
    chance = random.Random(seed)
    memory, now = Memory(), NOW
    started: dict[str, list[float]] = {}
    for _ in range(300):
        now += chance.choice((1.0, 60.0, RUN_S, RUN_S, 3600.0))
        found = [
            instance(name, chance.choice(("ERROR_down", "ERROR_down", "running")))
            for name in ("a", "b")
        ]
        done = decide(facts(*found), memory, now)
        memory = done.memory
        for about in abouts(done):
            started.setdefault(about, []).append(now)
    assert {*started} == {"start a", "start b"}
    for times in started.values():
        for begin in times:
            assert len([at for at in times if begin <= at < begin + WINDOW_S]) <= MOST_STARTS


def test_instances_return_once_to_a_node_that_is_in_service_again() -> None:
    lost = Node(name="node1", boot_id="b", away=("web1", "web2"))
    web = instance(status="running", returns=True)
    memory, sent = Memory(), []
    for at in range(10):
        done = decide(facts(web, nodes=(lost,)), memory, NOW + at * RUN_S)
        memory = done.memory
        sent += [(at, job.op) for job in done.jobs if job.about == "return node1"]
    [(at, op)] = sent
    assert at == 2
    assert (op["OP_ID"], op["failback"]) == ("OP_NODE_MAINTENANCE_END", True)
    rebooted = Node(name="node1", boot_id="c", away=("web1",))
    assert abouts(decide(facts(web, nodes=(rebooted,)), memory, NOW + 9999)) == []
    home = Node(name="node1", boot_id="b")
    memory = decide(facts(web, nodes=(home,)), memory, NOW + 9999).memory
    assert abouts(decide(facts(web, nodes=(lost,)), memory, NOW + 99999)) == []
    rebooted = msgspec.structs.replace(home, boot_id="c")
    assert decide(facts(web, nodes=(rebooted,)), memory, NOW).memory.in_service == {}


@pytest.mark.parametrize(
    ("node", "returns"),
    [
        ({}, False),
        ({"offline": True}, True),
        ({"in_maintenance": True}, True),
        ({"boot_id": ""}, True),
        ({"away": ("web2",)}, True),
    ],
)
def test_instances_do_not_return_uninvited(node: dict[str, object], returns: bool) -> None:
    lost = msgspec.structs.replace(Node(name="node1", boot_id="b", away=("web1",)), **node)
    memory = Memory(in_service={"node1": ("b", NOW - 9999)})
    web = instance(status="running", returns=returns)
    assert abouts(decide(facts(web, nodes=(lost,)), memory, NOW)) == []
