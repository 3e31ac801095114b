"""Answers of allocators: what is understood, and what is refused."""

import pytest

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.protocols.iallocator import chosen_names, message, parse_answer


@pytest.mark.requirement("S163")
@pytest.mark.parametrize(
    "output",
    ["", "nonsense", "[]", '{"success": true}', '{"success": 1, "info": "", "result": []}'],
)
def test_what_is_no_answer_gives_a_clear_error(output: str) -> None:
    with pytest.raises(PrereqError, match=r"iallocator 'hail'|answer"):
        parse_answer("hail", output)


@pytest.mark.requirement("S180")
def test_the_old_name_of_the_result_is_read() -> None:
    answer = parse_answer("hail", '{"success": true, "info": "", "nodes": ["n1"]}')
    assert answer.result == ["n1"]


@pytest.mark.requirement("S177")
@pytest.mark.parametrize("result", ["[]", '["n1", "n2"]', '"n1"', "[1]"])
def test_the_number_of_nodes_must_be_right(result: str) -> None:
    answer = parse_answer("hail", '{"success": true, "info": "", "result": %s}' % result)  # noqa: UP031 - braces
    with pytest.raises(PrereqError) as caught:
        chosen_names("hail", answer, 1)
    assert caught.value.code is ErrorCode.ENVIRONMENT


@pytest.mark.requirement("S182", "S237")
def test_the_reason_of_a_refusal_is_shown() -> None:
    answer = parse_answer("hail", '{"success": false, "info": "no room", "result": []}')
    with pytest.raises(PrereqError, match="Can't compute nodes using iallocator 'hail': no room"):
        chosen_names("hail", answer, 1)


@pytest.mark.requirement("S164")
def test_a_message_has_all_common_keys() -> None:
    cluster = {
        "cluster_name": "c",
        "cluster_tags": [],
        "enabled_hypervisors": ["kvm"],
        "ipolicy": {},
    }
    assert set(message(cluster, {}, {}, {}, {})) == {
        "version",
        "cluster_name",
        "cluster_tags",
        "enabled_hypervisors",
        "ipolicy",
        "request",
        "nodegroups",
        "instances",
        "nodes",
    }
