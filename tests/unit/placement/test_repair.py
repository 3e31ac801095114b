"""What repairs are needed, allowed and remembered: pure decisions."""

import pytest

from ganeti.base.errors import InputError
from ganeti.placement.description import Instance
from ganeti.placement.repair import (
    PREFIX,
    Level,
    Mark,
    Result,
    Standing,
    State,
    Suspended,
    expired,
    judged,
    needed,
    parse_mark,
    permission,
    standing,
)

NOW = 1_700_000_000


def instance(template: str, *, status: str = "running") -> Instance:
    second = "b" if template == "drbd" else ""
    return Instance(
        "web1", 128, 1024, 1, status=status, primary="a", secondary=second, template=template
    )


@pytest.mark.parametrize(
    ("template", "why", "level", "names"),
    [
        ("drbd", {}, None, []),
        ("drbd", {"c": "offline"}, None, []),
        ("drbd", {"b": "offline"}, Level.FIX_STORAGE, ["REPLACE_DISKS"]),
        ("drbd", {"b": "drained"}, Level.FIX_STORAGE, ["REPLACE_DISKS"]),
        ("drbd", {"a": "drained"}, Level.MIGRATE, ["MIGRATE"]),
        ("drbd", {"a": "drained", "b": "drained"}, Level.FIX_STORAGE, ["REPLACE_DISKS"]),
        ("drbd", {"a": "offline"}, Level.FAILOVER, ["FAILOVER"]),
        ("drbd", {"a": "offline", "b": "drained"}, Level.FAILOVER, ["FAILOVER"]),
        ("drbd", {"a": "offline", "b": "offline"}, Level.REINSTALL,
         ["SHUTDOWN", "RECREATE_DISKS", "REINSTALL", "STARTUP"]),
        ("sharedfile", {"a": "offline"}, Level.FAILOVER, ["FAILOVER"]),
        ("rbd", {"a": "drained"}, Level.MIGRATE, ["MIGRATE"]),
        ("diskless", {"a": "offline"}, Level.FAILOVER, ["FAILOVER"]),
        ("plain", {"a": "offline"}, Level.REINSTALL,
         ["SHUTDOWN", "RECREATE_DISKS", "REINSTALL", "STARTUP"]),
        ("file", {"a": "drained"}, None, []),
        ("plain", {"a": "silent"}, None, []),
        ("sharedfile", {"a": "silent"}, None, []),
    ],
)  # fmt: skip
def test_the_least_step_that_helps(
    template: str, why: dict[str, str], level: Level | None, names: list[str]
) -> None:
    repair = needed(instance(template), why)
    if repair is None:
        assert level is None
    else:
        assert repair.level == level
        assert [op["OP_ID"] for op in repair.opcodes] == [f"OP_INSTANCE_{name}" for name in names]
        assert {op["instance_name"] for op in repair.opcodes} == {"web1"}


def test_a_failover_uses_no_copy_that_is_not_whole() -> None:
    repair = needed(instance("drbd"), {"a": "offline"})
    assert repair is not None
    assert not repair.opcodes[0].get("ignore_consistency")


def test_an_instance_that_is_not_to_run_is_not_started() -> None:
    stopped = instance("plain", status="ADMIN_down")
    again = needed(stopped, {"a": "offline"})
    assert again is not None
    assert [op["OP_ID"] for op in again.opcodes] == [
        "OP_INSTANCE_RECREATE_DISKS", "OP_INSTANCE_REINSTALL",
    ]  # fmt: skip
    away = needed(instance("rbd", status="ADMIN_down"), {"a": "drained"})
    assert away is not None
    assert (away.level, away.opcodes[0]["OP_ID"]) == (Level.MIGRATE, "OP_INSTANCE_FAILOVER")


def tag(*words: object) -> str:
    return PREFIX + ":".join(map(str, words))


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        (tag("pending:failover:id-1", NOW, "7+8"), Mark(Level.FAILOVER, "id-1", NOW, (7, 8))),
        (tag("pending:fix-storage:id-1", NOW, ""), Mark(Level.FIX_STORAGE, "id-1", NOW)),
        (tag("result:reinstall:id-1", NOW, "success:7"),
         Mark(Level.REINSTALL, "id-1", NOW, (7,), Result.SUCCESS)),
        (tag("result:migrate:id-1", NOW, "enoperm:"),
         Mark(Level.MIGRATE, "id-1", NOW, (), Result.ENOPERM)),
    ],
)  # fmt: skip
def test_tags_are_read_as_they_were_written(text: str, mark: Mark) -> None:
    assert parse_mark(text) == mark
    assert mark.tag == text


