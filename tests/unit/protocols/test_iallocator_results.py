"""Results of allocators: read strictly, for nobody vouches for the program."""

from typing import Any

import pytest

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.model.iallocator import AllocatorAnswer
from ganeti.model.opcodes.instance import OpInstanceMigrate
from ganeti.protocols.iallocator_results import fitting, moves, placed

MIGRATE = {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": "web1", "target_node": "n2"}


def _answer(result: Any) -> AllocatorAnswer:
    return AllocatorAnswer(success=True, info="", result=result)


@pytest.mark.requirement("S178")
def test_jobs_of_an_evacuation_are_opcodes() -> None:
    result = [[["web1", "default", ["n2"]]], [["web2", "no room"]], [[MIGRATE]]]
    found = moves("hail", _answer(result), ["web1", "web2"])
    assert found.moved == [("web1", "default", ["n2"])]
    assert found.failed == [("web2", "no room")]
    (op,) = found.jobs[0]
    assert isinstance(op, OpInstanceMigrate)
    assert op.target_node == "n2"
    assert found.needs == [[]]


@pytest.mark.requirement("S186")
def test_a_balance_reports_which_job_waits_for_which() -> None:
    result = [[], [], [[MIGRATE], [MIGRATE]], [[], [0]]]
    assert moves("hail", _answer(result), ["web1"]).needs == [[], [0]]


@pytest.mark.requirement("S178", "A22")
@pytest.mark.parametrize(
    "result",
    [
        [],
        {},
        None,
        [[], []],
        [[], [], {}],
        [[], [], [[]]],
        [[], [], [[MIGRATE] * 11]],
        [[], [], [[{"OP_ID": "OP_CLUSTER_DESTROY"}]]],
        [[], [], [[{"OP_ID": "OP_INSTANCE_REMOVE", "instance_name": "web1"}]]],
        [[], [], [[{**MIGRATE, "instance_name": "other"}]]],
        [[], [], [[{**MIGRATE, "sudo": True}]]],
        [[], [], [[{"instance_name": "web1"}]]],
        [[], [], [[MIGRATE]], [[0]]],
        [[], [], [[MIGRATE]], [[-1]]],
        [[], [], [[MIGRATE]], [[], []]],
        [[["web1", "default"]], [], []],
    ],
)
def test_nothing_but_moves_of_the_instances_in_question_is_accepted(result: Any) -> None:
    with pytest.raises(PrereqError) as caught:
        moves("mine", _answer(result), ["web1"])
    assert caught.value.code is ErrorCode.ENVIRONMENT
    assert "iallocator 'mine' returned a wrong result" in caught.value.message


@pytest.mark.requirement("S179")
def test_many_placements_at_once() -> None:
    found = placed("hail", _answer([[["a", ["n1"]]], ["b"]]), {"a": 1, "b": 1})
    assert found == ({"a": ["n1"]}, ["b"])


@pytest.mark.requirement("S179")
@pytest.mark.parametrize(
    "result",
    [
        [[["a", ["n1"]]], []],
        [[["a", ["n1"]], ["a", ["n1"]]], ["b"]],
        [[["a", []]], ["b"]],
        [[["c", ["n1"]]], ["b"]],
        [["a", "n1"]],
    ],
)
def test_each_instance_has_one_answer(result: Any) -> None:
    with pytest.raises(PrereqError, match="wrong result"):
        placed("hail", _answer(result), {"a": 1, "b": 1})


@pytest.mark.requirement("S187")
def test_places_of_instances_that_fit() -> None:
    assert fitting("x", _answer([["n1"], ["n2"]]), 1) == [["n1"], ["n2"]]
    with pytest.raises(PrereqError):
        fitting("x", _answer([["n1"]]), 2)


@pytest.mark.requirement("S237")
def test_a_refusal_is_reported_in_the_allocators_words() -> None:
    answer = AllocatorAnswer(success=False, info="all full", result=[])
    with pytest.raises(PrereqError, match="using iallocator 'hail': all full"):
        moves("hail", answer, [])
