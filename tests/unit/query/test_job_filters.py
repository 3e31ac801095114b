"""Predicates of job filters: what they hold for, and what is refused."""

from typing import Any

import pytest

from ganeti.base.errors import GanetiError, InputError, PrereqError
from ganeti.config.config import Config
from ganeti.model.job_filter import FREE, FilterAction, JobFilter, parse_action
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.opcodes.test import OpTestDelay
from ganeti.query.filter_changes import FilterChanges
from ganeti.query.job_filters import JobRules, check_predicates
from ganeti.simulation.counting_ids import CountingIds
from ganeti.simulation.virtual_time import LoopClock
from tests.support.predictable import FrozenClock
from tests.unit.config.sample import GROUP, sample_objects, store_with

pytestmark = pytest.mark.virtual_time

REASON = ("gnt:user", "maintenance pink bunny", 1_700_000_000)
JOB: list[OpCode] = [
    OpTestDelay(duration=3.0, reason=[REASON]),
    OpInstanceCreate(instance_name="web1", os_type="noop", tags=["a", "b"]),
]


def holds(predicate: list[Any], job_id: int = 12, watermark: int = 10) -> bool:
    rule = JobFilter(
        uuid="u",
        name="u",
        watermark=watermark,
        predicates=(predicate,),
        action=FilterAction.PAUSE,
    )
    return JobRules([rule]).ruling(job_id, JOB) != FREE


@pytest.mark.parametrize(
    "predicate",
    [
        ["jobid", [">", "id", "watermark"]],
        ["jobid", ["&", ["=", "id", 12], ["!", ["<=", "id", "watermark"]]]],
        ["opcode", ["=", "OP_ID", "OP_INSTANCE_CREATE"]],
        ["opcode", ["&", ["=~", "instance_name", "^web"], ["=[]", "tags", "b"]]],
        ["opcode", [">=", "duration", 3]],
        ["reason", ["=~", "reason", "pink bunny"]],
        ["reason", ["&", ["=", "source", "gnt:user"], [">", "timestamp", 1_600_000_000]]],
    ],
)
def test_a_predicate_holds(predicate: list[Any]) -> None:
    assert holds(predicate)


@pytest.mark.parametrize(
    "predicate",
    [
        ["jobid", ["<=", "id", "watermark"]],
        # Both must be true of one opcode.
        ["opcode", ["&", ["=", "OP_ID", "OP_TEST_DELAY"], ["=", "instance_name", "web1"]]],
        ["opcode", ["=", "no_such_field", "x"]],
        ["opcode", ["!=", "no_such_field", "x"]],
        ["reason", ["=", "source", "pink"]],
    ],
)
def test_a_predicate_does_not_hold(predicate: list[Any]) -> None:
    assert not holds(predicate)


@pytest.mark.requirement("A23", "G26")
@pytest.mark.parametrize(
    ("predicates", "text"),
    [
        ("x", "predicates: must be a list"),
        ([["jobid"]], "predicates[0]: "),
        ([["status", ["=", "a", "b"]]], "predicates[0]: "),
        ([["jobid", [">", "status", 1]]], "unknown field 'status'"),
        ([["jobid", [">", "id", "many"]]], "id is a number"),
        ([["reason", ["=~", "reason", "("]]], "predicates[0]: "),
        ([["reason", ["=~", "reason", "(?=a)"]]], "predicates[0]: "),
        ([["jobid", ["=", "id", 1]]] * 65, "at most 64"),
        ([["opcode", ["=", "a", "x" * 20_000]]], "longer than"),
    ],
)
def test_what_could_not_be_asked_is_refused(predicates: Any, text: str) -> None:
    with pytest.raises(InputError) as caught:
        check_predicates(predicates)
    assert text in str(caught.value)


@pytest.mark.requirement("A23")
@pytest.mark.parametrize("operator", ["!", "&", "|"])
def test_depth_is_bounded(operator: str) -> None:
    deep: list[Any] = ["=", "id", "watermark"]
    for _ in range(400):
        deep = [operator, deep]
    with pytest.raises(InputError, match="nested deeper"):
        check_predicates([["jobid", deep]])


@pytest.mark.parametrize(
    "raw", ["RATE_LIMIT", ["RATE_LIMIT", 0], ["RATE_LIMIT", True], ["PAUSE"], "pause", None, 3]
)
def test_actions_that_are_none_are_refused(raw: Any) -> None:
    with pytest.raises(InputError):
        parse_action(raw)


async def changes() -> tuple[Config, FilterChanges]:
    store, lease = await store_with(*sample_objects(0))
    config = await Config.load(store, lease, LoopClock(), CountingIds())
    return config, FilterChanges(config, CountingIds(), FrozenClock(), lambda: 41)


async def test_a_replaced_filter_keeps_its_place_and_gets_a_new_watermark() -> None:
    config, filters = await changes()
    uuid = await filters.replace(None, 3, [], "PAUSE", None)
    assert await filters.replace(uuid, 4, [], ["RATE_LIMIT", 2], [["a", "b", 1]]) == uuid
    [found] = config.snapshot.table(JobFilter).values()
    assert (found.watermark, found.priority, found.action_on_wire) == (41, 4, ["RATE_LIMIT", 2])
    assert found.serial_no == 2
    await filters.delete(uuid)
    assert not config.snapshot.table(JobFilter)
    with pytest.raises(PrereqError, match="does not exist"):
        await filters.delete(uuid)


@pytest.mark.parametrize(
    "given",
    [
        ("x", 0, [], "PAUSE", []),
        (GROUP, 0, [], "PAUSE", []),
        (None, -1, [], "PAUSE", []),
        (None, True, [], "PAUSE", []),
        (None, 1.5, [], "PAUSE", []),
        (None, 0, [], "PAUSE", [["a", "b"]]),
        (None, 0, [], "PAUSE", "why"),
        (None, 0, {}, "PAUSE", []),
    ],
)
async def test_a_filter_that_cannot_be_is_refused_and_changes_nothing(
    given: tuple[Any, Any, Any, Any, Any],
) -> None:
    config, filters = await changes()
    before = config.snapshot
    with pytest.raises(GanetiError):
        await filters.replace(*given)
    assert config.snapshot is before