@pytest.mark.parametrize(
    "text",
    ["web", tag("failover"), tag("pending:failover:x"), tag("pending:reboot:x", NOW, ""),
     tag("pending:failover:x:soon:"), tag("pending:failover:x", NOW, "a"),
     tag("result:failover:x", NOW, "maybe:7"), tag("result:failover:x", NOW, "7")],
)  # fmt: skip
def test_other_tags_tell_of_no_repair(text: str) -> None:
    assert parse_mark(text) is None
    assert standing([text]) == Standing(State.HEALTHY)


def mark(uuid: str, time: int, result: Result | None = None) -> Mark:
    return Mark(Level.FAILOVER, uuid, NOW + time, (7,), result)


def test_a_failure_counts_until_an_administrator_removes_it() -> None:
    marks = [mark("c", 9, Result.SUCCESS), mark("b", 5, Result.FAILURE), mark("a", 2, Result.FAILURE)]  # fmt: skip
    assert standing([one.tag for one in marks]) == Standing(State.FAILED, marks[2])


def test_what_is_pending_counts_before_what_ended_and_the_latest_before_the_older() -> None:
    old, new, pending = mark("a", 1, Result.SUCCESS), mark("b", 2, Result.ENOPERM), mark("c", 0)
    assert standing([old.tag, new.tag]) == Standing(State.HEALTHY, new, (old.tag,))
    found = standing([old.tag, new.tag, pending.tag])
    assert (found.state, found.mark) == (State.PENDING, pending)
    assert set(found.obsolete) == {old.tag, new.tag}


def test_a_repair_that_ended_is_not_pending_though_its_old_tag_is_still_there() -> None:
    before, after = mark("a", 5), mark("a", 9, Result.SUCCESS)
    assert standing([before.tag, after.tag]) == Standing(State.HEALTHY, after, (before.tag,))


def test_two_pending_repairs_are_an_error() -> None:
    with pytest.raises(InputError, match="two repairs"):
        standing([mark("a", 1).tag, mark("b", 2).tag])


@pytest.mark.parametrize(
    ("own", "group", "cluster", "wanted"),
    [
        ([], [], [], None),
        (["other"], [], ["failover"], Level.FAILOVER),
        ([], ["migrate"], ["reinstall"], Level.MIGRATE),
        (["failover"], [], ["fix-storage", "reinstall"], Level.FAILOVER),
        ([], [], ["reinstall", "fix-storage"], Level.FIX_STORAGE),
        (["suspend"], [], ["reinstall"], Suspended(None)),
        (["suspend", "failover"], [], [], Suspended(None)),
        (["failover"], [], ["suspend"], Level.FAILOVER),
        ([], [f"suspend:{NOW + 5}", f"suspend:{NOW + 9}"], [], Suspended(NOW + 9)),
        ([f"suspend:{NOW + 5}", "suspend"], [], [], Suspended(None)),
        ([f"suspend:{NOW - 5}"], [], ["migrate"], Level.MIGRATE),
        ([f"suspend:{NOW - 5}", "failover"], [], [], Level.FAILOVER),
    ],
)
def test_the_nearest_object_reports_what_is_allowed_and_of_its_tags_the_least(
    own: list[str], group: list[str], cluster: list[str], wanted: Level | Suspended | None
) -> None:
    objects = [[tag(one) for one in tags] for tags in (own, group, cluster)]
    assert permission(objects, NOW) == wanted


def test_suspensions_that_are_over_can_be_removed() -> None:
    tags = [tag("suspend"), tag("suspend", NOW - 1), tag("suspend", NOW + 1), tag("suspend:x")]
    assert expired(tags, NOW) == [tag("suspend", NOW - 1)]


@pytest.mark.parametrize(
    ("statuses", "is_broken", "result"),
    [
        (["success"], True, Result.SUCCESS),
        (["success", "error"], False, Result.FAILURE),
        (["canceled"], False, Result.FAILURE),
        ([None], False, Result.SUCCESS),
        ([None], True, Result.FAILURE),
        ([], False, Result.SUCCESS),
    ],
)
def test_how_a_repair_ended(statuses: list[str | None], is_broken: bool, result: Result) -> None:
    done = judged(mark("a", 0), statuses, NOW + 3.5, is_broken=is_broken)
    assert done == Mark(Level.FAILOVER, "a", NOW + 3, (7,), result)


@pytest.mark.parametrize("status", ["queued", "waiting", "canceling", "running"])
def test_a_repair_whose_jobs_run_has_not_ended(status: str) -> None:
    assert judged(mark("a", 0), ["error", status], NOW, is_broken=True) is None
